"""A resources server on the wire: seed, verify and close, and every way to get them wrong."""

import asyncio
from typing import Any

import orjson
import pytest

from gym.protocol.resources import BaseVerifyRequest
from gym.servers import Masked, ResourcesServer, ResourcesSession, Scored, Verdict, tool
from tests.unit.servers.conftest import EPISODE, TASK, VERIFY, Rig, seed_body


class Box:
    """What a session holds."""

    def __init__(self) -> None:
        self.verified = 0


class Server(ResourcesServer[Box]):
    """Counts what is done to it."""

    release_fails = False
    seed_gate: asyncio.Event | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seeded: list[dict[str, Any]] = []
        self.released: list[str] = []
        self.verifications = 0

    async def seed(self, session: ResourcesSession[Box], task_data: dict[str, Any]) -> None:
        async def release() -> None:
            if self.release_fails:
                raise OSError("the sandbox does not stop")
            self.released.append(session.id)

        session.on_release("its sandbox", release)
        self.seeded.append(task_data)
        if self.seed_gate is not None:
            await self.seed_gate.wait()
        if task_data.get("seed") == "breaks":
            raise RuntimeError("broken task, api_key=sk-abcdefghijklmnop")
        session.state = Box()

    @tool
    async def echo(self, session: ResourcesSession[Box]) -> Any:
        return {"id": session.id}

    @tool
    async def odd(self, session: ResourcesSession[Box]) -> Any:
        return {"a set": {1}}

    @tool
    async def hang(self, session: ResourcesSession[Box]) -> Any:
        await asyncio.get_running_loop().create_future()

    async def verify(self, session: ResourcesSession[Box] | None, request: BaseVerifyRequest) -> Verdict:
        self.verifications += 1
        await asyncio.sleep(0.005)
        if request.task_data().get("verify") == "breaks":
            raise RuntimeError("the verifier broke")
        if session is None:
            return Masked("session_lost", "no session")
        return Scored(1.0, {"number": self.verifications})

    def lost_fields(self, request: BaseVerifyRequest) -> dict[str, Any]:
        return {"own": "field"}


@pytest.fixture
async def server(rig: Rig) -> Server:
    return await rig.add("box", Server)


async def seed(rig: Rig, session_id: str = "s1", **data: Any) -> dict[str, str]:
    reply = await rig.call("box", "/seed_session", seed_body(session_id, **data))
    assert reply.status == 200, reply.body
    assert reply.json() == {"resources_session_id": session_id}
    return dict(reply.cookies)


def close_body(session_id: str = "s1", **episode: Any) -> dict[str, Any]:
    return {"resources_session_id": session_id, "episode_id": {**EPISODE, **episode}}


async def test_a_typed_seed_is_idempotent_and_another_body_refused(rig: Rig, server: Server) -> None:
    first, second = await asyncio.gather(*(rig.call("box", "/seed_session", seed_body(x=1)) for _ in range(2)))
    assert first.json() == second.json() == {"resources_session_id": "s1"}
    assert first.cookies == second.cookies
    assert server.seeded == [{"x": 1}]
    assert (await rig.call("box", "/seed_session", seed_body(x=2))).status == 409


@pytest.mark.parametrize("body", [b"", b"{}", b'{"instance_id": "i", "expected": 3}'])
async def test_the_old_seed_makes_a_session_that_only_its_cookie_knows(rig: Rig, server: Server, body: bytes) -> None:
    replies = [await rig.transport.send("POST", "http://box.in-process/seed_session", rig.credentials.headers(), body) for _ in range(2)]
    assert [reply.json() for reply in replies] == [{}, {}]
    told = [(await rig.call("box", "/echo", {}, cookies=dict(reply.cookies))).json()["id"] for reply in replies]
    assert told[0] != told[1]
    verified = await rig.call("box", "/verify", VERIFY, cookies=dict(replies[0].cookies))
    assert verified.json()["reward"] == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"resources_session_id": ""},
        {"resources_session_id": 3},
        {"episode_id": {"rollout_id": "r-a1"}},
        {"episode_id": {"rollout_id": "r", "attempt": -1}},
        {"episode_id": {"rollout_id": "r", "extra": 1}},
        {"task_id": {"taskset": "t"}},
        {"task_data": []},
    ],
)
async def test_a_typed_seed_with_a_wrong_field_is_a_422_that_names_it(rig: Rig, server: Server, change: dict[str, Any]) -> None:
    reply = await rig.call("box", "/seed_session", {**seed_body(), **change})
    error = reply.json()["error"]
    assert (reply.status, error["type"], error["terminal"]) == (422, "protocol_violation", True)
    assert next(iter(change)) in error["message"]
    assert len(server.sessions) == 0


