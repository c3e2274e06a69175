"""Streamed and whole say the same, in every dialect, however the stream is cut; the SDKs' own types read every event."""

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gym.models.calls import Dialect
from gym.models.dialects.assemble import assembler
from gym.models.dialects.from_chat import chat_to_message, chat_to_response
from gym.models.dialects.streams import ChatToMessages, ChatToResponses, stream_of
from gym.models.sse import SSEEvent, SSEParser, encode
from tests.unit.models.dialect_examples import completions

RESPONSES_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
MESSAGES_EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
EXAMPLES = settings(deadline=None, max_examples=60)
PIECES = st.none() | st.integers(1, 4)
TOOLS = [{"type": "function", "name": "run", "parameters": {}, "strict": None}]
REQUEST = {"input": "q", "instructions": "be brief", "tools": TOOLS, "metadata": {"a": "b"}, "temperature": 0.5}


def assembled(dialect: Dialect, events: Any) -> Any:
    reader = assembler(dialect)
    for event in events:
        assert not reader.finished, "nothing may follow the terminal event"
        reader.add(event)
    assert reader.finished
    return reader.result()


def chunks_of(completion: Any, piece: int | None = None) -> list[Any]:
    return [json.loads(event.data) for event in stream_of("chat_completions", completion, piece=piece) if event.data != "[DONE]"]


def converted(converter: Any, chunks: list[Any]) -> list[SSEEvent]:
    return [event for chunk in chunks for event in converter.add(chunk)] + converter.finish()


def check_responses(events: list[SSEEvent]) -> None:
    """Every event is the SDK's, the numbers are in order, and so is what is added, grows and is done."""
    parsed = [RESPONSES_EVENT.validate_python(json.loads(event.data)) for event in events]
    assert [event.type for event in parsed] == [event.event for event in events]
    assert [event.sequence_number for event in parsed] == list(range(len(parsed)))
    assert [event.type for event in parsed[:2]] == ["response.created", "response.in_progress"]
    assert parsed[-1].type in ("response.completed", "response.incomplete")
    assert len({event.response.id for event in (parsed[0], parsed[1], parsed[-1])}) == 1
    items: dict[int, Any] = {}
    parts: dict[tuple[int, int], str | None] = {}
    done: dict[int, Any] = {}
    for event in parsed[2:-1]:
        kind = event.type
        if kind == "response.output_item.added":
            assert event.output_index == len(items)
            assert event.item.status == "in_progress"
            items[event.output_index] = event.item
            continue
        assert event.output_index in items.keys() - done.keys(), kind
        if kind == "response.output_item.done":
            assert event.item.id == items[event.output_index].id
            assert not any(text is not None for (index, _), text in parts.items() if index == event.output_index)
            done[event.output_index] = event.item
            continue
        place = (event.output_index, getattr(event, "content_index", 0))
        assert event.item_id == items[event.output_index].id
        if kind == "response.content_part.added":
            assert place not in parts
            parts[place] = ""
        elif kind.endswith(".delta"):
            assert event.delta
            parts[place] = (parts.get(place) or "") + event.delta
        elif kind == "response.content_part.done":
            parts[place] = None
        else:
            whole = getattr(event, "text", None) or getattr(event, "refusal", None) or getattr(event, "arguments", None) or ""
            assert whole == (parts.get(place) or ""), kind
            if kind == "response.function_call_arguments.done":
                parts[place] = None
    assert [item.to_dict() for _, item in sorted(done.items())][:-1] == [item.to_dict() for item in parsed[-1].response.output][:-1]
    Response.model_validate(json.loads(events[-1].data)["response"])


def check_messages(events: list[SSEEvent]) -> None:
    """Every event is the SDK's, and blocks follow one another."""
    parsed = [MESSAGES_EVENT.validate_python(json.loads(event.data)) for event in events]
    assert [event.type for event in parsed] == [event.event for event in events]
    assert parsed[0].type == "message_start"
    assert [event.type for event in parsed[-2:]] == ["message_delta", "message_stop"]
    index, block = -1, None
    for event in parsed[1:-2]:
        if event.type == "content_block_start":
            assert block is None
            index, block = index + 1, event.content_block
        elif event.type == "content_block_delta":
            names = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "tool_use"}
            assert block is not None
            assert names[event.delta.type] == block.type
        else:
            assert event.type == "content_block_stop"
            block = None
        assert event.index == index
    assert block is None


