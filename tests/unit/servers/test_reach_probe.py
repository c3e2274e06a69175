"""The probe that says whether a sandbox reaches us: each of its tools against a real socket, and how it fails."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from gym.protocol.errors import ContractError
from gym.runtime.listen import answering, open_socket, url_of
from gym.sandbox.handles import BorrowedSandbox
from gym.sandbox.reach import ReachError, check_reach
from gym.sandbox.spec import ExecResult, SandboxError
from gym.servers import ModelServer
from gym.servers.reaching import ReachChecks
from tests.unit.servers.conftest import Rig

SHELL = shutil.which("dash") or "/bin/sh"

NC = f"""#!{sys.executable}
import shutil, socket, sys, threading
host, port = sys.argv[-2:]
with socket.create_connection((host, int(port)), 9) as connection:
    def send():
        while data := sys.stdin.buffer.raw.read(4096):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    threading.Thread(target=send, daemon=True).start()
    while data := connection.recv(4096):
        sys.stdout.buffer.write(data)
"""


class Box:
    """Stands for a sandbox whose image has these programs, and no others."""

    sandbox_id = "nemo-gym-box"

    def __init__(self, folder: Path, *tools: str) -> None:
        self.observations = {"network": "internal"}
        self.runs = 0
        self.began = asyncio.Event()
        self.result: ExecResult | None = None
        self._bin = folder / "bin"
        self._bin.mkdir()
        for tool in (*tools, "cat"):
            path = sys.executable if tool.startswith("python") else shutil.which(tool)
            if path is None:
                (self._bin / tool).write_text(NC)  # what the probe asks of it, and that it half-closes at the end of its input
                (self._bin / tool).chmod(0o755)
            else:
                (self._bin / tool).symlink_to(path)

    async def exec(self, command: str, *, env: dict[str, str], timeout_s: float, **_: Any) -> ExecResult:
        self.runs += 1
        self.began.set()
        await asyncio.sleep(0)
        if self.result is not None:
            return self.result
        environ = {"PATH": str(self._bin), "http_proxy": "http://127.0.0.1:9", **env}
        process = await asyncio.create_subprocess_exec(
            SHELL,
            "-c",
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), timeout_s)
        except TimeoutError:
            os.killpg(process.pid, 9)
            await process.wait()
            return ExecResult("tool=bash\n", "", 124, "timeout")
        return ExecResult(out.decode(), err.decode(), process.returncode or 0)


def borrowed(box: Box) -> BorrowedSandbox:
    return cast("BorrowedSandbox", box)


@pytest.fixture
async def url(rig: Rig) -> AsyncIterator[str]:
    """Where the data routes of a server answer."""
    model = await rig.add("model", ModelServer)
    listener = open_socket("127.0.0.1", 0, "model")
    async with answering(model.app().data(), listener):
        yield url_of(listener)


@pytest.fixture
def refused() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return url_of(listener)


@pytest.mark.parametrize("tool", ["bash", "python3", "python", "curl", "wget", "busybox", "nc"])
async def test_every_tool_reaches_what_answers_and_nothing_else(tmp_path: Path, url: str, refused: str, tool: str) -> None:
    box = Box(tmp_path, tool)
    (reached,) = await check_reach(borrowed(box), [url])
    assert reached.tool.startswith(tool)
    with pytest.raises(ReachError) as caught:
        await check_reach(borrowed(box), [url, refused])
    said = str(caught.value)
    assert f"sandbox nemo-gym-box (network internal) does not reach {refused}: {reached.tool} said: " in said
    assert "reach_host" in said
    assert "\n" not in said
    assert caught.value.kind == "transport_unreachable"


async def test_an_image_without_tools_is_not_known_and_not_failed(tmp_path: Path, refused: str) -> None:
    (reached,) = await check_reach(borrowed(Box(tmp_path)), [refused])
    assert reached.tool == ""


async def test_another_program_at_the_address_is_no_success(tmp_path: Path) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhello\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
        with pytest.raises(ReachError, match="said: hello"):
            await check_reach(borrowed(Box(tmp_path, "bash")), [url_of(cast("socket.socket", server.sockets[0]))])


async def test_what_never_answers_is_said_after_its_time(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ReachError, match=r"bash said: no answer within 0.5 s"):
        await check_reach(borrowed(Box(tmp_path, "bash")), [url_of(silent)], timeout_s=0.5)


async def test_a_dead_sandbox_is_no_finding_about_the_network(tmp_path: Path, url: str) -> None:
    box = Box(tmp_path, "bash")
    box.result = ExecResult("", "gone", 125, "sandbox")
    with pytest.raises(SandboxError) as caught:
        await check_reach(borrowed(box), [url])
    assert caught.value.kind == "session_lost"
    with pytest.raises(ContractError) as refused:
        await ReachChecks().check("sandbox", url, borrowed(box))
    assert refused.value.terminal is False
    box.result = None
    checks = ReachChecks()
    await checks.check("sandbox", url, borrowed(box))


async def test_one_checks_and_the_others_wait(tmp_path: Path, url: str) -> None:
    box, checks = Box(tmp_path, "bash"), ReachChecks()
    await asyncio.gather(*(checks.check("sandbox", url, borrowed(box)) for _ in range(20)))
    await checks.check("sandbox", url, borrowed(box))
    assert box.runs == 1
    await checks.check("another", url, borrowed(box))
    assert box.runs == 2


async def test_the_one_who_checks_is_cancelled_and_the_next_checks(tmp_path: Path, url: str) -> None:
    box, checks = Box(tmp_path, "bash"), ReachChecks()
    first = asyncio.ensure_future(checks.check("sandbox", url, borrowed(box)))
    second = asyncio.ensure_future(checks.check("sandbox", url, borrowed(box)))
    await box.began.wait()
    first.cancel()
    await second
    assert (first.cancelled() or isinstance(first.exception(), asyncio.CancelledError), box.runs) == (True, 2)


async def test_a_failure_stands_for_a_while_and_is_tried_again(tmp_path: Path, refused: str) -> None:
    box, checks = Box(tmp_path, "bash"), ReachChecks(retry_seconds=3600)
    for _ in range(3):
        with pytest.raises(ContractError) as caught:
            await checks.check("sandbox", refused, borrowed(box))
        assert (caught.value.terminal, caught.value.kind) == (True, "transport_unreachable")
    assert box.runs == 1
    soon = ReachChecks(retry_seconds=0)
    for _ in range(2):
        with pytest.raises(ContractError):
            await soon.check("sandbox", refused, borrowed(box))
    assert box.runs == 3


async def test_what_is_not_known_is_tried_with_the_next_sandbox(tmp_path: Path, url: str) -> None:
    bare, checks = Box(tmp_path), ReachChecks()
    for _ in range(2):
        await checks.check("sandbox", url, borrowed(bare))
    assert bare.runs == 2