async def test_a_close_is_idempotent_and_fences_an_unknown_id(rig: Rig, server: Server) -> None:
    await seed(rig)
    for _ in range(2):
        reply = await rig.call("box", "/close_session", close_body())
        assert (reply.status, reply.json()) == (200, {"resources_session_id": "s1"})
    assert server.released == ["s1"]
    assert (await rig.call("box", "/seed_session", seed_body())).status == 409
    assert (await rig.call("box", "/close_session", close_body("unknown"))).status == 200
    late = await rig.call("box", "/seed_session", seed_body("unknown"))
    assert late.status == 409
    assert len(server.seeded) == 1
    assert (await rig.call("box", "/close_session", {**close_body(), "extra": 1})).status == 422


async def test_a_close_of_another_episode_is_refused(rig: Rig, server: Server) -> None:
    await seed(rig)
    assert (await rig.call("box", "/close_session", close_body(attempt=1))).status == 409
    assert server.released == []


async def test_a_release_that_fails_is_an_error_and_not_a_close(rig: Rig, server: Server) -> None:
    await seed(rig)
    server.release_fails = True
    reply = await rig.call("box", "/close_session", close_body())
    assert (reply.status, reply.json()["error"]["type"], reply.json()["error"]["terminal"]) == (500, "session_release_failed", False)
    assert server.status() == {"sessions": 1}
    server.release_fails = False
    assert (await rig.call("box", "/close_session", close_body())).status == 200
    assert server.status() == {"sessions": 0}


async def test_a_close_during_a_slow_seed_wins(rig: Rig, server: Server) -> None:
    server.seed_gate = asyncio.Event()
    seeding = asyncio.ensure_future(rig.call("box", "/seed_session", seed_body()))
    await asyncio.sleep(0.01)
    assert (await rig.call("box", "/close_session", close_body())).status == 200
    assert (await seeding).status == 409
    assert (server.released, len(server.sessions)) == (["s1"], 0)


async def test_an_identical_verify_is_answered_from_the_first_also_after_close(rig: Rig, server: Server) -> None:
    cookies = await seed(rig)
    body = {**VERIFY, "own": {"kept": [1, None]}}
    replies = await asyncio.gather(*(rig.call("box", "/verify", body, cookies=cookies) for _ in range(3)))
    await rig.call("box", "/close_session", close_body())
    replies.append(await rig.call("box", "/verify", body, cookies=cookies))
    assert server.verifications == 1
    for reply in replies:
        assert reply.json() == {**body, "reward": 1.0, "mask_sample": False, "number": 1}


async def test_another_verify_after_close_is_masked_as_lost(rig: Rig, server: Server) -> None:
    cookies = await seed(rig)
    await rig.call("box", "/close_session", close_body())
    said = (await rig.call("box", "/verify", {**VERIFY, "other": 1}, cookies=cookies)).json()
    assert (said["mask_sample"], said["failure_kind"], said["lost_session_verification"]) == (True, "session_lost", True)
    assert (said["reward"], said["own"], said["other"]) == (0.0, "field", 1)
    assert said["failure_reason"]
    assert server.verifications == 0


async def test_a_verify_of_a_session_that_a_restart_lost_is_masked_too(rig: Rig, server: Server) -> None:
    cookie = server._cookies.sign("of-a-dead-process")
    said = (await rig.call("box", "/verify", VERIFY, cookies={server._cookies.name: cookie})).json()
    assert (said["mask_sample"], said["failure_kind"], said["lost_session_verification"]) == (True, "session_lost", True)


async def test_a_verify_after_expiry_says_so(rig: Rig) -> None:
    server: Server = await rig.add("box", Server, session_ttl_seconds=0.05, session_receipt_seconds=30)
    cookies = await seed(rig)
    async with asyncio.timeout(3):
        while not server.released:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.01)
    said = (await rig.call("box", "/verify", VERIFY, cookies=cookies)).json()
    assert (said["failure_kind"], said["lost_session_verification"], said["mask_sample"]) == ("session_expired", True, True)
    assert (await rig.call("box", "/echo", {}, cookies=cookies)).status == 409


async def test_a_verify_without_a_session_is_another_path(rig: Rig, server: Server) -> None:
    said = (await rig.call("box", "/verify", VERIFY)).json()
    assert (said["failure_kind"], said.get("lost_session_verification")) == ("session_lost", None)


async def test_a_verifier_that_breaks_is_an_error_that_can_be_repeated(rig: Rig, server: Server) -> None:
    cookies = await seed(rig)
    body = {**VERIFY, "verify": "breaks"}
    for _ in range(2):
        reply = await rig.call("box", "/verify", body, cookies=cookies)
        error = reply.json()["error"]
        assert (reply.status, error["type"], error["terminal"]) == (500, "verifier_error", False)
        assert "Traceback" not in error["message"]
    assert server.verifications == 2