@EXAMPLES
@given(completions(), PIECES)
def test_a_streamed_completion_assembles_to_itself(completion: Any, piece: int | None) -> None:
    ChatCompletion.model_validate(completion)
    events = list(stream_of("chat_completions", completion, piece=piece))
    for event in events[:-1]:
        ChatCompletionChunk.model_validate(json.loads(event.data))
    assert assembled("chat_completions", events) == completion


@EXAMPLES
@given(completions(choices=3), PIECES)
def test_several_choices_too(completion: Any, piece: int | None) -> None:
    assert assembled("chat_completions", stream_of("chat_completions", completion, piece=piece)) == completion


def test_usage_of_a_streamed_completion_is_there_for_those_who_ask() -> None:
    completion = {"id": "c", "choices": [], "usage": {"total_tokens": 1}}
    assert "usage" not in "".join(event.data for event in stream_of("chat_completions", completion, include_usage=False))


@EXAMPLES
@given(completions(), PIECES, st.booleans())
def test_chat_to_responses_streamed_is_chat_to_responses(completion: Any, piece: int | None, logprobs: bool) -> None:
    request = REQUEST | ({"top_logprobs": 1} if logprobs else {})
    events = converted(ChatToResponses(request), chunks_of(completion, piece))
    check_responses(events)
    whole = chat_to_response(completion, request)
    if logprobs:  # which text a token belongs to is only known of a whole one
        strip(whole)
        events = [SSEEvent(event.event, json.dumps(strip(json.loads(event.data)))) for event in events]
    assert assembled("responses", events) == whole


