"""Measures what one call between servers costs, by how it travels.

    uv run --with httpx --with httpx-aiohttp python benchmarks/perf/transports.py [--calls N]

The same small POST to the same server (the single-tool example's `/verify`), in one process, so that
client and server are both counted: straight into the ASGI application and over loopback HTTP, with our
client and with httpx. CPU-milliseconds per call; the variants take turns, and the least of the rounds counts.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import orjson
import uvloop
from httpx_aiohttp import AiohttpTransport

from gym.client import Peer
from gym.config.schema import ResourcesServerConfig
from gym.protocol import routes
from gym.runtime.listen import answering, open_socket, url_of
from gym.servers.auth import Credentials
from gym.servers.context import ServerContext
from gym.transports import HTTPTransport, InProcessTransport
from resources_servers.example_single_tool_call.app import WeatherServer

BODY = {
    "responses_create_params": {"input": [{"role": "user", "content": "What is the weather in Oslo?"}]},
    "response": {"id": "r", "output": [{"type": "function_call", "name": "get_weather", "arguments": '{"city":"Oslo"}', "call_id": "c"}]},
}
AT_ONCE = 64
ROUNDS = 5

Call = Callable[[], Awaitable[object]]


async def cpu_ms(call: Call, count: int) -> float:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            await call()

    before = time.process_time()
    await asyncio.gather(*(one() for _ in range(count)))
    return 1000 * (time.process_time() - before) / count


async def measure(count: int) -> None:
    credentials = Credentials("t" * 32, "s" * 32)
    in_process, over_http = InProcessTransport(), HTTPTransport()
    with tempfile.TemporaryDirectory() as folder, open_socket("127.0.0.1", 0, "bench") as listener:
        url = url_of(listener)
        context = ServerContext("bench", "run", url, credentials, {}, over_http, Path(folder))
        app = WeatherServer(ResourcesServerConfig(), context).app()
        in_process.add("bench.in-process", app)
        headers = credentials.headers()
        inner = Peer("bench", "http://bench.in-process", in_process, headers=headers)
        outer = Peer("bench", url, over_http, headers=headers)
        async with (
            answering(app, listener),
            httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://bench", headers=headers) as asgi,
            httpx.AsyncClient(transport=AiohttpTransport(), base_url=url, headers=headers) as aio,
        ):
            variants: dict[str, Call] = {
                "in process, our client": lambda: inner.post(routes.VERIFY, BODY, timeout=30),
                "in process, httpx.ASGITransport": lambda: asgi.post(routes.VERIFY, content=orjson.dumps(BODY)),
                "loopback, our client (aiohttp)": lambda: outer.post(routes.VERIFY, BODY, timeout=30),
                "loopback, httpx with httpx-aiohttp": lambda: aio.post(routes.VERIFY, content=orjson.dumps(BODY)),
            }
            best = dict.fromkeys(variants, float("inf"))
            for _ in range(ROUNDS):
                for name, call in variants.items():
                    best[name] = min(best[name], await cpu_ms(call, count))
        await over_http.aclose()
        await in_process.aclose()
    for name, cost in best.items():
        print(f"{name:<36} {cost:.3f} ms of CPU per call")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2_000)
    uvloop.run(measure(parser.parse_args().calls))
