"""Programs that fetch and build what is kept: uv, npm.

Invariant: none outlives the process that asked for it, and none is waited for longer than it was given. Where the network is refused
they are told so by the variables that they know.
"""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gym.config.errors import UserError
from gym.parenthood import ending_with_us

_OFFLINE = {"UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never", "npm_config_offline": "true"}
_MARK = re.compile(r"^\s*(?:[×│├╰─▶]+\s*)*(?:error: |cause: |Caused by: )?")
_SECTION = re.compile(r"^\s*\[std(out|err)\]")
_WRAPPED = " " * 4
_LINES, _WIDTH = 6, 400
_DISK = re.compile(
    r"""(?:`(?P<quoted>[^`]+)`:\ |(?:\ to|:)\ (?P<bare>/\S+):\ )?      # most say the file before,
    (?P<said>[^:`\n]+)\ \(os\ error\ (?P<number>13|28|30|122)\)
    (?:\ at\ path\ "(?P<after>[^"]+)")?                              # some behind""",
    re.VERBOSE,
)
"""Permission denied, no space left, read-only, over quota; one with no file is none of a disk."""


def refuse_network() -> None:
    """From now on neither we nor a program that we start may use the network."""
    os.environ.update(_OFFLINE)


def network_refused() -> bool:
    """Whether somebody refused it: us, or the user by uv's own variable."""
    return os.environ.get("UV_OFFLINE", "").lower() in ("1", "true", "yes", "on", "t", "y")


def run_program(command: Sequence[str | Path], seconds: float, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run it to its end, which comes at the latest with that of the calling thread. Raises UserError if it takes too long, OSError."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=seconds,
            cwd=cwd,
            env=os.environ | {"UV_NO_WRAP": "1"},
            preexec_fn=ending_with_us(signal.SIGKILL),
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"`{Path(command[0]).name} {' '.join(map(str, command[1:3]))}` did not end within {seconds:g} s") from error


def check_disk(said: str) -> None:
    """Raise the OSError that a program met at a file, if that is why it failed: the disk is full, or may not be written."""
    for met in _DISK.finditer(" ".join(said.split())):
        if where := met["quoted"] or met["bare"] or met["after"]:
            raise OSError(int(met["number"]), met["said"].strip(), where)


def lines_that_matter(said: str) -> str:
    """Why a program failed, out of all that it wrote to stderr: its own words, and the last ones of a build's log."""
    kept: list[str] = []
    log: dict[str, str] = {}
    section = None
    for line in said.splitlines():
        text = _MARK.sub("", line).strip()
        if begun := _SECTION.match(text):
            section = begun[1]
        elif section and (not text or line[0].isspace()):
            log[section] = text or log.get(section, "")
        elif text and not text.startswith("hint: Build failures usually"):
            section = None
            if kept and line.startswith(_WRAPPED):
                kept[-1] += f" {text}"  # an older uv wraps all the same
            else:
                kept.append(text)
    if len(kept) > _LINES:
        kept[_LINES // 2 : -_LINES // 2] = [f"… {len(kept) - 2 * (_LINES // 2)} more lines"]
    last = log.get("err") or log.get("out")
    return "".join(f"\n    {line if len(line) <= _WIDTH else line[: _WIDTH - 1] + '…'}" for line in [*kept, *([last] if last else [])])
