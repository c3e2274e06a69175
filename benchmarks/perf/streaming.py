"""Measures streamed model calls through `openai_model` against the same load straight at the endpoint.

    python benchmarks/perf/streaming.py [--streams N] [--tokens N] [--rate N] [--calls N]

The endpoint is a stand-in in a process of its own that sends `--rate` tokens a second on each stream. Each
stream is held to carry every one of its own tokens, once and in order, and nothing else; that is
checked, and a run in which it does not hold ends with exit code 1. Nothing here asserts anything about speed.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

GYM = Path(sys.executable).with_name("gym")
PHASES = 10
"""Streams are sent their tokens in this many groups, one after the other, so that the load is even."""
ROUTES = {"/v1/chat/completions": "passed through", "/v1/messages": "converted to Messages", "/v1/responses": "converted to Responses"}


class Peer(asyncio.Protocol):
    """One connection to the stand-in: a request, then tokens at every tick of its phase."""

    def __init__(self, phases: list[set["Peer"]], tokens: int) -> None:
        self._phases, self._tokens = phases, tokens
        self._received, self._sent, self._key = b"", 0, 0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.I)
        if not end or not length or len(body) < int(length[1]):
            return
        self._received, self._sent = b"", 0
        self._key = int(re.search(rb"stream (\d+)", body)[1])  # type: ignore[index]
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        self.tick()
        self._phases[self._key % PHASES].add(self)

    def tick(self) -> None:
        """Send the next token, or the end after the last."""
        if self._sent < self._tokens:
            self._event(choices=[{"index": 0, "delta": {"content": f"{self._key}:{self._sent} "}, "finish_reason": None}])
            self._sent += 1
            return
        self._phases[self._key % PHASES].discard(self)
        self._event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
        usage = {"prompt_tokens": 1, "completion_tokens": self._tokens, "total_tokens": self._tokens + 1}
        self._event(choices=[], usage=usage)
        self._chunk(b"data: [DONE]\n\n")
        self._transport.write(b"0\r\n\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._phases[self._key % PHASES].discard(self)

    def _event(self, **fields: Any) -> None:
        event = {"id": f"chatcmpl-{self._key}", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}
        self._chunk(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))


def stand_in(tell: Connection, tokens: int, rate: float) -> None:
    """The endpoint; its port is told, and it goes on until it is killed."""

    async def serve() -> None:
        phases: list[set[Peer]] = [set() for _ in range(PHASES)]
        server = await asyncio.get_running_loop().create_server(lambda: Peer(phases, tokens), "127.0.0.1", 0, backlog=4096)
        tell.send(server.sockets[0].getsockname()[1])
        due = time.monotonic()
        for turn in itertools.count():
            due += 1 / rate / PHASES
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            for peer in list(phases[turn % PHASES]):
                peer.tick()

    asyncio.run(serve())


class Client(asyncio.Protocol):
    """One streamed call, read to its end."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received: list[bytes] = []
        self.began = self.first = 0.0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.received.append(data)
        if not self.first and b":0 " in data:
            self.first = time.perf_counter() - self.began
        if (data == b"0\r\n\r\n" or data.endswith(b"\r\n0\r\n\r\n")) and not self.done.done():
            self.done.set_result(None)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(b"".join(self.received)[-300:].decode(errors="replace")))

    def text(self) -> str:
        """What the stream said."""
        whole = b"".join(re.findall(rb"[0-9a-f]+\r\n((?:[^\r]|\r(?!\n))*)\r\n", b"".join(self.received).partition(b"\r\n\r\n")[2]))
        said = ""
        for line in whole.splitlines():
            event = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            if event.get("choices"):
                said += event["choices"][0]["delta"].get("content") or ""
            elif event.get("type") == "content_block_delta":
                said += event["delta"]["text"]
            elif event.get("type") == "response.output_text.delta":
                said += event["delta"]
        return said


class Target:
    """Where calls are sent: an endpoint, or a model server before it."""

    def __init__(self, port: int, token: str = "", prefix: str = "") -> None:
        self.port, self._token, self._prefix = port, token, prefix

    def request(self, route: str, key: int) -> bytes:
        """The bytes of one streamed call."""
        asked = [{"role": "user", "content": f"stream {key}"}]
        body: dict[str, Any] = {"model": "m", "stream": True}
        body |= {"input": asked} if route.endswith("responses") else {"messages": asked, "max_tokens": 10_000}
        sent = json.dumps(body).encode()
        head = f"POST {self._prefix.format(key=key)}{route} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
        return f"{head}authorization: Bearer {self._token}\r\ncontent-length: {len(sent)}\r\n\r\n".encode() + sent

    async def call(self, route: str, key: int) -> Client:
        """One call, to its end."""
        client = Client(self.request(route, key))
        await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", self.port)
        await client.done
        return client


