"""Lines of a capture file: each thing is said once, and what is read back is what was written."""

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gym.models.calls import CallNotes, Dialect, ModelCall, TokenIds
from gym.models.capture.folding import BLOCK
from gym.models.capture.records import Writer, read_calls, read_capture

TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("run", "read")]


def made(index: int, request: dict[str, Any], response: dict[str, Any] | None = None, tokens: TokenIds | None = None) -> ModelCall:
    call = ModelCall(f"id{index}", index, "responses", False, request, response, started_at=1.5 + index)
    if response is not None:
        call.status, call.complete, call.latency_ms = 200, True, 2.5
    call.notes = CallNotes(200, 1, "http://up", tokens) if tokens is not None else CallNotes()
    return call


def begin(writer: Writer, call: ModelCall) -> bytes:
    line, chains = writer.begin(call, token_capture=False)
    writer.wrote_begin(call, chains)
    return line


def end(writer: Writer, call: ModelCall) -> bytes:
    line, chain = writer.end(call)
    writer.wrote_end(call, chain)
    return line


def written(calls: list[ModelCall], writer: Writer | None = None) -> list[bytes]:
    writer = writer or Writer()
    return [line for call in calls for line in (begin(writer, call), end(writer, call))]


def conversation(turns: int, text: str = "x" * 200) -> list[ModelCall]:
    """The calls of a tool loop: each sends all that was said before."""
    items: list[Any] = [{"role": "user", "content": text}]
    calls: list[ModelCall] = []
    for turn in range(turns):
        request = {"model": "m", "input": list(items), "tools": TOOLS, "instructions": text * 3, "temperature": 0.5}
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"{turn}{text}"}]}
        calls.append(made(turn, request, {"id": f"r{turn}", "output": [said], "tools": TOOLS, "instructions": text * 3}))
        items += [said, {"type": "function_call_output", "call_id": f"c{turn}", "output": f"{text}{turn}"}]
    return calls


def test_a_conversation_is_read_back_whole() -> None:
    calls = conversation(6)
    assert read_calls(written(calls)) == calls


def test_storage_is_linear_in_the_length_of_a_conversation() -> None:
    sizes = [len(line) for line in written(conversation(40))]
    plain = [len(orjson.dumps(call.request)) for call in conversation(40)]
    assert max(sizes[2:]) < 1200  # no line grows
    assert sum(sizes) < sum(plain) / 6


def test_a_rewritten_history_and_a_branch_are_read_back() -> None:
    first, second, third = conversation(3)
    edited = made(3, {**third.request, "input": [*third.request["input"][:2], {"role": "user", "content": "other"}]}, {"id": "r3"})
    branch = made(4, {**second.request, "tools": TOOLS[:1], "instructions": "y" * 300}, {"id": "r4"})
    shorter = made(5, {"model": "m", "input": first.request["input"][:1]}, {"id": "r5"})
    text = made(6, {"model": "m", "input": "plain"}, {"id": "r6"})
    empty = made(7, {"model": "m", "input": [], "tools": []}, {"id": "r7"})
    calls = [first, second, third, edited, branch, shorter, text, empty]
    assert read_calls(written(calls)) == calls


def test_calls_that_run_side_by_side() -> None:
    first, second, third = conversation(3)
    writer = Writer()
    lines = [begin(writer, call) for call in (first, third, second)]
    lines += [end(writer, call) for call in (second, first, third)]
    assert read_calls(lines) == [first, second, third]


def test_a_line_that_was_not_written_is_never_referred_to() -> None:
    first, second, third = conversation(3)
    writer = Writer()
    writer.begin(first, token_capture=False)  # the disk was full: nobody says that it stands
    assert read_calls(written([second, third], writer)) == [second, third]


def test_a_writer_that_goes_on_where_another_left_off() -> None:
    calls = conversation(5)
    lines = written(calls[:3])
    successor = Writer()
    for call in read_calls(lines):
        successor.learn(call)
    more = written(calls[3:], successor)
    assert read_calls([*lines, *more]) == calls
    assert max(map(len, more)) < 1200