async def test_a_seed_that_breaks_leaves_nothing_and_tells_no_secret(rig: Rig, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    reply = await rig.call("box", "/seed_session", seed_body(seed="breaks"))
    error = reply.json()["error"]
    assert (reply.status, error["type"]) == (500, "box:internal_error")
    assert "broken task" in error["message"]
    assert "sk-abc" not in error["message"]
    assert (server.released, len(server.sessions)) == (["s1"], 0)


async def test_tools_need_an_open_session(rig: Rig, server: Server) -> None:
    assert (await rig.call("box", "/echo", {})).status == 401
    cookies = await seed(rig)
    hanging = asyncio.ensure_future(rig.call("box", "/hang", {}, cookies=cookies))
    await asyncio.sleep(0.01)
    await rig.call("box", "/close_session", close_body())
    reply = await hanging
    assert (reply.status, reply.json()["error"]["type"]) == (409, "cancelled")
    reply = await rig.call("box", "/echo", {}, cookies=cookies)
    assert (reply.status, reply.json()["error"]["type"]) == (409, "session_lost")


async def test_a_result_that_is_no_json_is_an_error_with_a_body(rig: Rig, server: Server) -> None:
    reply = await rig.call("box", "/odd", {}, cookies=await seed(rig))
    assert reply.status == 500
    assert "set" in reply.json()["error"]["message"]


async def test_a_draining_server_seeds_no_more(rig: Rig, server: Server) -> None:
    cookies = await seed(rig)
    assert (await rig.call("box", "/drain", {})).json() == {"running": 0}
    refused = await rig.call("box", "/seed_session", seed_body("s2"))
    assert (refused.status, refused.json()["error"]["type"], "retry-after" in refused.headers) == (503, "shutdown", True)
    assert (await rig.call("box", "/verify", VERIFY, cookies=cookies)).status == 200
    assert (await rig.call("box", "/close_session", close_body())).status == 200


async def test_aggregate_metrics_and_reverify_mode(rig: Rig, server: Server) -> None:
    assert (await rig.call("box", "/aggregate_metrics", {"verify_responses": [{}]})).json() == {"agent_metrics": {}}
    for bad in ({"verify_responses": 3}, [1], "x"):
        assert (await rig.call("box", "/aggregate_metrics", bad)).status == 422
    assert (await rig.call("box", "/reverify_mode")).json() == {"mode": "unsupported"}


async def test_a_shutdown_releases_every_session(rig: Rig) -> None:
    server: Server = await rig.add("box", Server)
    for index in range(3):
        await seed(rig, f"s{index}")
    await server.stop()
    assert sorted(server.released) == ["s0", "s1", "s2"]


async def test_bodies_are_compared_byte_by_byte(rig: Rig, server: Server) -> None:
    """The digest is of the bytes: a client that repeats a request repeats its bytes."""
    body = orjson.dumps(seed_body())
    assert (await rig.transport.send("POST", "http://box.in-process/seed_session", rig.credentials.headers(), body)).status == 200
    assert (await rig.transport.send("POST", "http://box.in-process/seed_session", rig.credentials.headers(), body)).status == 200
    assert TASK["taskset"] == "t"


async def test_the_typed_verify_says_who_asks_and_gets_the_verdict_alone(rig: Rig, server: Server) -> None:
    cookies = await seed(rig)
    typed = {"episode_id": EPISODE, "task_id": TASK, "verification_input": VERIFY}
    reply = await rig.call("box", "/verify", typed, cookies=cookies)
    assert reply.json() == {"reward": 1.0, "mask_sample": False, "number": 1}
    other = {**typed, "episode_id": {"rollout_id": "another", "attempt": 0}}
    assert (await rig.call("box", "/verify", other, cookies=cookies)).status == 409
    assert (await rig.call("box", "/verify", {**typed, "verification_input": {}}, cookies=cookies)).status == 422
    assert (await rig.call("box", "/verify", {**typed, "more": 1}, cookies=cookies)).status == 422
    assert server.verifications == 1


async def test_the_old_close_is_named_by_its_cookie_alone(rig: Rig, server: Server) -> None:
    reply = await rig.call("box", "/seed_session", {"flat": "row"})
    for _ in range(2):
        closed = await rig.call("box", "/close_session", {}, cookies=dict(reply.cookies))
        assert closed.status == 200
    assert len(server.released) == 1
    assert (await rig.call("box", "/close_session", {})).status == 422
