"""Completions, histories and requests of all kinds, for property tests of the dialects."""

import json
from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SOME_TEXT = TEXT.filter(bool)
NAMES = st.sampled_from(["get_weather", "run", "écrire"])
JSON = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers(-9, 9) | TEXT | st.lists(TEXT, max_size=2), max_size=3)
ARGUMENTS = JSON.map(lambda value: json.dumps(value, ensure_ascii=False))
ODD_ARGUMENTS = ARGUMENTS | st.sampled_from(["", "{bad", "[1]", "3", '"text"', "null", " {} "])
IMAGES = st.sampled_from(["https://example.org/a.png", "data:image/png;base64,iVBORw0KGgo="])


def calls(arguments: st.SearchStrategy[str] = ODD_ARGUMENTS, *, least: int = 0) -> st.SearchStrategy[list[Any]]:
    """Tool calls of one message."""
    one = st.tuples(NAMES, arguments)
    return st.lists(one, min_size=least, max_size=3).map(
        lambda given: [
            {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": text}}
            for index, (name, text) in enumerate(given)
        ]
    )


@st.composite
def assistants(draw: st.DrawFn, arguments: st.SearchStrategy[str] = ODD_ARGUMENTS) -> dict[str, Any]:
    """What a model can say in one message."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | TEXT)}
    if draw(st.booleans()):
        message[draw(st.sampled_from(["reasoning_content", "reasoning"]))] = draw(SOME_TEXT)
    if draw(st.integers(0, 4)) == 0:
        message["refusal"] = draw(SOME_TEXT)
    if made := draw(calls(arguments)):
        message["tool_calls"] = made
    return message


USAGE = st.builds(
    lambda read, written, cached: {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        **({"prompt_tokens_details": {"cached_tokens": min(cached, read)}} if cached else {}),
    },
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 9),
)
LOGPROB = st.builds(lambda token: {"token": token, "logprob": -0.5, "bytes": None, "top_logprobs": []}, TEXT)


@st.composite
def completions(draw: st.DrawFn, choices: int = 1) -> dict[str, Any]:
    """Whole Chat Completions replies, with fields of engines too."""
    reply: dict[str, Any] = {"id": "chatcmpl-1f", "object": "chat.completion", "created": 7, "model": "m", "choices": []}
    for index in range(choices):
        reason = draw(st.sampled_from(["stop", "length", "tool_calls", "content_filter"]))
        choice: dict[str, Any] = {"index": index, "message": draw(assistants()), "finish_reason": reason}
        if draw(st.booleans()):
            choice |= {"logprobs": {"content": draw(st.lists(LOGPROB, min_size=1, max_size=2))}, "token_ids": [1, 2], "stop_reason": "###"}
        reply["choices"].append(choice)
    if draw(st.booleans()):
        reply["usage"] = draw(USAGE)
    if draw(st.booleans()):
        reply |= {"prompt_token_ids": [5, 6], "system_fingerprint": "f"}
    return reply
