"""The Docker provider's parts against an engine of our own that misbehaves on purpose."""

import asyncio
import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gym.sandbox.output import BoundedOutput
from gym.sandbox.ownership import Ownership, new_sandbox_id
from gym.sandbox.providers.docker.address import engine_address
from gym.sandbox.providers.docker.archive import OnlyFile, tar_of, tar_stream
from gym.sandbox.providers.docker.credentials import registry_auth, registry_of
from gym.sandbox.providers.docker.engine import Engine, EngineError
from gym.sandbox.providers.docker.images import Images
from gym.sandbox.providers.docker.provider import DockerProvider
from gym.sandbox.providers.docker_options import DockerOptions
from gym.sandbox.spec import SandboxError, SandboxFileError, SandboxSpec
from gym.sandbox.sweeping import sweep_argv


class FakeEngine:
    """An engine that answers as its fields say, and remembers what it was asked."""

    def __init__(self) -> None:
        self.pulls: list[bytes] = []
        self.asked: list[str] = []
        self.images: set[str] = set()
        self.containers: set[str] = set()
        self.create_delay_s = 0.0
        self.removals_refused = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.partition("/v1.41")[2] or request.path
        self.asked.append(f"{request.method} {path}")
        if path == "/_ping":
            return web.Response(text="OK", headers={"Api-Version": "1.41"})
        if path == "/info":
            return web.json_response({"NCPU": 2, "MemTotal": 4 << 30})
        if path.startswith("/images/") and path.endswith("/json"):
            there = path.removeprefix("/images/").removesuffix("/json") in self.images
            return web.json_response({"Id": "sha256:1"}) if there else web.json_response({"message": "No such image"}, status=404)
        if path == "/images/create":
            said = self.pulls.pop(0) if self.pulls else b'{"status":"ok"}\n'
            if b"error" not in said:
                self.images.add(f"{request.query['fromImage']}")
            return web.Response(body=said)
        if path == "/containers/create":
            await asyncio.sleep(self.create_delay_s)
            self.containers.add(request.query["name"])
            return web.json_response({"Id": "c1"}, status=201)
        if request.method == "DELETE":
            if self.removals_refused:
                self.removals_refused -= 1
                return web.json_response({"message": "removal of container is already in progress"}, status=409)
            name = path.rsplit("/", 1)[-1]
            if name not in self.containers:
                return web.json_response({"message": "No such container"}, status=404)
            self.containers.discard(name)
            return web.Response(status=204)
        if path == "/hang":
            await asyncio.sleep(30)
        return web.json_response({"message": "you broke it"}, status=500)


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeEngine]:
    engine = FakeEngine()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", engine.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "e.sock")).start()
    yield engine
    await runner.cleanup()


@pytest.fixture
async def engine(fake: FakeEngine, tmp_path: Path) -> AsyncIterator[Engine]:
    made = Engine(engine_address(f"unix://{tmp_path}/e.sock"), 5)
    yield made
    await made.aclose()


QUOTA = b'{"status":"Pulling"}\n{"errorDetail":{},"error":"toomanyrequests: You have reached your pull rate limit"}\n'
UNKNOWN = b'{"errorDetail":{},"error":"manifest for x not found: manifest unknown"}\n'
FLAKY = b'{"errorDetail":{},"error":"net/http: TLS handshake timeout"}\n'


@pytest.mark.parametrize(
    ("replies", "pulls", "kind"),
    [
        ([], 1, None),
        ([FLAKY, QUOTA], 3, None),
        ([QUOTA] * 9, 3, "provider_quota_exhausted"),
        ([FLAKY] * 9, 3, "provider_unavailable"),
        ([UNKNOWN] * 9, 1, "provider_unavailable"),
    ],
)
async def test_a_pull_is_tried_as_often_as_it_makes_sense(
    fake: FakeEngine, engine: Engine, replies: list[bytes], pulls: int, kind: str | None
) -> None:
    fake.pulls = list(replies)
    images = Images(engine, attempts=3, timeout_s=5, first_wait_s=0.001)
    if kind is None:
        assert (await images.ensure("x", "missing"))["Id"] == "sha256:1"
    else:
        with pytest.raises(SandboxError) as failed:
            await images.ensure("x", "missing")
        assert failed.value.kind == kind
    assert fake.asked.count("POST /images/create") == pulls


