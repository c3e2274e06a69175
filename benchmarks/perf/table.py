"""Rollouts per second and CPU per rollout by concurrency and model latency, in both modes, next to the floor.

    python benchmarks/perf/table.py [--concurrency N,N] [--latency S,S] [--json FILE]

The episode is that of serving.py, and so are the load model and what is counted; the floor is that of floor.py. Prints
a Markdown table. "Of the limit" is the rate against what the model's latency alone would allow at that concurrency.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import floor
import serving

ROOT = Path(__file__).resolve().parents[2]
MODEL_CALLS = 2
"""Of one rollout of the example, one after the other."""


def counts(concurrency: int, latency: float) -> tuple[int, int]:
    """Rollouts of the small and of the large run of a cell; what lies between the two is measured."""
    if not latency:
        return 200, 4_000 if concurrency < 1024 else 8_000
    return (2, 32) if concurrency == 1 else (concurrency, max(8 * concurrency, 256) if concurrency < 1024 else 4 * concurrency)


def limit(concurrency: int, latency: float) -> float | None:
    """Rollouts per second that the model's latency allows."""
    return concurrency / (MODEL_CALLS * latency) if latency else None


def measure(concurrencies: list[int], latencies: list[float], shared: Path) -> list[dict[str, Any]]:
    """A dict per cell, with the figures of both modes and of their floors."""
    cells: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GYM_STATE_DIR"] = str(folder / "state")
        rows = serving.write_rows(folder / "rows.jsonl", max(counts(c, s)[1] for c in concurrencies for s in latencies))
        with serving.load_model(shared, folder) as url:
            colocated = ["--config", serving.CONFIG, *serving.model_options(url)]
            one = ["eval", "run", *colocated, "--input", str(rows), "--limit", "1", "--output", str(folder / "one.jsonl")]
            hops = floor.record_hops(one, ROOT, folder)
            for latency in latencies:
                serving.tell(url, "/_ctl", {"latency": latency})
                for concurrency in concurrencies:
                    small, large = counts(concurrency, latency)
                    size = (rows, large, concurrency, folder, url, small)
                    tagged = serving.Tagged()
                    process, _ = serving.start_servers(tagged, url, folder)
                    cell: dict[str, Any] = {"concurrency": concurrency, "latency": latency, "rollouts": large}
                    cell["process"] = serving.figures(tagged, ["--no-serve"], *size)
                    serving.stop(process)
                    cell["colocated"] = serving.figures(serving.Tagged(), colocated, *size)
                    bare = {"process": hops, "colocated": [hop for hop in hops if hop.external]}
                    cell["floor"] = {mode: floor.replay(found, large, concurrency, latency) for mode, found in bare.items()}
                    cells.append(cell)
                    print(json.dumps(cell), file=sys.stderr, flush=True)
        print(f"{len(hops)} hops an episode in processes, {sum(hop.external for hop in hops)} colocated", file=sys.stderr)
    return cells


def as_markdown(cells: list[dict[str, Any]]) -> str:
    """The cells as a table."""
    lines = ["| latency | at once | processes: per second | of the limit | CPU | floor: per second | CPU | ratio of CPU "]
    lines[0] += "| colocated: per second | of the limit | CPU | floor: CPU |"
    lines.append("|" + "---|" * 12)
    for cell in cells:
        most = limit(cell["concurrency"], cell["latency"])
        columns = [f"{cell['latency']:g} s", str(cell["concurrency"])]
        for mode in ("process", "colocated"):
            ours, bare = cell[mode], cell["floor"][mode]
            rate, cpu = ours["rollouts_per_s"], ours["cpu_ms_per_rollout"]
            columns += [f"{rate:g}", f"{100 * rate / most:.0f} %" if most else "", f"{cpu:.1f} ms"]
            if mode == "process":
                columns += [
                    f"{bare['rollouts_per_s']:g}",
                    f"{bare['cpu_ms_per_rollout']:.1f} ms",
                    f"{cpu / bare['cpu_ms_per_rollout']:.1f}",
                ]
            else:
                columns += [f"{bare['cpu_ms_per_rollout']:.1f} ms"]
        lines.append("| " + " | ".join(columns) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", default="1,16,64,256,1024,4096", help="comma-separated")
    parser.add_argument("--latency", default="0,1", help="of one model call, seconds, comma-separated")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    shared = Path(os.environ.get("GYM_SHARED", ROOT.parent / "shared"))
    cells = measure([int(c) for c in options.concurrency.split(",")], [float(s) for s in options.latency.split(",")], shared)
    if options.json:
        options.json.write_text(json.dumps(cells, indent=2) + "\n")
    print(as_markdown(cells))


if __name__ == "__main__":
    main()