def rounds(name: str, target: Target, route: str, streams: int, tokens: int, server: psutil.Process | None) -> dict[str, Any]:
    """All streams at once; tokens per second, and what the server took for them."""

    async def run() -> tuple[list[Client], float, list[float]]:
        memory: list[float] = []

        async def watch() -> None:
            while server:
                memory.append(server.memory_info().rss / 2**20)
                await asyncio.sleep(0.5)

        watching = asyncio.ensure_future(watch())
        began = time.perf_counter()
        clients = await asyncio.gather(*(target.call(route, key) for key in range(streams)))
        took = time.perf_counter() - began
        watching.cancel()
        return clients, took, memory

    cpu = sum(server.cpu_times()[:2]) if server else 0.0
    clients, took, memory = asyncio.run(run())
    wrong = [key for key, client in enumerate(clients) if client.text() != "".join(f"{key}:{n} " for n in range(tokens))]
    if wrong:
        sys.exit(f"{name}: {len(wrong)} of {streams} streams did not carry their own tokens, in order: {wrong[:5]}")
    row: dict[str, Any] = {"what": name, "tokens/s": streams * tokens / took}
    row["first token, median ms"] = 1000 * statistics.median(client.first for client in clients)
    if server:
        row["server's CPU per token, µs"] = 1e6 * (sum(server.cpu_times()[:2]) - cpu) / streams / tokens
        row["its memory from the middle on, MiB"] = f"{memory[len(memory) // 2]:.0f}-{max(memory[len(memory) // 2 :]):.0f}"
    return row


def first_tokens(targets: dict[str, tuple[Target, str]], calls: int) -> dict[str, list[float]]:
    """Milliseconds to the first token of one stream alone, the targets in turn."""

    async def run() -> dict[str, list[float]]:
        taken: dict[str, list[float]] = {name: [] for name in targets}
        for key in range(calls):
            for name, (target, route) in targets.items():
                taken[name].append(1000 * (await target.call(route, key)).first)
        return taken

    return asyncio.run(run())


@contextlib.contextmanager
def endpoint(tokens: int, rate: float) -> Iterator[int]:
    """The stand-in's port."""
    heard, tell = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=stand_in, args=(tell, tokens, rate), daemon=True)
    process.start()
    try:
        yield heard.recv()
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def model_server(port: int, folder: Path, *overrides: str) -> Iterator[tuple[int, str, psutil.Process]]:
    """A running `openai_model` before the endpoint: its port, the run's token, its process."""
    given = [f"+policy_base_url=http://127.0.0.1:{port}/v1", "+policy_api_key=EMPTY", "+policy_model_name=m", *overrides]
    command = [GYM, "env", "start", "--json", "--model-type", "openai_model", *given]
    env = {**os.environ, "GYM_STATE_DIR": str(folder)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, cwd=folder)
    try:
        ready = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        url = ready["instances"]["policy_model"]["url"]
        port = int(url.rpartition(":")[2])
        listening = [p for p in psutil.Process(process.pid).children(recursive=True) if port in {c.laddr.port for c in p.net_connections()}]
        yield port, Path(ready["token_file"]).read_text().strip(), max(listening or [psutil.Process(process.pid)], key=lambda p: p.pid)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def served(tokens: int, rate: float, *overrides: str) -> Iterator[tuple[int, int, str, psutil.Process]]:
    """The stand-in and a server before it: the ports of both, the run's token, the server's process."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as kept,
        endpoint(tokens, rate) as port,
        model_server(port, Path(kept), *overrides) as (ours, token, server),
    ):
        yield port, ours, token, server


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=200, help="of each stream")
    parser.add_argument("--rate", type=float, default=20, help="tokens a second on each stream")
    parser.add_argument("--calls", type=int, default=60, help="of one stream alone, for the time to its first token")
    options = parser.parse_args()
    direct, given = "straight at the endpoint", "+policy_model.responses_api_models.openai_model.dialects=[chat_completions]"
    with served(options.tokens, options.rate, given) as (port, ours, token, server):
        through = Target(ours, token, "/ng-rollout/r{key}")
        rows = [rounds(direct, Target(port), "/v1/chat/completions", options.streams, options.tokens, None)]
        rows += [rounds(name, through, route, options.streams, options.tokens, server) for route, name in ROUTES.items()]
    for row in rows:
        row["of the endpoint's"] = f"{row['tokens/s'] / rows[0]['tokens/s']:.1%}"
        shown = {key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()}
        print(json.dumps(shown, ensure_ascii=False))
    with served(3, 1000, given) as (port, ours, token, _):
        through = Target(ours, token, "/ng-rollout/r{key}")
        asked = {direct: (Target(port), "/v1/chat/completions")} | {name: (through, route) for route, name in ROUTES.items()}
        taken = first_tokens(asked, options.calls)
    bare = statistics.median(taken[direct])
    for name, values in taken.items():
        print(f"one stream, {name}: first token after {statistics.median(values):.2f} ms, {statistics.median(values) - bare:.2f} ms more")


if __name__ == "__main__":
    main()
