"""`replay_model`: what was recorded is played back, whole or streamed or broken; whatever differs is refused, and shown."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from gym.client import Reply
from gym.models.calls import CallNotes, ModelCall, TokenIds
from gym.models.capture.folder import file_name
from gym.models.capture.records import Writer, read_calls
from gym.models.dialects.assemble import assembler
from gym.models.dialects.errors import CONTEXT_OVERFLOW, error_body
from gym.models.sse import SSEParser
from responses_api_models.replay_model.app import ReplayModel
from responses_api_models.replay_model.config import Config
from responses_api_models.replay_model.differences import differences, told
from responses_api_models.scripted_model.app import ScriptedModel
from responses_api_models.scripted_model.config import Config as ScriptedConfig
from tests.unit.servers.conftest import Rig

ROUTES = {"responses": "/v1/responses", "chat_completions": "/v1/chat/completions", "messages": "/v1/messages"}
Save = Callable[..., Path]


def asked(*said: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": text} for text in said], **fields}


def answer(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": f"msg_{text}", "role": "assistant", "status": "completed", "content": [part]}
    return {"id": f"resp_{text}", "object": "response", "status": "completed", "output": [item], "usage": {"input_tokens": 3}}


def call(index: int, request: dict[str, Any], response: dict[str, Any] | None, **fields: Any) -> ModelCall:
    """A recorded call that began in second `index` and took half of one."""
    given = {"started_at": float(index), "latency_ms": 500.0, "status": 200, "complete": True, **fields}
    return ModelCall(f"c{index}", index, given.pop("dialect", "responses"), given.pop("streamed", False), request, response, **given)


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes captures into one folder, and returns it."""

    def write(*calls: ModelCall, key: str = "r1", then: bytes = b"") -> Path:
        folder = tmp_path / "out_model_calls"
        folder.mkdir(exist_ok=True)
        writer, lines = Writer(), list[bytes]()
        for made in calls:
            line, chains = writer.begin(made, False)
            lines.append(line)
            writer.wrote_begin(made, chains)
            if made.status is not None:
                line, chain = writer.end(made)
                lines.append(line)
                writer.wrote_end(made, chain)
        (folder / file_name(key)).write_bytes(b"".join(lines) + then)
        return folder

    return write


async def replay(rig: Rig, captures: Path) -> Any:
    return await rig.add("model", ReplayModel, Config(captures=captures))


async def ask(rig: Rig, body: dict[str, Any], key: str = "r1", dialect: str = "responses") -> Reply:
    return await rig.call("model", f"/ng-rollout/{key}{ROUTES[dialect]}", body)


async def texts(rig: Rig, *bodies: dict[str, Any]) -> list[str]:
    return [said(await ask(rig, body)) for body in bodies]


def said(reply: Reply) -> str:
    body = reply.json()
    return body["error"]["message"] if reply.status >= 400 else body["output"][0]["content"][0]["text"]


def refusal(reply: Reply) -> tuple[int, str, str]:
    """Status, kind and message of a terminal error."""
    error = reply.json()["error"]
    assert (error["terminal"], reply.headers["x-should-retry"], "\n" in error["message"]) == (True, "false", False)
    return reply.status, error["type"], error["message"]


async def test_calls_are_played_in_order_and_a_repeat_shifts_nothing(rig: Rig, save: Save) -> None:
    first, second = asked("a"), asked("a", "b")
    await replay(rig, save(call(0, first, answer("one")), call(1, second, answer("two"))))
    assert await texts(rig, first, first, second, first, second) == ["one", "one", "two", "one", "two"]
    assert (await ask(rig, first)).json() == answer("one")


async def test_equal_requests_get_their_replies_in_turn_and_then_the_last(rig: Rig, save: Save) -> None:
    body = asked("a")
    busy = {"error": {"message": "busy", "type": "agent_request_failed", "param": None, "code": None, "terminal": False}}
    await replay(rig, save(call(0, body, busy, status=429), call(1, body, answer("one")), call(2, body, answer("two"))))
    replies = [await ask(rig, body) for _ in range(4)]
    assert [reply.status for reply in replies] == [429, 200, 200, 200]
    assert (replies[0].json(), "x-should-retry" in replies[0].headers) == (busy, False)
    assert [said(reply) for reply in replies[1:]] == ["one", "two", "two"]