async def test_an_image_is_pulled_once_for_all_who_wait(fake: FakeEngine, engine: Engine) -> None:
    images = Images(engine, attempts=1, timeout_s=5)
    await asyncio.gather(*(images.ensure("x", "missing") for _ in range(10)))
    assert fake.asked.count("POST /images/create") == 1


async def test_errors_say_what_the_engine_said(engine: Engine) -> None:
    with pytest.raises(EngineError, match="refused GET /broken: you broke it") as refused:
        await engine.json("GET", "/broken")
    assert refused.value.status == 500
    with pytest.raises(EngineError, match=r"no answer to GET /hang within 0\.05 s") as late:
        await engine.request("GET", "/hang", timeout_s=0.05)
    assert late.value.unreachable


async def test_a_container_that_the_engine_makes_after_we_gave_up_is_removed(fake: FakeEngine, tmp_path: Path) -> None:
    fake.images.add("x")
    fake.create_delay_s = 0.3
    fake.removals_refused = 2
    provider = DockerProvider(DockerOptions(host=f"unix://{tmp_path}/e.sock"))
    creating = asyncio.create_task(provider.create(new_sandbox_id(), SandboxSpec(image="x"), Ownership("r", "i")))
    await asyncio.sleep(0.1)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert "POST /containers/create" in fake.asked
    assert not fake.containers
    await provider.aclose()


async def test_a_start_that_fails_is_taken_back(fake: FakeEngine, tmp_path: Path) -> None:
    fake.images.add("x")
    provider = DockerProvider(DockerOptions(host=f"unix://{tmp_path}/e.sock"))
    with pytest.raises(SandboxError, match="you broke it"):
        await provider.create(new_sandbox_id(), SandboxSpec(image="x"), Ownership("r", "i"))
    assert not fake.containers
    await provider.aclose()


@given(st.lists(st.binary(max_size=300), max_size=30), st.integers(min_value=2, max_value=400))
def test_bounded_output_keeps_start_and_end(chunks: list[bytes], limit: int) -> None:
    output, whole = BoundedOutput(limit), b"".join(chunks)
    for chunk in chunks:
        output.feed(chunk)
    kept = output.content()
    if len(whole) <= limit:
        assert kept == whole
        assert not output.truncated
    else:
        assert output.truncated
        assert kept.startswith(whole[: limit - limit // 2])
        assert kept.endswith(whole[len(whole) - limit // 2 :])
        assert f"[... {len(whole) - limit} bytes left out ...]".encode() in kept


@pytest.mark.parametrize(
    ("host", "environ", "expected"),
    [
        (None, {}, "http://docker"),
        ("unix:///x/y.sock", {"DOCKER_HOST": "tcp://a:1"}, "http://docker"),
        (None, {"DOCKER_HOST": "tcp://a:1"}, "http://a:1"),
        ("tcp://box", {}, "http://box:2375"),
        ("https://box", {}, "https://box:2376"),
    ],
)
def test_addresses(tmp_path: Path, host: str | None, environ: dict[str, str], expected: str) -> None:
    assert engine_address(host, environ=environ | {"DOCKER_CONFIG": str(tmp_path)}).base_url == expected


@pytest.mark.parametrize("host", ["ssh://user@box", "box:2375", "unix://", "npipe:////./pipe/docker"])
def test_addresses_that_cannot_be_used(host: str) -> None:
    with pytest.raises(SandboxError, match="give unix:///path or tcp://host:port"):
        engine_address(host)


def test_a_docker_context_is_followed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"currentContext": "far"}')
    environ = {"DOCKER_CONFIG": str(tmp_path)}
    with pytest.raises(SandboxError, match="context 'far' cannot be read"):
        engine_address(environ=environ)
    meta = tmp_path / "contexts" / "meta" / hashlib.sha256(b"far").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text('{"Endpoints": {"docker": {"Host": "tcp://far:2375"}}}')
    assert engine_address(environ=environ).base_url == "http://far:2375"


async def test_registry_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [registry_of(name) for name in ("python:3.12", "a/b", "ghcr.io/a/b", "localhost:5000/a", "localhost/a")] == [
        "docker.io",
        "docker.io",
        "ghcr.io",
        "localhost:5000",
        "localhost",
    ]
    assert await registry_auth("ghcr.io/a/b", tmp_path) is None
    auth = base64.b64encode(b"me:pass:word").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"ghcr.io": {"auth": auth}}, "credHelpers": {"reg.io": "own"}}))
    header = await registry_auth("ghcr.io/a/b", tmp_path)
    assert header is not None
    assert json.loads(base64.urlsafe_b64decode(header)) == {"username": "me", "password": "pass:word", "serveraddress": "ghcr.io"}
    assert await registry_auth("reg.io/a", tmp_path) is None, "a helper that is missing is no login"
    helper = tmp_path / "docker-credential-own"
    helper.write_text('#!/bin/sh\nread server\nprintf \'{"Username": "u", "Secret": "%s"}\' "$server"\n')
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    header = await registry_auth("reg.io/a", tmp_path)
    assert header is not None
    assert json.loads(base64.urlsafe_b64decode(header))["password"] == "reg.io"


