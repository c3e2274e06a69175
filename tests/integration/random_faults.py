"""One collection struck at random moments, known by its seed: a part of the tests, and with more seeds of scripts/soak.py.

Up to three faults in the first run and up to two in the one that goes on with it, at random moments of their starts and work; then
all is well, and it is gone on with until nothing is owed. What `Collection.check` asks for must hold after each run.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.integration.collector_bench import HOPS, ROWS, Collection, bench_in
from tests.integration.collector_faults import OF_DISKS, OF_SERVERS, OF_THE_COLLECTOR, OF_THE_MODEL, ON_THE_WAY, Fault, go_on, unfinished
from tests.small_disk import why_no_disk

_PASSING = [fault for fault in OF_THE_MODEL if not fault.arguments]
_START_SECONDS = 1.5
_STEP_SECONDS = 0.01


@dataclass
class Struck:
    """What was done to a collection and what became of it, in words; how many faults came before an end; how it ended at last."""

    said: list[str]
    faults: int = 0
    ended: str = ""

    def __str__(self) -> str:
        return "; ".join(self.said)


def strike_at_random(folder: Path, seed: str) -> Struck:
    """Do it. Raises AssertionError, with what was done, where something does not hold."""
    dice = random.Random(seed)
    isolation = dice.choice(("process", "colocated", "colocated"))
    hops = HOPS if isolation == "process" else ("endpoint",)
    faults = [
        *OF_THE_COLLECTOR,
        *_PASSING,
        *(fault for fault in ON_THE_WAY if isolation == "process" or fault.name.startswith("model server")),
    ]
    faults += OF_SERVERS if isolation == "process" else ()
    faults += OF_DISKS[:1] if not why_no_disk() else ()
    struck = Struck([isolation])
    with bench_in(folder, hops, isolation=isolation, episode_seconds=8, call_seconds=2) as bench:
        collection = bench.collection("results")
        came: list[str] = []
        try:
            if not why_no_disk():
                OF_DISKS[0].before(collection)  # type: ignore[misc]
            for most in (3, 2):
                chosen = [(fault, _moment(dice)) for fault in dice.sample(faults, dice.randint(1, most))]
                collection.begin()
                came = [f"{fault.name} {when}" for fault, (when, come) in chosen if _strike(collection, fault, come)]
                struck.faults += len(came)
                code, struck.ended = collection.end()
                struck.said += [*came, f"exit {code}, {struck.ended}"]
                bench.mend()
                if not unfinished(struck.ended):
                    break
            if unfinished(struck.ended):
                struck.ended = go_on(collection)
                struck.said.append(f"then {struck.ended}")
        except (AssertionError, OSError) as error:
            raise AssertionError(f"{struck}; {came}; {type(error).__name__}: {error}") from error
    return struck


def _moment(dice: random.Random) -> tuple[str, Callable[[Collection, float], bool]]:
    """A moment: so many seconds after the start, or so many rows into the output."""
    if dice.random() < 0.4:
        seconds = dice.uniform(0, _START_SECONDS)
        return f"after {seconds:.2f} s", lambda _, since: since >= seconds
    rows = dice.randint(0, ROWS)
    return f"at {rows} rows", lambda collection, _: collection.written >= rows and collection.files.output.exists()


def _strike(collection: Collection, fault: Fault, come: Callable[[Collection, float], bool]) -> bool:
    """Strike once the moment has come; whether that was before the end of the run."""
    began = time.monotonic()
    while collection.started.process.poll() is None and time.monotonic() - began < 60:
        if come(collection, time.monotonic() - began):
            try:
                fault.strike(collection)
            except (ProcessLookupError, AssertionError):
                return False  # there is no such server yet, or it is just being started again
            return True
        time.sleep(_STEP_SECONDS)
    return False