def test_tokens_are_said_once() -> None:
    prompt, calls = list(range(1000)), list[ModelCall]()
    for index in range(10):
        tokens = TokenIds(list(prompt), [index] * 50, [-0.25] * 50)
        calls.append(made(index, {"input": str(index)}, {"id": "r"}, tokens))
        prompt += [*tokens.generation, *range(70)]
    lines = written(calls)
    assert read_calls(lines) == calls
    # A prompt is said up to a whole block, so each line has less than a block more than what is new in it.
    assert max(len(orjson.loads(line)["tokens"]["prompt"]) for line in lines[3::2]) < 70 + 50 + BLOCK


def test_tokens_that_part_within_a_block_are_read_back() -> None:
    base = list(range(BLOCK * 3))
    changed = [*base[: BLOCK + 5], 9_999, *base[BLOCK + 6 :]]
    calls = [made(index, {"input": "q"}, {"id": "r"}, TokenIds(ids, [7], [-1.0])) for index, ids in enumerate((base, changed, base, [1]))]
    assert read_calls(written(calls)) == calls


SMALL = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3)
WORTH = st.sampled_from(["x" * 130, "y" * 130, {"k": 1}, {"k": [2]}])
ITEMS = st.lists(st.sampled_from(["a", "b", {"c": 1}, {"d": "e" * 20}]), max_size=6)
VALUES = SMALL | st.lists(SMALL, max_size=3) | WORTH | ITEMS
BODIES = st.dictionaries(st.sampled_from(["input", "messages", "tools", "instructions", "system", "n"]), VALUES, max_size=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(BODIES, st.none() | BODIES), max_size=6))
def test_whatever_is_sent_is_read_back(bodies: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> None:
    calls = [made(index, request, response) for index, (request, response) in enumerate(bodies)]
    assert read_calls(written(calls)) == calls


@pytest.mark.parametrize("kept", [0, 1, 9, 40])
def test_a_torn_last_line_costs_itself_alone(kept: int) -> None:
    calls = conversation(3)
    *lines, last = written(calls)
    capture = read_capture([*lines, last[:kept]])
    assert capture.calls[:2] == calls[:2]
    assert [call.index for call in capture.unfinished] == [2]
    assert capture.unreadable == (kept > 0)


def test_lines_that_are_none_are_counted_and_cost_what_refers_to_them() -> None:
    calls = conversation(3)
    lines = written(calls)
    capture = read_capture([b"[]", b"{}", b"\xff", b'{"begin": 0}', b'{"end": 99}', *lines[2:], b"null", b"7"])
    # Call 0 is missing, and calls 1 and 2 say their first items by it.
    assert (capture.calls, capture.unreadable) == ([], 11)


@pytest.mark.parametrize("dialect", ["responses", "chat_completions", "messages"])
def test_what_is_known_of_a_call_is_kept(dialect: Dialect) -> None:
    call = made(0, {"messages": [], "input": "q", "stream": True}, {"id": "r"})
    call.dialect, call.streamed = dialect, True
    call.status, call.complete, call.finish_reason = 200, False, "length"
    call.error_category, call.error, call.first_token_ms = "stream_truncated", "it broke", 3.25
    call.input_tokens, call.output_tokens, call.reasoning_tokens, call.cached_tokens = 1, 2, 3, 0
    call.notes = CallNotes(503, 4, "http://up")
    assert read_calls(written([call])) == [call]


def test_control_lines() -> None:
    capture = read_capture([b'{"open": "s1"}', b'{"refused": "max_calls_per_rollout"}', b'{"closed": 1.0}', b""])
    assert (capture.session, capture.refused, capture.closed, capture.calls, capture.unreadable) == (
        "s1", "max_calls_per_rollout", True, [], 0
    )  # fmt: skip
