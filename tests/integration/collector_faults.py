"""The faults of the collector's page: what is done to a collection and when, and what must become of it.

Every fault is struck at a moment that a proxy holds still, so that the outcome does not depend on the machine's pace. `try_fault` makes
the run, strikes, lets it end, and goes on with it until nothing is owed; scripts/soak.py strikes the same ones at random moments.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.integration.collector_bench import HOPS, SERVERS, Collection
from tests.integration.conftest import wait_for
from tests.integration.lossy_proxy import What, answer
from tests.small_disk import fill, small_disk

PATHS: Mapping[str, tuple[str, ...]] = {
    "resources": ("/seed_session", "/get_weather", "/verify", "/close_session"),
    "agent": ("/v1/agent_sessions", r"/ng-rollout/.+/v1/responses", "/v1/agent_sessions/close"),
    "model": (r"/ng-rollout/.+/v1/responses", r"/ng-rollout/.+/capture/close"),
    "environment": ("/run",),
    "endpoint": ("/v1/responses",),
}
"""What is called at each hop in an episode."""
CALLERS: Mapping[str, str] = {
    "resources": "environment server and agent to resources server",
    "agent": "environment server to agent",
    "model": "agent to model server",
    "environment": "collector to environment server",
    "endpoint": "model server to the model",
}
ENDED = "expected ="
"""The account, where nothing else is said of a fault."""
AT_THE_MODEL = "6 rollouts wait for the model"
_CONCURRENCY = 6
_FIRST = 12
"""Requests to the model that pass before the rest is held."""


@dataclass(frozen=True)
class Fault:
    """One fault. `strike` does it; `told` is a pattern for the line that names it to people; empty if nobody is left to say anything."""

    name: str
    strike: Callable[[Collection], None]
    told: str
    moment: str = AT_THE_MODEL
    arguments: tuple[str, ...] = ()
    """Options of the run."""
    before: Callable[[Collection], None] | None = None
    """What is made ready before the run."""


@dataclass(frozen=True)
class Found:
    """What became of a collection."""

    ended: str
    code: int
    line: str
    after: str
    """After it was gone on with, where something was owed."""
    seconds: float
    """From the fault to the end of the run."""


def try_fault(collection: Collection, fault: Fault) -> Found:
    """Do it. Raises Broken where something does not hold that must."""
    bench = collection.bench
    held = None
    if fault.before is not None:
        fault.before(collection)
    if fault.moment == AT_THE_MODEL:
        held = bench.proxies["endpoint"].rule("/v1/responses", "hold", 10_000, skip=_FIRST)
        collection.begin(*fault.arguments)
        wait_for(lambda: held.met == _CONCURRENCY, lambda: f"they wait: {collection.started.errors}", 40)
    struck = time.monotonic()
    fault.strike(collection)
    if held is None:
        collection.begin(*fault.arguments)
    else:
        held.times = 0
        held.go.set()
    code, ended = collection.end()
    seconds = time.monotonic() - struck
    line = told(collection, fault.told) if fault.told else "what its shell says"
    bench.mend()
    return Found(ended, code, line, go_on(collection) if unfinished(ended) else "", seconds)


def unfinished(ended: str) -> bool:
    """Whether a run that ended so is to be gone on with."""
    return "owed" in ended or ended in ("no account", "not begun")


def go_on(collection: Collection) -> str:
    """Resume until nothing is owed: the account in words."""
    collection.begin()
    code, ended = collection.end()
    assert "owed" not in ended, f"exit {code}, {ended}: {collection.started.errors}"
    return ended


def told(collection: Collection, pattern: str) -> str:
    """What people are told, without what differs from run to run: the line with `pattern`, or without one the account."""
    said = collection.started.errors
    account = ["the account", *([f"failed attempts, the first in full: {', '.join(failed)}"] if (failed := collection.failed()) else [])]
    if pattern == ENDED and failed:
        pattern = "failed attempts are in .* the first, of rollout"
    elif pattern == ENDED:
        return account[0]
    # The last one: how many progress lines come before it depends on how long the run took.
    line = next((line for line in reversed(said.splitlines()) if re.search(pattern, line)), None)
    assert line is not None, f"nothing says {pattern!r}: {said}"
    if ENDED in line or "are in" in pattern:
        return "; ".join(account)
    for differs, word in (
        (r"^[\d-]+T[\d:.]+Z [A-Z]+ [\w.]+ ", ""),
        (r"[^\s:,]*/(?=\w+\.(jsonl?|log|yaml)\b)", "…/"),
        (r"http://127\.0\.0\.1:\d+", "http://…"),
        (r"\brollout \d+-\d+", "rollout …"),
        (r"/ng-rollout/\d+-\d+(-a\d+)?", "/ng-rollout/…"),
        (r"\d+ bytes", "… bytes"),
        (r"of \d+-\d+:", "of …:"),
        (r"\|", "/"),
    ):
        line = re.sub(differs, word, line)
    return f"`{line}`"


def _signal(number: signal.Signals) -> Callable[[Collection], None]:
    return lambda collection: collection.started.signal(number)


def _kill_servers(names: tuple[str, ...]) -> Callable[[Collection], None]:
    def strike(collection: Collection) -> None:
        for pid in [collection.bench.runs.server(f"{name}_server") for name in names]:
            os.kill(pid, signal.SIGKILL)

    return strike


def _kill_model(collection: Collection, *, seconds: float | None) -> None:
    collection.bench.stand_in.kill()
    if seconds is not None:
        time.sleep(seconds)
        collection.bench.stand_in.start()


def _at_hop(hop: str, what: What, *, times: int = 2, skip: int = 3, reply: bytes = b"") -> Callable[[Collection], None]:
    def strike(collection: Collection) -> None:
        for path in PATHS[hop]:
            collection.bench.proxies[hop].rule(path, what, times, skip=skip, reply=reply)

    return strike


def _small_disk(folder: Callable[[Collection], Path]) -> Callable[[Collection], None]:
    return lambda collection: collection.bench.disks.enter_context(small_disk(folder(collection)))


def _fill(folder: Callable[[Collection], Path]) -> Callable[[Collection], None]:
    return lambda collection: collection.bench.full.append(fill(folder(collection)))


def _of_output(collection: Collection) -> Path:
    return collection.files.output.parent


def _of_servers(collection: Collection) -> Path:
    return collection.bench.runs.state


def _model_calls_full(collection: Collection) -> None:
    _small_disk(lambda _: collection.files.model_calls)(collection)
    _fill(lambda _: collection.files.model_calls)(collection)


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OF_THE_COLLECTOR = (
    Fault("collector killed (SIGKILL)", _signal(signal.SIGKILL), ""),
    *(Fault(f"collector told to stop ({number.name})", _signal(number), "interrupted: .*expected =") for number in _SIGNALS),
)
OF_SERVERS = (
    *(Fault(f"{name} server killed", _kill_servers((name,)), rf"server {name}_server died \(SIGKILL\)") for name in SERVERS),
    Fault("all servers killed at once", _kill_servers(SERVERS), r"server resources_server died \(SIGKILL\)"),
)
OF_DISKS = (
    Fault("no room for the output", _fill(_of_output), "error: .*No space left", before=_small_disk(_of_output)),
    Fault("no room for the model calls beside the output", _model_calls_full, "No space left"),
    Fault("no room where the servers record model calls", _fill(_of_servers), ENDED, before=_small_disk(_of_servers)),
)

_SOME = "requests 4 and 5 of each kind"
_ALL = "all requests"
_BUSY = answer(429, b'{"error": {"message": "slow down"}}', retry_after="1")
_BROKE = answer(500, b'{"error": {"message": "it broke"}}')
_ALWAYS = 10_000
ON_THE_WAY = (
    *(Fault(f"{CALLERS[hop]}: replies lost", _at_hop(hop, "lose_reply"), ENDED, _SOME) for hop in HOPS),
    *(Fault(f"{CALLERS[hop]}: requests lost", _at_hop(hop, "lose_request"), ENDED, _SOME) for hop in HOPS),
    *(Fault(f"{CALLERS[hop]}: requests come twice", _at_hop(hop, "twice", times=_ALWAYS, skip=0), ENDED, _ALL) for hop in HOPS),
    *(Fault(f"{CALLERS[hop]}: no answer, ever", _at_hop(hop, "hold", times=1), ENDED, "request 4 of each kind") for hop in HOPS),
    *(Fault(f"{CALLERS[hop]}: answered 500", _at_hop(hop, "answer", reply=_BROKE), ENDED, _SOME) for hop in HOPS),
)


def _always(reply: bytes) -> Callable[[Collection], None]:
    return _at_hop("endpoint", "answer", times=_ALWAYS, skip=0, reply=reply)


ONCE = ("--attempts", "1")
OF_THE_MODEL = (
    Fault("model killed, back after 1 s", partial(_kill_model, seconds=1), ENDED),
    Fault("model killed for good", partial(_kill_model, seconds=None), "the connection to .* broke", arguments=ONCE),
    Fault("model: 429 with Retry-After", _at_hop("endpoint", "answer", times=12, reply=_BUSY), ENDED, "requests 4 to 15"),
    Fault("model: 429 with Retry-After, always", _always(_BUSY), "answered 429: .*slow down", _ALL, arguments=ONCE),
    Fault("model: 500, always", _always(_BROKE), "answered 500: .*it broke", _ALL, arguments=ONCE),
)
