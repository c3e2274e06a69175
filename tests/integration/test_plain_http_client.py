"""A client that knows the contract's page and the token, and none of our code, runs an episode by hand and through `/run`."""

import http.client
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import GymRuns

pytestmark = pytest.mark.slow


class PlainClient:
    """HTTP and JSON."""

    def __init__(self, url: str, token: str | None) -> None:
        self._host = url.split("://")[1]
        self._token = token

    def post(self, path: str, body: Any, cookie: str | None = None, *, seconds: float = 20) -> tuple[int, Any, str | None]:
        """Status, parsed body, and the cookie that was set."""
        connection = http.client.HTTPConnection(self._host, timeout=seconds)
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if cookie is not None:
            headers["Cookie"] = cookie
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        set_cookie = response.getheader("Set-Cookie")
        parsed = json.loads(response.read())
        connection.close()
        return response.status, parsed, set_cookie.split(";")[0] if set_cookie else None


TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}
    for name in ("increment_counter", "get_counter_value")
]
PARAMS = {"input": [{"role": "user", "content": "add 1 then add 2 then get the count"}], "tools": TOOLS}
EXAMPLE = "resources_servers/example_session_state_mgmt/configs/example_session_state_mgmt.yaml"
NAME = "example_session_state_mgmt"


@pytest.mark.parametrize("token_of_the_user", [False, True])
def test_an_episode_by_hand_and_through_run(runs: GymRuns, token_of_the_user: bool) -> None:
    arguments = ["env", "start", "--json", "--config", EXAMPLE, "--model-type", "scripted_model"]
    if token_of_the_user:
        arguments.append(f"auth.token_file={runs.write('token', 'a-token-that-a-trainer-knows')}")
    started = runs.begin(*arguments)
    started.ready()
    code, output, errors = runs.run("env", "status", "--json")
    assert code == 0, errors
    status = json.loads(output)
    token = Path(status["token_file"]).read_text()
    assert not token_of_the_user or token == "a-token-that-a-trainer-knows"

    def client(name: str, token: str | None = token) -> PlainClient:
        return PlainClient(status["instances"][f"{NAME}_{name}"]["url"], token)

    resources, agent, environment = client("resources_server"), client("simple_agent"), client("environment_server")
    episode = {"rollout_id": "by-hand", "attempt": 1}
    task = {"taskset": NAME, "task_id": "1"}
    resources_session, agent_session = f"mine-{uuid.uuid4()}", f"mine-{uuid.uuid4()}"

    seed = {
        "resources_session_id": resources_session,
        "episode_id": episode,
        "task_id": task,
        "task_data": {"initial_count": 3, "expected_count": 6},
    }
    assert client("resources_server", None).post("/seed_session", seed)[0] == 401
    code, seeded, cookie = resources.post("/seed_session", seed)
    assert (code, seeded["resources_session_id"]) == (200, resources_session)
    assert cookie is not None
    name, _, value = cookie.partition("=")
    grant = {"kind": "direct_http", "name": "tools", "required": True, "base_url": f"http://{resources._host}", "cookies": {name: value}}
    opened = {"agent_session_id": agent_session, "episode_id": episode, "task_id": task, "tool_accesses": [grant]}
    code, said, agent_cookie = agent.post("/v1/agent_sessions", opened)
    assert (code, said) == (200, {"agent_session_id": agent_session})
    code, response, _ = agent.post("/ng-rollout/by-hand-a1/v1/responses", PARAMS, agent_cookie)
    assert (code, response["object"]) == (200, "response")
    assert [item["type"] for item in response["output"]].count("function_call") == 3
    code, closed, _ = agent.post("/v1/agent_sessions/close", {"agent_session_id": agent_session, "episode_id": episode})
    assert (code, closed["agent_session_id"]) == (200, agent_session)
    tool_cookie = "; ".join(f"{key}={value}" for key, value in closed["resources_cookies"].items())
    flat = {"expected_count": 6, "responses_create_params": PARAMS, "response": response}
    code, verdict, _ = resources.post("/verify", flat, tool_cookie)
    assert (code, verdict["reward"], verdict["mask_sample"], verdict["final_count"]) == (200, 1.0, False, 6)
    assert (verdict["expected_count"], verdict["response"]["id"]) == (6, response["id"])
    close = {"resources_session_id": resources_session, "episode_id": episode}
    for _ in range(2):
        assert resources.post("/close_session", close)[:2] == (200, {"resources_session_id": resources_session})
    assert resources.post("/seed_session", seed)[0] == 409
    assert resources.post("/verify", flat, tool_cookie)[1]["reward"] == 1.0

    # The old form of the wire: a flat seed, and the session known by its cookie alone.
    code, said, old_cookie = resources.post("/seed_session", {"initial_count": 1, "expected_count": 6})
    assert (code, said) == (200, {})
    assert resources.post("/increment_counter", {"count": 5}, old_cookie)[1] == {"success": True}
    assert resources.post("/verify", flat, old_cookie)[1]["reward"] == 1.0

    task_input = {"responses_create_params": PARAMS, "task_data": {"initial_count": 3, "expected_count": 6}}
    run = {"episode_id": {"rollout_id": "run-1"}, "task": {"task_id": task, "task_input": task_input}}
    code, reply, _ = environment.post("/run", run)
    assert (code, reply["episode_id"], reply["task_id"]) == (200, {"rollout_id": "run-1", "attempt": 0}, task)
    assert reply["result"]["reward"] == 1.0
    started.signal()
    assert started.ended() == 130
    runs.check_nothing_left()
