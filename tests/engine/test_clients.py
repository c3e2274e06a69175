"""Real clients before a real engine: what is captured of calls that were edited, repeated, or cut off, and what SDKs see."""

import itertools
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.engine.conftest import Engine, ModelServer
from tests.engine.examples import TOOLS, responses_input

_NUMBERS = itertools.count()


@pytest.fixture
def rollout() -> str:
    """The key of a rollout of this test's own."""
    return f"r{next(_NUMBERS)}"


@pytest.fixture
def client(server: ModelServer, rollout: str) -> Iterator[openai.OpenAI]:
    """The OpenAI client of the rollout."""
    with openai.OpenAI(base_url=server.base(rollout), api_key=server.token, max_retries=0, timeout=120) as made:
        yield made


def ask(client: openai.OpenAI, messages: list[dict[str, Any]], *, stream: bool = False, **given: Any) -> Any:
    """One call of Chat Completions; its message as a part of the history, and its id."""
    given = {"model": "m", "messages": messages, "temperature": 0, "max_tokens": 12, **given}
    if stream:
        with client.chat.completions.stream(**given) as events:
            completion = events.get_final_completion()
    else:
        completion = client.chat.completions.create(**given)
    return {"role": "assistant", "content": completion.choices[0].message.content}, completion.id


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def sums() -> list[dict[str, Any]]:
    """A conversation that the model goes on with in a few tokens."""
    history: list[dict[str, Any]] = []
    for one, two in ((1, 1), (2, 5), (3, 4)):
        history += [say(f"{one}+{two}="), {"role": "assistant", "content": f"The sum is {one + two}."}]
    return [*history, say("2+2=")]


def answered(message: dict[str, Any], response_id: str) -> dict[str, Any]:
    """An agent's response that says so."""
    content = [{"type": "output_text", "text": message["content"], "annotations": []}]
    return {"id": response_id, "object": "response", "output": [{"type": "message", "role": "assistant", "content": content}]}


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_made_again_is_counted_once(server: ModelServer, client: openai.OpenAI, rollout: str, stream: bool) -> None:
    history = sums()
    first, _ = ask(client, history, stream=stream)
    assert "sum" in first["content"]
    again, _ = ask(client, history, stream=stream)
    assert again == first  # greedy
    history += [first, say("3+3=")]
    last, response_id = ask(client, history, stream=stream)
    training = server.close(rollout, answered(last, response_id))["training"]
    report = training["report"]
    assert training["masked_reason"] is None, report
    assert (report["n_calls"], report["n_calls_with_tokens"], report["n_repeated_calls"]) == (3, 3, 1)
    carrying = [item for item in training["items"] if "generation_token_ids" in item]
    assert len(carrying) == 2
    assert report["generated_tokens"] == report["delivered_tokens"] == sum(len(item["generation_token_ids"]) for item in carrying)


def test_an_edited_history_is_cut_and_masked(server: ModelServer, client: openai.OpenAI, rollout: str) -> None:
    history = sums()
    first, _ = ask(client, history)
    history += [first, say("3+3=")]
    second, _ = ask(client, history)
    history = [say("1+2="), *history[1:], second, say("4+4=")]
    last, response_id = ask(client, history)
    training = server.close(rollout, answered(last, response_id))["training"]
    assert training["masked_reason"] == "history_edited", training
    assert len([item for item in training["items"] if "generation_token_ids" in item]) == 1  # what came before is not of this chain
    assert training["report"]["delivered_fraction"] < 1


def called(response: Any) -> list[tuple[str, str]]:
    """The tool calls of a Responses object."""
    return [(item.name, item.arguments) for item in response.output if item.type == "function_call"]


def test_all_dialects_of_one_rollout(server: ModelServer, engine: Engine, client: openai.OpenAI, rollout: str) -> None:
    tools: Any = TOOLS
    made = client.responses.create(model="m", input=responses_input(4, 9), tools=tools, temperature=0, max_output_tokens=60)
    with client.responses.stream(model="m", input=responses_input(4, 9), tools=tools, temperature=0, max_output_tokens=60) as events:
        streamed = events.get_final_response()
    assert [called(response) for response in (made, streamed)] == [[("increment_counter", '{"count": 4}')]] * 2
    base = server.base(rollout).removesuffix("/v1")
    with anthropic.Anthropic(base_url=base, api_key=server.token, max_retries=0, timeout=120) as claude:
        messages: Any = sums()
        message = claude.messages.create(model="m", max_tokens=8, messages=messages, extra_body={"temperature": 0})
        with claude.messages.stream(model="m", max_tokens=8, messages=messages, extra_body={"temperature": 0}) as spoken:
            text = "".join(spoken.text_stream)
    assert text == message.content[0].text  # type: ignore[union-attr]
    report = server.close(rollout, None)
    assert [call["dialect"] for call in report["calls"]] == ["responses", "responses", "messages", "messages"]
    assert report["training"]["report"]["n_calls_with_tokens"] == 4
    assert report["usage"]["output_tokens"] == sum(call["tokens_out"] for call in report["calls"]) > 0


def test_a_prompt_that_is_too_long(server: ModelServer, client: openai.OpenAI, rollout: str) -> None:
    long = [say("word " * 6000)]
    completion = client.chat.completions.create(model="m", messages=long, max_tokens=4)  # type: ignore[arg-type]
    assert (completion.choices[0].finish_reason, completion.choices[0].message.content) == ("length", "")
    assert completion.usage is not None
    assert completion.usage.prompt_tokens > 4096
    chunks = list(client.chat.completions.create(model="m", messages=long, max_tokens=4, stream=True))  # type: ignore[call-overload]
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_an_engine_that_is_killed_in_the_midst_of_a_stream(
    server: ModelServer, engine: Engine, client: openai.OpenAI, rollout: str
) -> None:
    first, _ = ask(client, sums())
    given: Any = {"model": "m", "messages": [*sums(), first, say("go on")], "max_tokens": 2000, "stream": True}
    given["extra_body"] = {"stop_token_ids": [], "ignore_eos": True}
    chunks = iter(client.chat.completions.create(**given))
    for _ in range(5):
        next(chunks)
    engine.kill()
    with pytest.raises(openai.APIError):
        list(chunks)
    report = server.close(rollout, answered({"content": "whatever"}, "resp"))
    last = report["calls"][-1]
    assert (last["complete"], last["error_category"]) == (False, "stream_truncated")
    assert report["training"]["items"] is None
    assert report["training"]["masked_reason"] is not None