def strip(value: Any) -> Any:
    """`value` without log probabilities, in place."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        strip(inner)
    if isinstance(value, dict):
        value.pop("logprobs", None)
    return value


@EXAMPLES
@given(completions(), PIECES, st.booleans())
def test_chat_to_messages_streamed_is_chat_to_messages(completion: Any, piece: int | None, eager: bool) -> None:
    tools = [{"name": name, "input_schema": {}, "eager_input_streaming": eager} for name in ("run", "get_weather")]
    events = converted(ChatToMessages({"tools": tools}), chunks_of(completion, piece))
    check_messages(events)
    message = chat_to_message(completion, {})
    Message.model_validate(message)
    assert assembled("messages", events) == message


@EXAMPLES
@given(completions(), PIECES)
def test_whole_replies_can_be_streamed_in_every_dialect(completion: Any, piece: int | None) -> None:
    response, message = chat_to_response(completion, REQUEST), chat_to_message(completion, {})
    events = list(stream_of("responses", response, piece=piece))
    check_responses(events)
    assert assembled("responses", events) == response
    events = list(stream_of("messages", message, piece=piece))
    check_messages(events)
    assert assembled("messages", events) == message


@EXAMPLES
@given(completions(), st.data())
def test_it_does_not_matter_where_the_bytes_are_cut(completion: Any, data: st.DataObject) -> None:
    sent = b"".join(encode(event) for event in stream_of("chat_completions", completion, piece=1))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=20)))
    parser, converter, events = SSEParser(), ChatToResponses(REQUEST), []
    for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        for event in parser.feed(sent[begin:end]):
            events += converter.finish() if event.data == "[DONE]" else converter.add(json.loads(event.data))
    assert assembled("responses", events) == chat_to_response(completion, REQUEST)


def test_a_stream_cut_at_every_byte() -> None:
    message = {"role": "assistant", "content": "é😀", "reasoning_content": "hm"}
    completion = {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    sent = b"".join(encode(event) for event in stream_of("chat_completions", completion))
    for cut in range(len(sent)):
        parser = SSEParser()
        assert assembled("chat_completions", parser.feed(sent[:cut]) + parser.feed(sent[cut:])) == completion


def delta(**fields: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, "delta": fields}]}


def call(index: int, arguments: str, **fields: Any) -> dict[str, Any]:
    return delta(
        tool_calls=[
            {"index": index, "function": {"arguments": arguments, **({"name": fields.pop("name")} if "name" in fields else {})}, **fields}
        ]
    )


INTERLEAVED = [
    delta(role="assistant", content=""),
    delta(content="a"),
    call(0, "", id="x", name="run"),
    call(1, '{"b"', id="y", name="run"),
    call(0, '{"a": '),
    delta(content="late"),
    call(1, ": 2}"),
    call(0, "1}"),
    {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
]


@pytest.mark.parametrize("eager", [True, False])
def test_calls_and_text_written_side_by_side_are_kept_apart(eager: bool) -> None:
    events = converted(ChatToResponses(REQUEST), INTERLEAVED)
    check_responses(events)
    output = assembled("responses", events)["output"]
    assert [item.get("arguments") or item["content"][0]["text"] for item in output] == ["a", '{"a": 1}', '{"b": 2}', "late"]
    tools = [{"name": "run", "eager_input_streaming": eager}]
    events = converted(ChatToMessages({"tools": tools}), INTERLEAVED)
    check_messages(events)
    content = assembled("messages", events)["content"]
    assert [block.get("input") or block["text"] for block in content] == ["a", {"a": 1}, {"b": 2}, "late"]


def test_text_goes_on_at_once_and_eager_arguments_too() -> None:
    responses, messages = ChatToResponses({}), ChatToMessages({"tools": [{"name": "run", "eager_input_streaming": True}]})
    for converter in (responses, messages):
        assert "one" in converter.add(delta(content="one"))[-1].data
        (event,) = converter.add(delta(content="two"))
        assert '"two"' in event.data
        converter.add(call(0, "", id="x", name="run"))
        (event,) = converter.add(call(0, '{"half'))
        assert "half" in event.data


def test_a_call_without_an_id_gets_one() -> None:
    chunks = [call(0, "{}", name="run"), call(1, "{}", name="run")]
    output = assembled("responses", converted(ChatToResponses({}), chunks))["output"]
    assert [item["call_id"] for item in output] == ["call_1_0", "call_1_1"]
    assert [block["id"] for block in assembled("messages", converted(ChatToMessages({}), chunks))["content"]] == ["call_1_0", "call_1_1"]


def test_a_stream_that_breaks_says_so_and_holds_what_there_was() -> None:
    responses = ChatToResponses({})
    events = responses.add(delta(reasoning="hm")) + responses.add(delta(content="half")) + responses.add(call(0, '{"a', id="x", name="run"))
    events += responses.fail("the engine died", "server_error")
    parsed = [RESPONSES_EVENT.validate_python(json.loads(event.data)) for event in events]
    assert [event.sequence_number for event in parsed] == list(range(len(parsed)))
    assert [event.type for event in parsed[-2:]] == ["error", "response.failed"]
    failed = parsed[-1].response
    assert (failed.status, failed.error.code, failed.error.message) == ("failed", "server_error", "the engine died")
    assert [item.status for item in failed.output] == ["completed", "completed", "incomplete"]
    assert responses.add(delta(content="x")) == responses.finish() == responses.fail("again") == []
    messages = ChatToMessages({})
    messages.add(delta(content="half"))
    (event,) = messages.fail("the engine died", None)
    assert event == SSEEvent("error", '{"type":"error","error":{"type":"api_error","message":"the engine died"}}')
    assert messages.add(delta(content="x")) == messages.finish() == messages.fail("again") == []


@pytest.mark.parametrize("make", [ChatToResponses, ChatToMessages])
def test_an_error_among_the_chunks_ends_the_stream(make: Any) -> None:
    converter = make({})
    converter.add(delta(content="a"))
    events = converter.add({"error": {"message": "out of memory", "code": 500, "type": "x"}})
    assert "out of memory" in events[-1].data
    assert converter.finish() == []


def test_nothing_at_all_is_a_reply_that_is_not_complete() -> None:
    events = converted(ChatToResponses({}), [])
    check_responses(events)
    response = assembled("responses", events)
    assert (response["status"], response["incomplete_details"], response["output"][0]["content"][0]["text"]) == (
        "incomplete",
        {"reason": None},
        "",
    )
    message = assembled("messages", converted(ChatToMessages({}), []))
    assert (message["content"], message["stop_reason"]) == ([], None)
