"""Building images: a base with tools for each language, and on it one thin layer for each task and data set.

Everything comes from this clone and Debian's packages. An image that was built from the same content is left as it is.
"""

import hashlib
import io
import json
import secrets
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from task_builder import history
from task_builder.task import Task

ROOT_IMAGE = "gym-base:bookworm"
LABEL = "gym-test.built-from"

_INSTALL = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends PACKAGES >/dev/null
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
git config --system --add safe.directory '*'
"""
_CONDA = r"""
mkdir -p /opt/testbed-env/bin /opt/miniconda3/bin
ln -s /usr/bin/python3 /opt/testbed-env/bin/python
cat >/opt/testbed-env/bin/activate <<'X'
export PATH=/opt/testbed-env/bin:$PATH CONDA_DEFAULT_ENV=testbed CONDA_PREFIX=/opt/testbed-env
X
cat >/opt/miniconda3/bin/activate <<'X'
conda() {
  case "$1 ${2:-}" in
    "activate testbed") . /opt/testbed-env/bin/activate ;;
    *) echo "conda: only 'conda activate testbed' is known here" >&2; return 1 ;;
  esac
}
X
"""
"""As much of conda as SWE-bench's scripts ask for."""

BASES = {
    "python": _INSTALL.replace("PACKAGES", "python3-pytest") + _CONDA,
    "node": _INSTALL.replace("PACKAGES", "nodejs"),
    "c": _INSTALL.replace("PACKAGES", "gcc libc6-dev make"),
}


class BuildError(Exception):
    """An image could not be built; the message is for the user."""


@dataclass(frozen=True)
class Image:
    """The image of a task: its repository in `workdir`, other `files`, and what a `script` makes of both."""

    name: str
    task: Task
    workdir: str
    files: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Absolute path -> (content, mode)."""
    script: str = ":"
    """Run by sh in the work tree."""

    def content(self) -> str:
        """One digest over all that the image is made from."""
        parts = [self.task.base_image, BASES[self.task.base_image], self.workdir, self.script, json.dumps(dict(self.files), sort_keys=True)]
        parts += [repr(self.task.files), self.task.patch("gold"), self.task.patch("test"), json.dumps(self.task.known["history"])]
        return _digest(*parts, Path(history.__file__).read_text())


def build(images: Iterable[Image], *, force: bool = False) -> list[str]:
    """Build what is missing or out of date, with the bases it needs; the names of the images that were built."""
    wanted = {image.name: (image, image.content()) for image in images}
    bases = {_base_name(image.task.base_image): image.task.base_image for image, _ in wanted.values()}
    there = _labels([*wanted, *bases])
    missing = [image for name, (image, content) in wanted.items() if force or there.get(name) != content]
    for name, base in bases.items():
        if any(image.task.base_image == base for image in missing) and there.get(name) != _digest(BASES[base]):
            _commit(name, ROOT_IMAGE, BASES[base], _digest(BASES[base]), "/", None)
    for image in missing:
        base, content = _base_name(image.task.base_image), wanted[image.name][1]
        _commit(image.name, base, f"set -eu\ncd {image.workdir}\n{image.script}\ngit status >/dev/null\n", content, image.workdir, image)
    return [image.name for image in missing]


def docker(*args: str, stdin: bytes | None = None) -> str:
    """The standard output of a docker command. Raises BuildError with the command's own words if it fails."""
    done = subprocess.run(["docker", *args], input=stdin, capture_output=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace")[-2000:].strip()
        raise BuildError(f"docker {args[0]} failed: {said}")
    return done.stdout.decode(errors="replace")


def _labels(names: list[str]) -> dict[str, str]:
    """What the images that are there were built from."""
    template = f'{{{{index .RepoTags 0}}}} {{{{index .Config.Labels "{LABEL}"}}}}'
    listed = docker("image", "ls", "--filter", f"label={LABEL}", "--format", "{{.Repository}}:{{.Tag}}").split()
    present = [name for name in names if name in listed]
    lines = docker("image", "inspect", "-f", template.replace("{{index .RepoTags 0}} ", ""), *present).split() if present else []
    return dict(zip(present, lines, strict=True))


def _base_name(base: str) -> str:
    return f"gym-test/{base}-tools:latest"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _commit(name: str, base: str, script: str, content: str, workdir: str, image: Image | None) -> None:
    """Run a script in a container of `base`, with the image's files in it, and keep what comes of it as `name`."""
    box = f"nemo-gym-build-{secrets.token_hex(8)}"
    # Host networking, because a package mirror may be reachable only with the host's own route.
    docker("run", "-d", "--rm", "--name", box, "--network", "host" if image is None else "none", base, "sleep", "1800")
    try:
        if image is not None:
            docker("cp", "-", f"{box}:/", stdin=_archive(image))
        docker("exec", "-i", box, "sh", "-s", stdin=script.encode())
        changes = [f"WORKDIR {workdir}", f"LABEL {LABEL}={content}", 'CMD ["/bin/bash"]']
        docker("commit", *[part for change in changes for part in ("--change", change)], box, name)
    except BuildError as error:
        raise BuildError(f"{name}: {error}") from error
    finally:
        subprocess.run(["docker", "rm", "-f", box], capture_output=True, check=False)


def _archive(image: Image) -> bytes:
    """The repository and the other files, as a tar of the root folder that belongs to root."""

    def owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    data = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=data, mode="w") as archive:
        history.make(image.task, Path(folder))
        archive.add(folder, image.workdir.lstrip("/"), filter=owned)
        for path, (content, mode) in image.files.items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(content.encode()), mode
            archive.addfile(owned(entry), io.BytesIO(content.encode()))
    return data.getvalue()