async def packed(tar: AsyncIterator[bytes | memoryview]) -> bytes:
    return b"".join([bytes(piece) async for piece in tar])


async def unpacked(path: str, archive: bytes, max_bytes: int, piece: int = 700) -> bytes:
    file = OnlyFile(path, max_bytes)
    for start in range(0, len(archive), piece):
        file.feed(archive[start : start + piece])
    return await file.content()


async def test_tars_hold_one_plain_file(tmp_path: Path) -> None:
    long = "/" + "/".join(["folder name"] * 20) + "/file"
    for piece in (1, 511, 512, 513, 100_000):
        assert await unpacked(long, await packed(tar_of({long: b"x" * 1000})), 1000, piece) == b"x" * 1000
    with tarfile.open(fileobj=io.BytesIO(await packed(tar_of({"/a": b"1", long: b"22", "/c": b""}, 0o755)))) as tar:
        found = {f"/{member.name}": (member.size, member.mode, tar.extractfile(member).read()) for member in tar}  # type: ignore[union-attr]
    assert found == {"/a": (1, 0o755, b"1"), long: (2, 0o755, b"22"), "/c": (0, 0o755, b"")}
    with pytest.raises(SandboxFileError, match="1001 bytes"):
        await unpacked("/a", await packed(tar_of({"/a": b"x" * 1001})), 1000)
    whole = await packed(tar_of({"/a": b"x" * 5000}))
    for odd in (b"", b"no tar at all" * 100, whole[:400], whole[:4000]):
        with pytest.raises(SandboxFileError):
            await unpacked("/a", odd, 10_000)
    folder = io.BytesIO()
    with tarfile.open(fileobj=folder, mode="w") as tar:
        tar.add(tmp_path, "a", recursive=False)
    with pytest.raises(SandboxFileError, match="not a regular file"):
        await unpacked("/a", folder.getvalue(), 10)
    for size in (0, 1, 511, 512, 513, 3_000_000):
        source = tmp_path / "source"
        source.write_bytes(b"y" * size)
        assert await unpacked("/a", await packed(tar_stream("/a", source, 0o644)), size, 65536) == b"y" * size


async def test_long_output_is_made_text_without_holding_up_the_loop() -> None:
    text = "é€𝄞\n" * 50_000
    output = BoundedOutput(10**7)
    whole = text.encode() + b"\xff\xf0\x9d"
    for start in range(0, len(whole), 9999):
        output.feed(memoryview(whole)[start : start + 9999])
    steps = 0

    async def count() -> None:
        nonlocal steps
        while True:
            await asyncio.sleep(0)
            steps += 1

    counting = asyncio.ensure_future(count())
    assert await output.text() == whole.decode(errors="replace")
    counting.cancel()
    assert steps > 20


def test_the_sweep_ends_marked_trees_and_nothing_else() -> None:
    started = [
        subprocess.Popen(
            ["sh", "-c", "env -i sleep 1000 & setsid sleep 1000 & wait"], env={"GYM_EXEC_ID": mark, "PATH": os.environ["PATH"]}
        )
        for mark in ("sweep-me-1", "leave-me-2")
    ]
    try:
        time.sleep(0.3)
        subprocess.run(sweep_argv("GYM_EXEC_ID=sweep-me-1"), check=True, timeout=60)
        assert started[0].wait(5) == -9
        assert started[1].poll() is None
    finally:
        subprocess.run(sweep_argv("GYM_EXEC_ID=leave-me-2"), check=True, timeout=60)
        for child in started:
            child.wait(5)
