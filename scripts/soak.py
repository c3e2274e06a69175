#!/usr/bin/env python3
"""Collections struck at random moments, one after the other: what `tests/integration/test_collector_faults.py` does 20 times.

usage: soak.py [--runs N] [--seed S] [--only K] [--jobs J] [--write]

Prints a line for each run: its number, what was done to it and when, what became of it, and after how long. Run K of a seed
is struck by the same faults at the same moments, as far as the machine keeps pace: `--seed S --only K` does it again.
Exits with 1 if anything did not hold. `--write` puts the result into the table of docs/collector-faults.md.
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.doc_tables import put_row
from tests.integration.random_faults import Struck, strike_at_random

PAGE = Path(__file__).resolve().parents[1] / "docs" / "collector-faults.md"
HEAD = ("seed", "date", "runs", "struck", "not measured in the end", "did not hold")


def one(seed: int, number: int) -> Struck | None:
    """Make a run, and print its line; None if something did not hold."""
    began, struck = time.monotonic(), None
    with tempfile.TemporaryDirectory(prefix="gym-soak-") as folder:
        try:
            said = str(struck := strike_at_random(Path(folder), f"{seed}-{number}"))
        except AssertionError as error:
            said = f"DID NOT HOLD: {error}"
    print(f"{number}: {said} ({time.monotonic() - began:.1f} s)", flush=True)
    return struck


def main() -> None:
    """Make the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, metavar="N", help="how many (default 200)")
    parser.add_argument("--seed", type=int, default=int(time.time()), metavar="S", help="default: the clock")
    parser.add_argument("--only", type=int, metavar="K", help="only the run with this number, from 0")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="how many at a time (default 1)")
    parser.add_argument("--write", action="store_true", help="put the result into docs/collector-faults.md")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    numbers = range(options.runs) if options.only is None else [options.only]
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            results = list(pool.map(lambda number: one(options.seed, number), numbers))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)  # those that run come to their ends, so that nothing of them is left
            sys.exit(130)
    broken = [number for number, struck in zip(numbers, results, strict=True) if struck is None]
    held = [struck for struck in results if struck is not None]
    hit, short = sum(struck.faults > 0 for struck in held), sum(struck.ended != "all measured" for struck in held)
    faults = sum(struck.faults for struck in held)
    print(f"{len(results)} runs, {hit} struck by {faults} faults; {short} not all measured in the end; did not hold: {broken or 'none'}")
    if options.write:
        counts = (len(results), f"{hit}, by {faults} faults", short, len(broken))
        put_row(PAGE, HEAD, [str(options.seed), time.strftime("%Y-%m-%d"), *map(str, counts)], keys=1)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