async def test_a_difference_is_shown_where_it_is(rig: Rig, save: Save) -> None:
    body = asked("please add 3 then add 4 and say so", temperature=0.5)
    await replay(rig, save(call(0, body, answer("one")), call(1, asked("x"), answer("two"))))
    status, kind, message = refusal(await ask(rig, asked("please add 3 then add 5 and say so", temperature=0.5)))
    assert (status, kind) == (409, "replay_model:request_differs")
    begin = "the request differs from call 0 of r1.jsonl: "
    expected = 'input[0].content: recorded "please add 3 then add 4 and say so", got "please add 3 then add 5 and say so"'
    assert message == begin + expected
    message = refusal(await ask(rig, asked("x")))[2]
    assert message.startswith(begin), "call 1 may not come before call 0"
    assert message.endswith("temperature: recorded 0.5, got nothing")
    message = refusal(await ask(rig, body, dialect="chat_completions"))[2]
    assert message == f'{begin}dialect: recorded "responses", got "chat_completions"'
    assert (await texts(rig, body, asked("x"))) == ["one", "two"], "a refusal shifts nothing"


def test_differences_are_short_and_on_one_line() -> None:
    long = "x" * 5_000
    recorded = {"a": long + "\n1" + long, "b": [1, {"c d": 2}], "n": 1}
    got = {"a": long + "\n2" + long, "b": [1, {"c d": 3}, {"e": long}], "n": 2, "z": None}
    found = list(differences(recorded, got))
    assert [difference.path for difference in found] == ["a", 'b[1]["c d"]', "b[2]", "n", "z"]
    line = told(found)
    assert line.startswith('a: recorded "…xxxxxxxxxxxxxxxxxxxxxxx\\n1xxx')
    assert ', got "…xxxxxxxxxxxxxxxxxxxxxxx\\n2xxx' in line
    assert ("\n" in line, len(line) < 400, line.endswith("; and 3 more")) == (False, True, True)
    assert str(found[2]).startswith('b[2]: recorded nothing, got {"e":"xxx')
    assert len(str(found[2])) < 150


@pytest.mark.parametrize(
    ("dialect", "recorded", "same"),
    [
        ("responses", {"model": "m", "input": "a"}, {"model": "other", "input": "a", "prompt_cache_key": "k"}),
        ("responses", {"input": [{"id": "msg_1", "role": "user"}]}, {"input": [{"id": "msg_2", "role": "user"}]}),
        ("chat_completions", {"messages": [], "prompt_cache_key": "one"}, {"messages": [], "prompt_cache_key": "two", "model": "m"}),
        ("messages", {"messages": [], "metadata": {"user_id": "one"}}, {"messages": [], "metadata": {"user_id": "two"}}),
    ],
)
async def test_what_is_minted_anew_may_differ(rig: Rig, save: Save, dialect: str, recorded: Any, same: Any) -> None:
    await replay(rig, save(call(0, recorded, {"id": "played"}, dialect=dialect)))
    assert (await ask(rig, same, dialect=dialect)).json() == {"id": "played"}


@pytest.mark.parametrize(
    ("recorded", "got", "shown"),
    [
        ({"input": [{"id": "msg_one"}]}, {"input": [{"id": "msg_1"}]}, 'input[0].id: recorded "msg_one", got "<an id of'),
        ({"input": [{"id": "x", "role": "user"}]}, {"input": [{"role": "user"}]}, "got nothing"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, {"input": [{"type": "item_reference", "id": "y"}]}, 'recorded "x", got "y"'),
        ({"input": "a", "metadata": {"user_id": "x"}}, {"input": "a", "metadata": {"user_id": "y"}}, "metadata.user_id: recorded"),
        ({"input": [{"call_id": "x"}]}, {"input": [{"call_id": "y"}]}, "input[0].call_id: recorded"),
    ],
)
async def test_no_other_id_may_differ(rig: Rig, save: Save, recorded: Any, got: Any, shown: str) -> None:
    await replay(rig, save(call(0, recorded, answer("one"))))
    assert shown in refusal(await ask(rig, got))[2]


async def test_calls_side_by_side_come_in_any_order(rig: Rig, save: Save) -> None:
    title = call(1, asked("title"), answer("title"), started_at=0.1)
    await replay(rig, save(call(0, asked("a"), answer("one")), title, call(2, asked("a", "b"), answer("two"))))
    assert await texts(rig, asked("title"), asked("a"), asked("title"), asked("a", "b")) == ["title", "one", "title", "two"]
    assert "the agent makes more calls than r1.jsonl holds, which are 3" in refusal(await ask(rig, asked("c")))[2]


async def test_a_difference_from_calls_side_by_side_is_from_the_nearest(rig: Rig, save: Save) -> None:
    side = call(1, asked("a", "b", "c"), answer("two"), started_at=0.1)
    await replay(rig, save(call(0, asked("title", temperature=1, top_p=1), answer("one")), side))
    message = refusal(await ask(rig, asked("a", "b", "d")))[2]
    assert message.endswith('call 1 of r1.jsonl: input[2].content: recorded "c", got "d"')


