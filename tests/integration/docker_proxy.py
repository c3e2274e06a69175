"""A proxy for tests before a Docker engine's socket: passes everything on, and stops or loses what a test names.

It also hides the sandboxes behind it from reapers of other tests, and theirs from us, by putting a
word of the test's own in the label that says what is a sandbox of ours.

It knows requests by their first line, at the start of what a client sends: our client never sends
one before it has the answer to the last.
"""

import asyncio
import contextlib
import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.integration.apart import served_apart

_REQUEST = re.compile(rb"^(?:POST|GET|DELETE|PUT|HEAD) \S+")


@dataclass
class Rule:
    """What to do with the `nth` request whose first line matches (counted from 1), once.

    `hold` keeps the request back until `go` is set, `hold_reply` the reply to it; `lose` closes the connection
    in place of the reply, and `late` does so at once and delivers the request `seconds` later.
    """

    pattern: str
    what: Literal["hold", "hold_reply", "lose", "late"]
    nth: int = 1
    seconds: float = 0
    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    seen: int = 0


@dataclass
class DockerProxy:
    """The proxy at `path`."""

    path: Path
    veil: bytes = field(default_factory=lambda: secrets.token_hex(4)[:7].encode())
    target: str = "/var/run/docker.sock"
    rules: list[Rule] = field(default_factory=list[Rule])
    requests: list[str] = field(default_factory=list[str])
    _tasks: "set[asyncio.Task[None]]" = field(default_factory=lambda: set[asyncio.Task[None]]())

    @property
    def host(self) -> str:
        """For the provider's `host`."""
        return f"unix://{self.path}"

    def rule(self, rule: Rule) -> Rule:
        """Add a rule."""
        self.rules.append(rule)
        return rule

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, for as many requests as it carries."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        upstream = None
        pump = None
        try:
            engine, upstream = await asyncio.open_unix_connection(self.target)
            pump = asyncio.ensure_future(_pump(engine, writer, self.veil))
            while data := await reader.read(65536):
                data = data.replace(b"nemo-gym.sandbox", b"nemo-gym." + self.veil)  # of the same length
                rule = self._match(data)
                if rule is None:
                    upstream.write(data)
                    await upstream.drain()
                    continue
                if rule.what == "late":
                    writer.transport.abort()
                    rule.reached.set()
                    await asyncio.sleep(rule.seconds)
                if rule.what == "hold":
                    await self._wait(rule, reader)
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)
                upstream.write(data)
                await upstream.drain()
                first = await engine.read(1)  # the engine has done it
                if rule.what == "hold_reply":
                    await self._wait(rule, reader)
                rule.reached.set()
                if rule.what in ("lose", "late"):
                    return
                writer.write(first)
                pump = asyncio.ensure_future(_pump(engine, writer, self.veil))
        except OSError:
            return
        finally:
            if pump is not None:
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)
            writer.transport.abort()
            if upstream is not None:
                upstream.transport.abort()
            self._tasks.discard(task)

    async def _wait(self, rule: Rule, reader: asyncio.StreamReader) -> None:
        """Until the rule lets go. Raises OSError if the client leaves before."""
        rule.reached.set()
        while not rule.go.is_set():
            if reader.at_eof():
                raise ConnectionResetError("the client has left")
            await asyncio.sleep(0.02)

    def let_go(self) -> None:
        """Let everything through that is held, and hold nothing more."""
        for rule in self.rules:
            rule.go.set()

    def _match(self, data: bytes) -> Rule | None:
        found = _REQUEST.match(data)
        if found is None:
            return None
        line = found.group().decode()
        self.requests.append(line)
        for rule in self.rules:
            if re.search(rule.pattern, line):
                rule.seen += 1
                if rule.seen == rule.nth:
                    return rule
        return None

    async def serve(self, stop: asyncio.Event, up: threading.Event) -> None:
        """Serve until `stop`."""
        server = await asyncio.start_unix_server(self.handle, self.path)
        up.set()
        await stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pump(engine: asyncio.StreamReader, writer: asyncio.StreamWriter, veil: bytes) -> None:
    with contextlib.suppress(OSError):
        while data := await engine.read(65536):
            writer.write(data.replace(b"nemo-gym." + veil, b"nemo-gym.sandbox"))
            await writer.drain()
        writer.close()


@contextlib.contextmanager
def docker_proxy(path: Path) -> Iterator[DockerProxy]:
    """A proxy in a thread of its own, as the programs that use it are other processes."""
    proxy = DockerProxy(path)
    with served_apart(proxy.serve):
        yield proxy
