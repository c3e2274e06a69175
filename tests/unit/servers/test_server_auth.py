"""Who may call what: every route of every kind of server, by the access that it declares."""

from pathlib import Path
from typing import Any

import pytest

from environment_servers.single_agent_turn.app import SingleAgentTurnServer
from environment_servers.single_agent_turn.config import Config as TurnConfig
from gym.protocol import routes
from gym.runtime.head import head_app
from gym.runtime.prepare import Running
from gym.servers import ModelServer
from gym.servers.auth import CookieSigner, Credentials
from gym.servers.base import RouteSpec, Server
from gym.servers.http import Access
from resources_servers.example_session_state_mgmt.app import CounterServer
from responses_api_agents.noop_agent.app import NoopAgent
from responses_api_agents.noop_agent.config import Config as NoopConfig
from tests.unit.servers.conftest import VERIFY, MakeRig, Rig, agent_body, seed_body

TURN = TurnConfig(
    resources_server={"type": "resources_servers", "name": "counter"},  # pyright: ignore[reportArgumentType]
    agent_server={"type": "responses_api_agents", "name": "noop"},  # pyright: ignore[reportArgumentType]
)


class Echo(ModelServer):
    """Answers with the rollout it was asked under."""

    async def responses(self, call: Any) -> Any:
        return {"key": call.capture_key}


async def all_kinds(rig: Rig) -> None:
    await rig.add("counter", CounterServer)
    await rig.add("noop", NoopAgent, NoopConfig())
    await rig.add("model", Echo)
    await rig.add("turn", SingleAgentTurnServer, TURN)


def specs(server: Server) -> list[RouteSpec]:
    return [*server._common(), *server.route_specs()]


async def test_each_control_route_of_each_kind_needs_the_token(rig: Rig) -> None:
    await all_kinds(rig)
    tried = 0
    for name, server in rig.servers.items():
        for spec in specs(server):
            if spec.access is Access.OPEN:
                continue
            prefixes = ["", "/ng-rollout/r1", "/ng-rollout/r1/training-token-capture"] if spec.under_rollout else [""]
            paths = [prefix + spec.path for prefix in prefixes]
            for path in paths:
                for headers in ({"x": "y"}, {"authorization": "Bearer wrong"}, {"authorization": rig.credentials.token or ""}):
                    reply = await rig.call(name, path, None if spec.method == "GET" else {}, method=spec.method, **headers)
                    assert reply.status == 401, (name, path, headers)
                    assert "bearer token" in reply.json()["error"]["message"]
                    tried += 1
    assert tried > 50


async def test_what_is_open_is_only_what_may_be(rig: Rig) -> None:
    await all_kinds(rig)
    opened = {(name, spec.path) for name, server in rig.servers.items() for spec in specs(server) if spec.access is Access.OPEN}
    common = {(name, path) for name in rig.servers for path in (routes.HEALTH, routes.READY)}
    assert opened == common | {("counter", "/increment_counter"), ("counter", "/get_counter_value")}


async def test_a_rollouts_token_opens_its_own_model_routes_and_nothing_else(rig: Rig) -> None:
    await all_kinds(rig)
    token = {"authorization": f"Bearer {rig.credentials.rollout_token('r1')}"}
    for prefix in ("/ng-rollout/r1", "/ng-rollout/r1/training-token-capture"):
        reply = await rig.call("model", f"{prefix}/v1/responses", {}, **token)
        assert (reply.status, reply.json()) == (200, {"key": "r1"})
    for path in ("/v1/responses", "/ng-rollout/r2/v1/responses", "/ng-rollout/r1-a1/v1/responses"):
        assert (await rig.call("model", path, {}, **token)).status == 401
    for name, server in rig.servers.items():
        for spec in specs(server):
            if spec.access is Access.CONTROL:
                paths = [spec.path, f"/ng-rollout/r1{spec.path}"] if spec.under_rollout else [spec.path]
                for path in paths:
                    assert (await rig.call(name, path, None if spec.method == "GET" else {}, method=spec.method, **token)).status == 401, (
                        path
                    )


async def test_without_authentication_the_control_routes_are_open_and_cookies_still_signed(make_rig: MakeRig) -> None:
    async with make_rig(token=None) as rig:
        await rig.add("counter", CounterServer)
        seeded = await rig.call("counter", "/seed_session", seed_body(expected_count=0), x="y")
        assert seeded.status == 200
        assert (await rig.call("counter", "/get_counter_value", {}, cookies={"gym_counter": "s1"}, x="y")).status == 401


async def test_foreign_and_forged_cookies_are_refused(rig: Rig, make_rig: MakeRig) -> None:
    await all_kinds(rig)
    cookies = dict((await rig.call("counter", "/seed_session", seed_body(expected_count=0))).cookies)
    good = cookies["gym_counter"]
    other_run = CookieSigner("another secret", "counter").sign("s1")
    other_instance = CookieSigner("secret", "other").sign("s1")
    swapped = "s2" + good[2:]
    for value in ("s1", "", "s1.AAAA", good + "x", swapped, other_run, other_instance):
        for route, body in (("/get_counter_value", {}), ("/verify", VERIFY)):
            reply = await rig.call("counter", route, body, cookies={"gym_counter": value})
            assert reply.status == 401, (route, value)
    assert (await rig.call("counter", "/get_counter_value", {}, cookies={"gym_counter": good})).status == 200
    await rig.call("noop", routes.AGENT_SESSIONS, agent_body())
    for value in ("a1", CookieSigner("another secret", "noop").sign("a1")):
        assert (await rig.call("noop", routes.RESPONSES, {"input": "q"}, cookies={"gym_noop": value})).status == 401


@pytest.mark.parametrize("session_id", ["with space", "semi;colon", 'quo"te', "new\r\nline: x", "ünïcödé 漢", "a=b", "%41", "."])
async def test_any_session_id_survives_its_cookie(rig: Rig, session_id: str) -> None:
    await rig.add("counter", CounterServer)
    seeded = await rig.call("counter", "/seed_session", seed_body(session_id, initial_count=7, expected_count=7))
    reply = await rig.call("counter", "/get_counter_value", {}, cookies=dict(seeded.cookies))
    assert reply.json() == {"count": 7}


async def test_the_head_server_needs_the_token_too(tmp_path: Path) -> None:
    credentials = Credentials("run-token-0123456789", "secret")
    running = Running(None, None, credentials, lambda line: None)  # type: ignore[arg-type]
    async with Rig(tmp_path) as rig:
        rig.transport.add("head", head_app(running))
        for route in (routes.SERVER_INSTANCES, routes.GLOBAL_CONFIG, routes.STATUS):
            assert (await rig.transport.send("GET", f"http://head{route}", {}, b"")).status == 401
        assert (await rig.transport.send("GET", f"http://head{routes.HEALTH}", {}, b"")).status == 200