async def test_every_attempt_plays_the_last_recorded_one_from_its_first_call(rig: Rig, save: Save) -> None:
    save(call(0, asked("a"), answer("first try")))
    save(call(0, asked("a"), answer("third try")), key="r1-a2")
    await replay(rig, save(call(0, asked("a"), answer("other")), key="r2"))
    replies = [said(await ask(rig, asked("a"), key)) for key in ("r1", "r1-a1", "r1-a7", "r2", "r2-a1")]
    assert replies == ["third try", "third try", "third try", "other", "other"]


async def test_one_file_is_one_rollout(rig: Rig, save: Save) -> None:
    folder = save(call(0, asked("a"), answer("first try")))
    save(call(0, asked("a"), answer("second try")), key="r1-a1")
    await replay(rig, folder / "r1.jsonl")
    assert said(await ask(rig, asked("a"))) == "first try"
    _, kind, message = refusal(await ask(rig, asked("a"), "r2"))
    assert kind == "replay_model:unknown_rollout"
    assert message.startswith(f"there is no capture of rollout r2 in {folder / 'r1.jsonl'}: ")


async def test_a_rollout_with_a_long_name_is_found(rig: Rig, save: Save) -> None:
    key = "k" * 260
    await replay(rig, save(call(0, asked("a"), answer("one")), key=f"{key}-a3"))
    assert said(await ask(rig, asked("a"), key)) == "one"


async def test_a_rollout_that_is_opened_again_begins_anew_and_its_report_counts(rig: Rig, save: Save) -> None:
    await replay(rig, save(call(0, asked("a"), answer("one")), call(1, asked("a", "b"), answer("two"))))
    for session, bodies in (("s1", [asked("a"), asked("a", "b")]), ("s2", [asked("a")]), ("s3", [])):
        assert (await rig.call("model", "/ng-rollout/r1/v1/capture/open", {"session_id": session})).status == 200
        assert await texts(rig, *bodies) == ["one", "two"][: len(bodies)]
        report = (await rig.call("model", "/ng-rollout/r1/v1/capture/close", {"session_id": session})).json()
        assert report.get("replay") == ({"calls_recorded": 2, "calls_played": len(bodies)} if bodies else None)


async def test_a_session_that_nobody_closed_is_begun_anew_with_the_next(rig: Rig, save: Save) -> None:
    await replay(rig, save(call(0, asked("a"), answer("one")), call(1, asked("a", "b"), answer("two"))))
    for session in ("s1", "s2"):
        await rig.call("model", "/ng-rollout/r1/v1/capture/open", {"session_id": session})
        assert await texts(rig, asked("a"), asked("a", "b")) == ["one", "two"]


async def test_calls_without_a_reply_are_passed_over_where_they_were_repeated(rig: Rig, save: Save) -> None:
    gone = {"status": 499, "complete": False, "error_category": "cancelled", "error": "the client went away"}
    lost = call(1, asked("b"), None, status=None, complete=False)
    again = call(2, asked("b"), answer("two"))
    await replay(rig, save(call(0, asked("a"), answer("one")), lost, again, call(3, asked("c"), None, **gone)))
    assert await texts(rig, asked("a"), asked("b")) == ["one", "two"]
    assert refusal(await ask(rig, asked("c")))[2] == "call 3 of r1.jsonl has no reply to play: cancelled: the client went away"


async def test_a_budget_that_was_used_up_is_so_again(rig: Rig, save: Save) -> None:
    refused = b'{"refused":"max_calls_per_rollout"}\n'
    await replay(rig, save(call(0, asked("a"), answer("one")), then=refused))
    assert await texts(rig, asked("a")) == ["one"]
    assert refusal(await ask(rig, asked("a", "b")))[:2] == (400, "agent_budget_exhausted")


async def test_token_ids_are_those_that_were_recorded(rig: Rig, save: Save) -> None:
    tokens = TokenIds([1, 2], [3], [-0.5])
    await replay(rig, save(call(0, asked("a"), answer("one"), notes=CallNotes(tokens=tokens))))
    route = "/ng-rollout/r1/training-token-capture/v1"
    assert (await rig.call("model", f"{route}/responses", asked("a"))).status == 200
    report = (await rig.call("model", f"{route}/capture/close", {"response": answer("one")})).json()
    assert report["training"]["masked_reason"] is None
    assert report["training"]["items"][-1]["generation_token_ids"] == [3]


@pytest.mark.parametrize("dialect", ROUTES)
async def test_a_typed_error_keeps_its_code(rig: Rig, save: Save, dialect: Any) -> None:
    body = error_body(dialect, 400, "it is too long", CONTEXT_OVERFLOW, "input")
    body["error"] |= {"type": "agent_request_failed", "terminal": True}
    await replay(rig, save(call(0, asked("a"), body, status=400, dialect=dialect)))
    reply = await ask(rig, asked("a"), dialect=dialect)
    assert (reply.status, reply.json()) == (400, body)


