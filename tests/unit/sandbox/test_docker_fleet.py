"""Which of several engines a sandbox goes to; nothing is asked of any."""

import logging
import time

import pytest

from gym.sandbox.provider import HostView
from gym.sandbox.providers.docker.fleet import DockerFleet
from gym.sandbox.providers.docker.provider import DockerProvider
from gym.sandbox.providers.docker_options import DockerOptions
from gym.sandbox.spec import SandboxError, SandboxSpecError

A, B, C = "tcp://192.0.2.1:1", "tcp://192.0.2.2:1", "tcp://192.0.2.3:1"


def fleet(*hosts: object, network: str | None = None) -> DockerFleet:
    return DockerFleet(DockerOptions.model_validate({"hosts": list(hosts), "create": {"network": network}}))


def fill(made: DockerFleet, count: int) -> dict[str, int]:
    """Give each next sandbox to the engine whose turn it is; how many each has then."""
    for number in range(count):
        made.parts[0].held.add(f"box-{number}")
    return {engine.address: len(engine.held) for engine in made.parts}


def named(made: DockerFleet, address: str) -> DockerProvider:
    return next(engine for engine in made.parts if engine.address == address)


def test_the_fewest_for_its_weight_comes_first_and_ties_rotate() -> None:
    assert fill(fleet(A, B, C), 12) == {A: 4, B: 4, C: 4}
    assert fill(fleet(A, {"host": B, "weight": 3}), 12) == {A: 3, B: 9}
    made = fleet(A, B, C)
    assert {made.parts[0].address for _ in range(3)} == {A, B, C}
    named(made, B).held.add("x")
    assert {made.parts[-1].address for _ in range(3)} == {B}


def test_an_engine_that_does_not_answer_rests_longer_each_time_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = fleet(A, B)
    down = named(made, A)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    named(made, B).held.add("busy")
    with caplog.at_level(logging.WARNING):
        for failures, rest in ((1, 30), (2, 60), (3, 120), (9, 600)):
            down.failures, down.failed_at = failures, now - rest + 1
            assert [made.parts[0].address for _ in range(2)] == [B, B]
            down.failed_at = now - rest - 1
            assert made.parts[0].address == A, "its rest is over: a create finds out"
        down.failures = 0
        assert made.parts[0].address == A
    assert [record.getMessage() for record in caplog.records] == [
        f"the Docker engine at {A} does not answer, and is passed over until it does",
        f"the Docker engine at {A} answers again",
    ]


async def test_a_sandbox_of_another_fleet_and_views_that_differ_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = fleet(A, B, network="none")
    with pytest.raises(SandboxError, match=r"'tcp://192\.0\.2\.3:1', which is not among this block's hosts \(tcp://192\.0\.2\.1:1, "):
        await made.connect({"provider": "docker", "sandbox_id": "nemo-gym-1", "engine": C})
    assert (await made.host_view("run")).why_not

    async def own_gateway(self: DockerProvider, run_id: str) -> HostView:
        return HostView(self.address[6:15], self.address[6:15])

    monkeypatch.setattr(DockerProvider, "host_view", own_gateway)
    with pytest.raises(SandboxSpecError, match=r"different addresses \(192\.0\.2\.1, 192\.0\.2\.2\): set reach_host"):
        await made.host_view("run")
