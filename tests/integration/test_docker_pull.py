"""Pulling an image from a registry that is there, is slow to answer, knows nothing, or has had enough: a real engine, a registry of ours.

Engines speak plain HTTP with a registry on loopback, so ours needs no certificates.
"""

import gzip
import hashlib
import io
import json
import secrets
import subprocess
import tarfile
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from gym.sandbox.providers.docker.address import engine_address
from gym.sandbox.providers.docker.engine import Engine
from gym.sandbox.providers.docker.images import Images
from gym.sandbox.spec import SandboxError

pytestmark = pytest.mark.docker

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
QUOTA = {"errors": [{"code": "TOOMANYREQUESTS", "message": "You have reached your pull rate limit"}]}
UNKNOWN = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}


class Registry:
    """The distribution API for one image of a single file. `refusals` are what it says before it gives the manifest."""

    def __init__(self) -> None:
        self.refusals: list[tuple[int, object]] = []
        self.for_good: tuple[int, object] | None = None
        self.manifests_asked = 0
        self.blobs: dict[str, bytes] = {}
        self.name_here = ""
        """The image's whole name, with the address of this registry."""
        self.name = f"gym-test/pulled-{secrets.token_hex(6)}"
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            content = secrets.token_bytes(1000)
            member = tarfile.TarInfo("file")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        diff = f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"
        config = json.dumps(
            {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]}}
        ).encode()
        packed = gzip.compress(layer.getvalue())
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {**self._blob(config), "mediaType": "application/vnd.docker.container.image.v1+json"},
                "layers": [{**self._blob(packed), "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip"}],
            }
        ).encode()

    def _blob(self, content: bytes) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.blobs[digest] = content
        return {"digest": digest, "size": len(content)}

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/v2/":
            return web.json_response({})
        kind, _, reference = request.path.removeprefix(f"/v2/{self.name}/").partition("/")
        if kind == "blobs":
            return web.Response(body=self.blobs[reference], content_type="application/octet-stream")
        if kind != "manifests":
            return web.json_response(UNKNOWN, status=404)
        refusal = self.refusals[0] if self.refusals else self.for_good
        if request.method == "GET":  # an engine asks by HEAD first, and by GET whatever that said
            self.manifests_asked += 1
            self.refusals = self.refusals[1:]
        if refusal is not None:
            status, said = refusal
            return web.json_response(said, status=status, headers={"Retry-After": "1"} if status == 429 else {})
        digest = f"sha256:{hashlib.sha256(self.manifest).hexdigest()}"
        return web.Response(body=self.manifest, content_type=MANIFEST, headers={"Docker-Content-Digest": digest})


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.name_here = f"127.0.0.1:{runner.addresses[0][1]}/{made.name}:1"
    yield made
    await runner.cleanup()
    subprocess.run(["docker", "rmi", "-f", made.name_here], capture_output=True, check=False, timeout=60)  # noqa: ASYNC221 - the end


@pytest.fixture
async def images(docker_engine: None) -> AsyncIterator[Images]:
    engine = Engine(engine_address(), 60)
    yield Images(engine, attempts=3, timeout_s=60, first_wait_s=0.05)
    await engine.aclose()


@pytest.mark.parametrize(
    ("refusals", "asked"),
    [([], 1), ([(429, QUOTA)], 2), ([(500, {}), (503, {})], 3)],
    ids=["at once", "after a limit of its rate", "after two errors of its own"],
)
async def test_an_image_is_pulled(registry: Registry, images: Images, refusals: list[tuple[int, object]], asked: int) -> None:
    registry.refusals = refusals
    image = await images.ensure(registry.name_here, "missing")
    assert image["RootFS"]["Layers"]
    assert registry.manifests_asked == asked
    assert (await images.ensure(registry.name_here, "missing"))["Id"] == image["Id"]
    assert registry.manifests_asked == asked, "it is there"


@pytest.mark.parametrize(
    ("status", "said", "tries", "kind"),
    [
        (404, UNKNOWN, 1, "provider_unavailable"),
        (500, {}, 3, "provider_unavailable"),
        (429, QUOTA, 3, "provider_quota_exhausted"),
    ],
    ids=["unknown image", "broken registry", "quota used up"],
)
async def test_a_pull_that_cannot_be_says_why(registry: Registry, images: Images, status: int, said: object, tries: int, kind: str) -> None:
    registry.for_good = (status, said)
    with pytest.raises(SandboxError) as failed:
        await images.ensure(registry.name_here, "missing")
    assert failed.value.kind == kind
    assert f"image '{registry.name_here}' could not be pulled ({tries} of 3 tries)" in str(failed.value)
    assert "\n" not in str(failed.value)
    assert registry.manifests_asked == tries
