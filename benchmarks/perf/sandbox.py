"""Measures what a sandbox costs beyond its engine: create, exec, copies, stop, and how long the event loop is held up.

    python benchmarks/perf/sandbox.py [--rounds N] [--image IMAGE] [--json FILE]

Three ways of the same work take turns, in one run: our provider, the engine's HTTP API (one request after
the other on a plain connection, nothing checked), and the `docker` command line. Medians, and ratios to
both. The engine is the one that DOCKER_HOST names, or that of the usual socket; it must be reached by a
socket, and have the image. Nothing here is a test: it asserts nothing about speed.
"""

import argparse
import asyncio
import http.client
import io
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gym.sandbox.handles import OwnedSandbox
from gym.sandbox.ownership import Ownership
from gym.sandbox.provider import Provider
from gym.sandbox.registry import provider_from_block
from gym.sandbox.spec import SandboxSpec

RUN_ID = f"bench-{secrets.token_hex(4)}"
SIZE = 100 * 1000 * 1000
TICK_S = 0.001
SLEEP = ["sleep", "600"]
OPERATIONS = ("create", "exec", "up", "down", "stop")


class RawEngine:
    """The engine's HTTP API by the shortest way there is."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.kept = self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("docker", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.path)
        return connection

    def ask(self, method: str, path: str, body: Any = None, *, fresh: bool = False, data: bytes | None = None) -> bytes:
        """One request; those that the engine ends with the connection need a `fresh` one."""
        connection = self._connect() if fresh else self.kept
        payload = data if data is not None else json.dumps(body).encode() if body is not None else None
        connection.request(method, path, payload, {"Content-Type": "application/x-tar" if data is not None else "application/json"})
        reply = connection.getresponse()
        content = reply.read()
        if reply.status >= 400:
            raise RuntimeError(f"{method} {path}: {content[:300]!r}")
        if fresh:
            connection.close()
        return content

    def create(self, name: str, image: str) -> None:
        host = {"AutoRemove": True, "Init": True, "NetworkMode": "none"}
        self.ask("POST", f"/containers/create?name={name}", {"Image": image, "Entrypoint": SLEEP, "HostConfig": host})
        self.ask("POST", f"/containers/{name}/start")

    def exec(self, name: str) -> None:
        body = {"Cmd": ["/bin/bash", "-c", "true"], "AttachStdout": True, "AttachStderr": True}
        made = json.loads(self.ask("POST", f"/containers/{name}/exec", body))["Id"]
        self.ask("POST", f"/exec/{made}/start", {"Detach": False, "Tty": False}, fresh=True)
        if json.loads(self.ask("GET", f"/exec/{made}/json"))["ExitCode"] != 0:
            raise RuntimeError("the command failed")

    def up(self, name: str, content: bytes) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            member = tarfile.TarInfo("tmp/big")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        self.ask("PUT", f"/containers/{name}/archive?path=/", data=buffer.getvalue())

    def down(self, name: str) -> None:
        with tarfile.open(fileobj=io.BytesIO(self.ask("GET", f"/containers/{name}/archive?path=/tmp/big"))) as tar:
            file = tar.extractfile("big")
            assert file is not None
            assert len(file.read()) == SIZE

    def stop(self, name: str) -> None:
        self.ask("DELETE", f"/containers/{name}?force=1")


def cli(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, stdout=subprocess.DEVNULL)


def remove_the_rest() -> None:
    left = subprocess.run(["docker", "ps", "-aq", "--filter", f"name={RUN_ID}"], text=True, capture_output=True, check=False)
    if left.stdout.split():
        cli("rm", "-f", *left.stdout.split())


class Ours:
    """One sandbox of ours after the other."""

    def __init__(self, provider: Provider, image: str) -> None:
        self.provider = provider
        self.image = image
        self.box: OwnedSandbox | None = None

    async def create(self) -> None:
        self.box = await OwnedSandbox.start(self.provider, SandboxSpec(image=self.image, ttl_s=600), Ownership(RUN_ID, "bench"))

    async def exec(self) -> None:
        assert self.box is not None
        assert (await self.box.exec("true")).ok

    async def down(self) -> None:
        assert self.box is not None
        assert len(await self.box.download("/tmp/big")) == SIZE


def ways(ours: Ours, raw: RawEngine, image: str, turn: int, folder: Path) -> dict[str, dict[str, Callable[[], Any]]]:
    """How each way does each operation in one round."""
    api, name = f"{RUN_ID}-api-{turn}", f"{RUN_ID}-cli-{turn}"
    big = folder / "big"
    content = big.read_bytes()
    options = ["--rm", "--init", "--network", "none", "--name", name, "--entrypoint", SLEEP[0]]
    return {
        "create": {
            "gym": ours.create,
            "api": lambda: raw.create(api, image),
            "cli": lambda: cli("run", "-d", *options, image, SLEEP[1]),
        },
        "exec": {"gym": ours.exec, "api": lambda: raw.exec(api), "cli": lambda: cli("exec", name, "/bin/bash", "-c", "true")},
        "up": {
            "gym": lambda: ours.box and ours.box.upload("/tmp/big", big),
            "api": lambda: raw.up(api, content),
            "cli": lambda: cli("cp", str(big), f"{name}:/tmp/big"),
        },
        "down": {"gym": ours.down, "api": lambda: raw.down(api), "cli": lambda: cli("cp", f"{name}:/tmp/big", str(folder / "back"))},
        "stop": {
            "gym": lambda: ours.box and ours.box.stop(),
            "api": lambda: raw.stop(api),
            "cli": lambda: cli("rm", "-f", name),
        },
    }


async def single(provider: Provider, raw: RawEngine, image: str, rounds: int, execs: int, folder: Path) -> dict[str, dict[str, float]]:
    """Every operation by three ways in turn, another one first in each round. The first round warms up and does not count."""
    taken: dict[tuple[str, str], list[float]] = {}
    (folder / "big").write_bytes(os.urandom(1000) * (SIZE // 1000))
    ours = Ours(provider, image)
    for turn in range(rounds + 1):
        if turn == 1:
            taken.clear()
        for operation, by in ways(ours, raw, image, turn, folder).items():
            for number in range(execs if operation == "exec" else 1):
                order = list(by)
                first = (turn + number) % len(order)
                for way in order[first:] + order[:first]:
                    began = time.perf_counter()
                    done = by[way]()
                    if done is not None:
                        await done
                    taken.setdefault((operation, way), []).append(time.perf_counter() - began)
    rows: dict[str, dict[str, float]] = {}
    for operation in OPERATIONS:
        spent = {way: 1000 * statistics.median(taken[operation, way]) for way in ("gym", "api", "cli")}
        rounded = {way: round(milliseconds, 1) for way, milliseconds in spent.items()}
        rows[operation] = {**rounded, "gym/api": round(spent["gym"] / spent["api"], 2), "gym/cli": round(spent["gym"] / spent["cli"], 2)}
    return rows


class Ticker:
    """Wakes every millisecond, and keeps how much later than that it was, in milliseconds.

    `own` leaves out the time for which the kernel kept the ready thread waiting for a CPU: on a machine whose
    cores are busy with the commands themselves every process is held up by that, whatever it does.
    """

    def __init__(self) -> None:
        self.late: list[float] = []
        self.own: list[float] = []

    async def run(self) -> None:
        schedule = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

        def waited_for_a_cpu() -> float:
            return int(schedule.read_bytes().split()[1]) / 1e6

        while True:
            before, waited = time.perf_counter(), waited_for_a_cpu()
            await asyncio.sleep(TICK_S)
            late = 1000 * (time.perf_counter() - before - TICK_S)
            self.late.append(late)
            self.own.append(late - (waited_for_a_cpu() - waited))


async def held_up(work: Callable[[], Any]) -> dict[str, float]:
    """Do `work` with a ticker beside it: how long the loop was held up, in milliseconds, and the seconds taken."""
    ticker = Ticker()
    ticking = asyncio.ensure_future(ticker.run())
    await asyncio.sleep(0.05)
    began = time.perf_counter()
    await work()
    took = time.perf_counter() - began
    ticking.cancel()
    figures = {
        "longest_ms": max(ticker.own),
        "p99_ms": statistics.quantiles(ticker.own, n=100)[-1],
        "longest_with_cpu_wait_ms": max(ticker.late),
    }
    return {**{name: round(value, 1) for name, value in figures.items()}, "seconds": round(took, 1)}


async def parallel(provider: Provider, image: str, folder: Path) -> dict[str, dict[str, float]]:
    """64 commands at once on 8 sandboxes, printing real output."""
    spec = SandboxSpec(image=image, ttl_s=600)
    boxes = await asyncio.gather(*(OwnedSandbox.start(provider, spec, Ownership(RUN_ID, "bench")) for _ in range(8)))

    async def all_print(command: str, least: int) -> None:
        done = await asyncio.gather(*(boxes[number % 8].exec(command) for number in range(64)))
        assert all(result.ok and len(result.stdout) >= least for result in done), [result.stderr for result in done if not result.ok][:1]

    lines = "for i in $(seq 2000); do echo line $i of what a test suite prints; done"
    flood = "head -c 4000000 /dev/urandom | base64"
    bytes_ = "head -c 4000000 /dev/urandom"
    content = (folder / "big").read_bytes()
    await all_print("true", 0)
    try:
        return {
            "a page of lines each": await held_up(lambda: all_print("ls -lR /usr/lib | head -n 300", 5000)),
            "2,000 lines, written one by one": await held_up(lambda: all_print(lines, 60_000)),
            "5 MB of text each": await held_up(lambda: all_print(flood, 5_000_000)),
            "4 MB of no text each": await held_up(lambda: all_print(bytes_, 1_000_000)),
            "5 MB of text each, and 100 MB up and down": await held_up(
                lambda: asyncio.gather(all_print(flood, 5_000_000), up_and_down(boxes[0], folder / "big"))
            ),
            "100 MB of bytes up and down": await held_up(lambda: up_and_down(boxes[0], content)),
        }
    finally:
        await asyncio.gather(*(box.stop() for box in boxes))


async def up_and_down(box: OwnedSandbox, data: bytes | Path) -> None:
    await box.upload("/tmp/copy", data)
    assert len(await box.download("/tmp/copy")) == SIZE


async def measure(image: str, rounds: int, execs: int) -> dict[str, Any]:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        sys.exit(f"DOCKER_HOST is {host}: this benchmark needs an engine on a socket of this machine")
    provider = provider_from_block("sandbox", {"docker": {"create": {"network": "none", "pull": "never"}}})
    with tempfile.TemporaryDirectory() as name:
        try:
            one = await single(provider, RawEngine(host.removeprefix("unix://")), image, rounds, execs, Path(name))
            return {"milliseconds": one, "event_loop": await parallel(provider, image, Path(name))}
        finally:
            await provider.sweep(run_id=RUN_ID)
            await provider.aclose()
            remove_the_rest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--execs", type=int, default=10, help="in each round")
    parser.add_argument("--image", default="gym-base:bookworm")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    result = asyncio.run(measure(options.image, options.rounds, options.execs))
    text = json.dumps(result, indent=2)
    if options.json:
        options.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
