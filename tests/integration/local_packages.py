"""Fake Python packages for tests, made here: wheels with next to no content, and one whose build waits to be told to go on."""

import base64
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gym.runtime.environments import own_dependencies

_PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "{name}"
version = "1.0"
"""
_BACKEND = """
import os, pathlib, time

HERE = pathlib.Path({folder!r})

def build_wheel(target, settings=None, metadata=None):
    parent = os.getppid()
    (HERE / "building").write_text(str(os.getpid()))
    while not (HERE / "go").exists():
        if os.getppid() != parent:
            os._exit(1)
        time.sleep(0.02)
    wheel = HERE / "slow-1.0-py3-none-any.whl"
    (pathlib.Path(target) / wheel.name).write_bytes(wheel.read_bytes())
    return wheel.name
"""


class LocalPackages:
    """A folder that uv takes packages from, and nothing else: with what gym itself needs, under the very versions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for pin in own_dependencies():
            name, _, version = pin.partition("==")
            self.wheel(name, version)

    def wheel(self, name: str, version: str, *needs: str, folder: Path | None = None) -> Path:
        """A wheel with one module; `needs` are requirements of its own."""
        stem = f"{name.replace('-', '_').replace('.', '_')}-{version}"
        metadata = "".join(f"Requires-Dist: {need}\n" for need in needs)
        files = {
            f"{stem.partition('-')[0]}.py": f"VERSION = {version!r}\n",
            f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
            f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: gym-tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in files.items())
        target = (folder or self.folder) / f"{stem}-py3-none-any.whl"
        with zipfile.ZipFile(target, "w") as archive:
            for path, text in {**files, f"{stem}.dist-info/RECORD": f"{record}{stem}.dist-info/RECORD,,\n"}.items():
                archive.writestr(path, text)
        return target

    def slow(self, folder: Path) -> None:
        """`slow 1.0`, as sources: its build writes `building` into `folder` and waits there for `go`."""
        folder.mkdir()
        self.wheel("slow", "1.0", folder=folder)
        self._sources("slow", _BACKEND.format(folder=str(folder)))

    def broken(self) -> None:
        """`broken 1.0`, as sources: its build says very much, and why it fails."""
        code = "def build_wheel(*_, **__):\n    print('chatter\\n' * 500)\n    raise RuntimeError('libfoo.h is not there')\n"
        self._sources("broken", code)

    def _sources(self, name: str, backend: str) -> None:
        """A source archive with a build backend of its own."""
        project = _PROJECT.format(name=name)
        metadata = f"Metadata-Version: 2.2\nName: {name}\nVersion: 1.0\n"
        with tarfile.open(self.folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
            for path, text in {"pyproject.toml": project, "backend.py": backend, "PKG-INFO": metadata}.items():
                entry = tarfile.TarInfo(f"{name}-1.0/{path}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))

    def requirements(self, *lines: str) -> str:
        """The text of a requirements file that takes from here alone."""
        return "\n".join(["--no-index", f"--find-links {self.folder}", *lines]) + "\n"


@contextmanager
def index_without_files(wheel: Path) -> Iterator[str]:
    """The URL of a package index that has the metadata of one wheel, and not the wheel: as if a download had been cut short."""
    name = wheel.name.partition("-")[0]
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(path for path in archive.namelist() if path.endswith("/METADATA")))
    page = f'<a href="/files/{wheel.name}" data-core-metadata="true" data-dist-info-metadata="true">{wheel.name}</a>'.encode()
    known = {f"/simple/{name}/": (page, "text/html"), f"/files/{wheel.name}.metadata": (metadata, "text/plain")}

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, kind = known.get(self.path, (b"", "text/plain"))
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
