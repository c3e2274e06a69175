"""From streamed events to what they amount to, also when they end early or are nonsense."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gym.models.calls import Dialect
from gym.models.dialects.assemble import assembler
from gym.models.sse import SSEEvent


def assembled(dialect: Dialect, *events: Any) -> Any:
    reader = assembler(dialect)
    for event in events:
        reader.add(SSEEvent(None, event if isinstance(event, str) else json.dumps(event)))
    return reader


def chunk(delta: dict[str, Any] | None = None, **choice: Any) -> dict[str, Any]:
    given = [{"index": 0, "delta": delta, **choice}] if delta is not None else []
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": given, "usage": None}


def test_chat_deltas_become_a_completion_with_fields_it_does_not_know() -> None:
    reader = assembled(
        "chat_completions",
        chunk({"role": "assistant", "content": ""}, token_ids=None) | {"prompt_token_ids": [1, 2]},
        chunk({"reasoning_content": "hm"}, token_ids=[3], logprobs={"content": [{"token": "a"}]}),
        chunk({"content": "a"}, token_ids=[4, 5], logprobs={"content": [{"token": "b"}]}),
        chunk({"content": "b", "odd": [1]}),
        chunk({"tool_calls": [{"index": 1, "id": "t1", "type": "function", "function": {"name": "g", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "t0", "type": "function", "function": {"name": "f", "arguments": "{"}}]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "[]"}}, {"index": 0, "function": {"arguments": "}"}}]}),
        chunk({}, finish_reason="tool_calls", stop_reason=7),
        chunk() | {"usage": {"total_tokens": 9}},
        "[DONE]",
    )
    assert reader.finished
    assert reader.result() == {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "prompt_token_ids": [1, 2],
        "usage": {"total_tokens": 9},
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "ab",
                    "reasoning_content": "hm",
                    "odd": [1],
                    "tool_calls": [
                        {"id": "t0", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                        {"id": "t1", "type": "function", "function": {"name": "g", "arguments": "[]"}},
                    ],
                },
                "token_ids": [3, 4, 5],
                "logprobs": {"content": [{"token": "a"}, {"token": "b"}]},
                "finish_reason": "tool_calls",
                "stop_reason": 7,
            }
        ],
    }


def test_several_choices_are_kept_apart() -> None:
    chunks = [chunk({"content": text}, index=index) for text, index in (("a", 1), ("x", 0), ("b", 1), ("y", 0))]
    choices = assembled("chat_completions", *chunks).result()["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["xy", "ab"]


def test_tool_calls_without_an_index_begin_with_an_id() -> None:
    deltas = [{"id": "a", "function": {"arguments": "1"}}, {"function": {"arguments": "2"}}, {"id": "b", "function": {"arguments": "3"}}]
    message = assembled("chat_completions", *(chunk({"tool_calls": [delta]}) for delta in deltas)).result()["choices"][0]["message"]
    assert [(call["id"], call["function"]["arguments"]) for call in message["tool_calls"]] == [("a", "12"), ("b", "3")]


ITEM = {"type": "message", "id": "m", "role": "assistant", "content": []}
RESPONSES = [
    {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "t", "summary": []}},
    {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "hm"},
    {"type": "response.output_item.added", "output_index": 1, "item": ITEM},
    {"type": "response.content_part.added", "output_index": 1, "content_index": 0, "part": {"type": "output_text", "text": ""}},
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "a"},
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "b"},
    {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{}"},
]


def test_an_unfinished_response_is_what_there_was_of_it() -> None:
    reader = assembled("responses", *RESPONSES)
    assert not reader.finished
    assert reader.result() == {
        "id": "r",
        "status": "in_progress",
        "output": [
            {"type": "reasoning", "id": "t", "summary": [], "content": [{"text": "hm"}]},
            {**ITEM, "content": [{"type": "output_text", "text": "ab"}]},
            {"type": "function_call", "arguments": "{}"},
        ],
    }


@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
def test_the_terminal_event_of_a_response_has_the_last_word(kind: str) -> None:
    whole = {"id": "r", "status": kind, "output": [{"type": "odd"}], "error": {"message": "no"} if kind == "failed" else None}
    reader = assembled("responses", *RESPONSES, {"type": f"response.{kind}", "response": whole})
    assert (reader.finished, reader.result(), reader.error) == (True, whole, whole["error"])


def test_a_terminal_event_without_output_keeps_the_items() -> None:
    reader = assembled("responses", *RESPONSES, {"type": "response.completed", "response": {"id": "r"}})
    assert (reader.finished, len(reader.result()["output"])) == (True, 3)


def test_messages_blocks_are_filled() -> None:
    start = {"type": "message_start", "message": {"id": "m", "content": [], "stop_reason": None, "usage": {"input_tokens": 3}}}
    blocks = [{"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}, {"type": "tool_use", "input": {}}]
    deltas = [
        (0, {"type": "thinking_delta", "thinking": "hm"}),
        (0, {"type": "signature_delta", "signature": "s"}),
        (1, {"type": "text_delta", "text": "a"}),
        (1, {"type": "text_delta", "text": "b"}),
        (1, {"type": "citations_delta", "citation": 1}),
        (2, {"type": "input_json_delta", "partial_json": '{"x"'}),
        (2, {"type": "input_json_delta", "partial_json": ": 1}"}),
    ]
    events = [start]
    events += [{"type": "content_block_start", "index": index, "content_block": block} for index, block in enumerate(blocks)]
    events += [{"type": "content_block_delta", "index": index, "delta": delta} for index, delta in deltas]
    assert not assembled("messages", *events).finished
    last = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4, "input_tokens": None}}
    reader = assembled("messages", *events, {"type": "ping"}, last, {"type": "message_stop"})
    assert reader.finished
    assert reader.result() == {
        "id": "m",
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "ab", "citations": [1]},
            {"type": "tool_use", "input": {"x": 1}},
        ],
    }


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("chat_completions", {"error": {"message": "no", "code": 3}}),
        ("responses", {"type": "error", "message": "no", "code": 3, "param": None}),
        ("responses", {"type": "error", "error": {"message": "no", "code": 3}}),
        ("messages", {"type": "error", "error": {"message": "no", "code": 3}}),
    ],
)
def test_a_reported_error_is_no_end(dialect: Dialect, event: Any) -> None:
    reader = assembled(dialect, event)
    assert (reader.finished, reader.error["message"], reader.error["code"], reader.result()) == (False, "no", 3, None)


WORDS = (
    "type error choices delta message index content tool_calls function arguments response output output_index content_index item part "
    "content_block usage logprobs text partial_json id"
)
EVENTS = (
    "response.created response.completed response.output_item.added response.content_part.added response.output_text.delta "
    "response.function_call_arguments.delta error message_start content_block_start content_block_delta message_delta text_delta"
)
NAMES, KINDS = WORDS.split(), EVENTS.split()


def nonsense(random: Random, depth: int = 3) -> Any:
    """Some JSON whose names and kinds are those that assemblers look for."""
    shape = random.randrange(8)
    if depth == 0 or shape < 3:
        return random.choice([None, True, -1, 0, 1, 1.5, "", "a", *KINDS])
    if shape == 3:
        return [nonsense(random, depth - 1) for _ in range(random.randrange(3))]
    return {name: nonsense(random, depth - 1) for name in random.sample(NAMES, random.randrange(6))}


@given(st.sampled_from(["chat_completions", "responses", "messages"]), st.integers(0))
def test_nonsense_never_raises(dialect: Dialect, seed: int) -> None:
    random = Random(seed)
    events: list[Any] = []
    for _ in range(8):
        event = nonsense(random)
        events.append({**event, "type": random.choice(KINDS)} if isinstance(event, dict) and random.random() < 0.7 else event)
    json.dumps(assembled(dialect, "", "{", *events).result())
