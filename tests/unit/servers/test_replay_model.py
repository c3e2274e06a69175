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
            for line, chains, wrote in ((*writer.begin(made, False), writer.wrote_begin),):
                lines.append(line)
                wrote(made, chains)
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
    busy = {"error": {"message": "busy", "type": "agent_request_failed", "terminal": False}}
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
    begin = "the request differs from call 0 of r1.jsonl at "
    expected = 'input[0].content: recorded "please add 3 then add 4 and say so", got "please add 3 then add 5 and say so"'
    assert message == begin + expected
    message = refusal(await ask(rig, asked("x")))[2]
    assert message.startswith(begin), "call 1 may not come before call 0"
    assert message.endswith('temperature: recorded 0.5, got nothing')
    assert (await texts(rig, body, asked("x"))) == ["one", "two"], "a refusal shifts nothing"
    assert refusal(await ask(rig, body, dialect="chat_completions"))[2].endswith('dialect: recorded "responses", got "chat_completions"')
