"""The floor under an episode: the same number of bare HTTP hops with the same bytes, and nothing else.

The hops of one real episode are recorded (colocated, the single-tool example), then replayed by an aiohttp client against
bare ASGI applications on uvicorn that answer with as many bytes: one stands for our servers, one for the model's endpoint.
In processes every hop goes over HTTP; colocated only those to the endpoint do. The endpoint's CPU is not counted.
Used by table.py.
"""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil


@dataclass(frozen=True)
class Hop:
    """One request of an episode and the size of its reply."""

    method: str
    path: str
    headers: dict[str, str]
    size: int
    reply_size: int
    external: bool
    """Whether it goes to the model's endpoint."""


def record_hops(command: list[str], cwd: Path, folder: Path) -> list[Hop]:
    """The hops of the one episode that `command`, the arguments of `gym`, runs colocated."""
    out = folder / "hops.json"
    subprocess.run([sys.executable, __file__, "record", str(out), *command], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    return [Hop(**hop) for hop in json.loads(out.read_text())]


def replay(hops: list[Hop], count: int, concurrency: int, latency: float) -> dict[str, float]:
    """Episodes per second and CPU-ms per episode of `count` episodes of bare `hops`."""
    with _serving(hops, 0.0) as (servers, near), _serving(hops, latency) as (_, far):
        before = _cpu(servers)
        started, own = time.perf_counter(), time.process_time()
        asyncio.run(_replay(hops, count, concurrency, near, far))
        wall, cpu = time.perf_counter() - started, time.process_time() - own + _cpu(servers) - before
    return {"rollouts_per_s": round(count / wall, 1), "cpu_ms_per_rollout": round(1000 * cpu / count, 2)}


async def _replay(hops: list[Hop], count: int, concurrency: int, near: str, far: str) -> None:
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        left = iter(range(count))

        async def worker() -> None:
            for _ in left:
                for index, hop in enumerate(hops):
                    url = f"{far if hop.external else near}/{index}"
                    async with session.request(hop.method, url, data=b"x" * hop.size or None, headers=hop.headers) as reply:
                        await reply.read()

        await asyncio.gather(*(worker() for _ in range(min(concurrency, count))))


@contextmanager
def _serving(hops: list[Hop], latency: float) -> Iterator[tuple[psutil.Process, str]]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=8192)
    fd = listener.fileno()
    sizes = json.dumps([hop.reply_size for hop in hops])
    process = subprocess.Popen([sys.executable, __file__, "serve", str(fd), str(latency), sizes], pass_fds=[fd])
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    try:
        time.sleep(1)
        yield psutil.Process(process.pid), url
    finally:
        process.kill()
        process.wait()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _serve(fd: int, latency: float, sizes: list[int]) -> None:
    import uvicorn

    bodies = [b"x" * size for size in sizes]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        body = bodies[int(scope["path"][1:])]
        if latency:
            await asyncio.sleep(latency)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", proxy_headers=False, backlog=8192)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])


def _record(out: str, command: list[str]) -> None:
    import aiohttp

    from gym.cli.main import main
    from gym.transports import InProcessTransport

    hops: list[Hop] = []
    send, request = InProcessTransport.send, aiohttp.ClientSession._request

    async def noted_send(self: Any, method: str, url: str, headers: Any, body: bytes) -> Any:
        reply = await send(self, method, url, headers, body)
        hops.append(Hop(method, url, dict(headers), len(body), len(reply.body), external=False))
        return reply

    async def noted_request(self: Any, method: str, url: Any, **options: Any) -> Any:
        reply = await request(self, method, url, **options)
        headers = {**self.headers, **(options.get("headers") or {})}
        hops.append(Hop(method, str(url), headers, len(options.get("data") or b""), reply.content_length or 0, external=True))
        return reply

    InProcessTransport.send, aiohttp.ClientSession._request = noted_send, noted_request  # type: ignore[method-assign]
    sys.argv[1:] = command
    try:
        main()
    finally:
        Path(out).write_text(json.dumps([asdict(hop) for hop in hops]))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4]))
    else:
        _record(sys.argv[2], sys.argv[3:])