SCRIPT = [
    {"say": "one", "think": "hm", "piece": 1},
    {"calls": [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": "{bad"}]},
    {"status": 429},
    {"say": "broken in the middle", "piece": 3, "breaks": "connection"},
    {"say": "wrong in the middle", "piece": 3, "breaks": "error"},
]


def seen(reply: Reply, dialect: Any) -> Any:
    """What a client understands of a reply, streamed or not."""
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        return reply.status, reply.json()
    reading = assembler(dialect)
    for event in SSEParser().feed(reply.body):
        reading.add(event)
    return reply.status, reading.result(), reading.finished, (reading.error or {}).get("message")


@pytest.mark.parametrize("dialect", ROUTES)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_client_got_it_gets_again(rig: Rig, tmp_path: Path, dialect: str, stream: bool) -> None:
    """A scripted model answers, in each way there is; its own records are played to the same client."""
    bodies = list[dict[str, Any]]()
    for step in SCRIPT:
        message = {"role": "user", "content": "go"}
        body: dict[str, Any] = {"metadata": {"script": json.dumps([step])}, "stream": stream}
        body["input" if dialect == "responses" else "messages"] = [message]
        bodies.append(body | ({"stream_options": {"include_usage": True}} if dialect == "chat_completions" and stream else {}))
    await rig.add("model", ScriptedModel, ScriptedConfig())
    first = [await outcome(rig, body, dialect) for body in bodies]
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "r1.jsonl").write_bytes((await rig.call("model", "/ng-rollout/r1/v1/capture")).body)
    await replay(rig, kept)
    await rig.call("model", "/ng-rollout/r1/v1/capture/open", {"session_id": "again"})
    second = [await outcome(rig, body, dialect) for body in bodies]
    assert second == first
    [recorded, played] = [read_calls(path) for path in (kept / "r1.jsonl", next((tmp_path / "captures").rglob("r1.jsonl")))]
    facts = [
        [(one.status, one.complete, one.error_category, one.finish_reason, one.output_tokens, one.streamed, one.response) for one in calls]
        for calls in (recorded, played)
    ]
    assert facts[0] == facts[1]


async def outcome(rig: Rig, body: dict[str, Any], dialect: str) -> Any:
    try:
        return seen(await ask(rig, body, dialect=dialect), dialect)
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("damage", [b"garbage\n", b'{"end":7}\n', b'{"begin":1,"id":"x","dialect":"responses","at":1,"re'])
async def test_a_capture_that_cannot_be_read_is_not_guessed_at(rig: Rig, save: Save, damage: bytes) -> None:
    await replay(rig, save(call(0, asked("a"), answer("one")), then=damage))
    status, kind, message = refusal(await ask(rig, asked("a")))
    assert (status, kind) == (409, "replay_model:capture_unreadable")
    assert message.endswith("r1.jsonl cannot be played: 1 of its lines are no records, or lack what they refer to")


async def test_a_capture_that_is_gone_is_said_to_be(rig: Rig, save: Save) -> None:
    folder = save(call(0, asked("a"), answer("one")))
    await replay(rig, folder)
    (folder / "r1.jsonl").unlink()
    assert refusal(await ask(rig, asked("a")))[2].endswith("r1.jsonl cannot be played: No such file or directory")


async def test_calls_of_no_rollout_are_refused(rig: Rig, save: Save) -> None:
    await replay(rig, save(call(0, asked("a"), answer("one"))))
    assert refusal(await rig.call("model", "/v1/responses", asked("a")))[1] == "replay_model:unknown_rollout"
    assert (await rig.call("model", "/v1/models")).json()["data"][0]["id"] == "replay"


async def test_captures_that_are_none_are_told_at_the_start(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    rows = tmp_path / "out.jsonl"
    rows.write_bytes(orjson.dumps({"reward": 1}))
    expected = {"absent": "does not exist", "empty": "holds no *.jsonl", "out.jsonl": "holds no model calls"}
    for name, reason in expected.items():
        with pytest.raises(ValueError, match=rf"^captures: .*{name}") as caught:
            await replay(rig, tmp_path / name)
        assert reason in str(caught.value)


async def test_many_rollouts_at_once_keep_apart(rig: Rig, save: Save) -> None:
    keys = [f"r{number}" for number in range(20)]
    for key in keys:
        folder = save(*(call(i, asked(*map(str, range(i + 1))), answer(f"{key}.{i}")) for i in range(3)), key=key)
    await replay(rig, folder)
    for i, key in itertools.product(range(3), keys):
        assert said(await ask(rig, asked(*map(str, range(i + 1))), key)) == f"{key}.{i}"
