"""Python packages, installed by uv from the user's own registry, or out of uv's cache alone where the network is refused.

Owns what is said when that fails: the lines that matter, and without a network every package that is missing and not only the first.
"""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from uv import find_uv_bin

from gym.config.errors import UserError, listed
from gym.harness.programs import check_disk, lines_that_matter, network_refused, run_program

_SECONDS = 1800
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_UNKNOWN = re.compile(
    rf"(?P<name>{_NAME}) was not found in the (?:cache|provided package locations)"
    r"(?: and (?:you require|(?P<by>[^,]{1,80}?) depends? on) (?P<spec>[^\s,]*(?:,[^\s,]+)*))?"
)
_NOT_HERE = re.compile(rf"Failed to (?:download|fetch|build|download and build):? `(?P<spec>(?P<name>{_NAME})[^`]*)`")
_NO_METADATA = re.compile(rf"(?P<spec>(?P<name>{_NAME})(?:[<>=!~]\S+)?) needs? to be downloaded from a registry")
_FILE = re.compile(r"https?://\S+/(?P<file>[^/\s]+\.(?:whl|tar\.gz|zip))")


def make_environment(folder: Path, python: Path, what: str) -> None:
    """An empty virtual environment of `python`. Raises UserError; OSError if the folder cannot be written."""
    _checked(run_program([find_uv_bin(), "venv", "--quiet", "--python", python, folder], _SECONDS), what)


def install(python: Path, arguments: Sequence[str], what: str) -> None:
    """`uv pip install` for `python`. Raises UserError; OSError if a folder cannot be written."""
    command = [find_uv_bin(), "pip", "install", "--quiet", "--python", str(python), *arguments]
    done = run_program(command, _SECONDS)
    if done.returncode and network_refused() and (missing := _missing(command, done.stderr)):
        cache = run_program([find_uv_bin(), "cache", "dir"], _SECONDS).stdout.strip()
        raise UserError(
            f"{what} cannot be made without the network: the cache of uv ({cache}) lacks {listed(missing, 100)} "
            "— run this once with the network, or bring that cache along"
        )
    _checked(done, what)


def _checked(done: "subprocess.CompletedProcess[str]", what: str) -> None:
    if done.returncode:
        check_disk(done.stderr)
        raise UserError(f"{what} cannot be made; uv says:{lines_that_matter(done.stderr) or f' nothing (exit {done.returncode})'}")


def _missing(command: list[str], said: str) -> list[str]:
    """All that cannot be had: whatever uv names is left out of the next try, until it has nothing more to name."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="gym-missing-") as folder:
        left_out = Path(folder) / "overrides.txt"
        while (named := _named(said)) and named[0] not in found:
            found[named[0]] = named[1]
            left_out.write_text("".join(f"{name}; python_version < '0'\n" for name in found))
            done = run_program([*command, "--overrides", str(left_out)], _SECONDS)
            if done.returncode == 0:
                break
            said = done.stderr
    return list(found.values())


def _named(said: str) -> tuple[str, str] | None:
    """The package that uv does without last, and what to say of it."""
    said = " ".join(said.split())
    match = _UNKNOWN.search(said) or _NOT_HERE.search(said) or _NO_METADATA.search(said)
    if match is None:
        return None
    groups = match.groupdict()
    asides = [f"for {groups['by']}"] if groups.get("by") else []
    if match.re is _NOT_HERE and (file := _FILE.search(said, match.end())):
        asides.insert(0, file["file"])
    return groups["name"], (groups["spec"] or groups["name"]) + (f" ({'; '.join(asides)})" if asides else "")
