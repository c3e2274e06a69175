"""Putting the page together: one file that opens from disk, with no network.

Invariant: nothing out of a rollout can act in the page. Its data are inert blocks (base64 of packed JSON, which holds no `<`), its
script sets text and never markup, and a Content-Security-Policy that is the page's first element allows the one script and the one
style of the page, by their digests, and no network at all.
"""

import base64
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson

from gym import __version__
from gym.config.errors import UserError
from gym.rollouts.aggregate import Tally
from gym.rollouts.files import OutputFiles, check_target, write_atomically
from gym.rollouts.metrics import told
from gym.rollouts.report.contents import COLUMNS, Rollout, rollouts_of

_HERE = Path(__file__).parent


def write_report(output: Path, page: Path, *, transcripts: int) -> int:
    """Write the page of the run at `output`; how many rollouts it shows. The first `transcripts` of them have their transcripts.

    Raises UserError for files that are no run, and OSError; then `page` is as it was.
    """
    files = OutputFiles(output)
    check_target(page, files.results, "the run's own")
    shown = _Shown(transcripts)
    write_atomically(page, _parts(files, shown))
    return len(shown.lines)


class _Shown:
    """What has been written, for the table that comes last."""

    def __init__(self, transcripts: int) -> None:
        self.transcripts = transcripts
        self.lines: list[list[Any]] = []

    def block(self, rollout: Rollout) -> bytes:
        """The rollout's own block; empty beyond the number of transcripts."""
        number = len(self.lines)
        self.lines.append(rollout.line)
        return _block(f"r{number}", rollout.details) if number < self.transcripts else b""


def _parts(files: OutputFiles, shown: _Shown) -> Iterator[bytes]:
    script, style = ((_HERE / name).read_text() for name in ("page.js", "page.css"))
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    policy = f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; base-uri 'none'; form-action 'none'"
    yield (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width"><title>Gym report</title><style>{style}</style></head><body>'
        "<noscript>This page needs its own script to show rollouts.</noscript>\n"
    ).encode()
    tally = Tally()
    for rollout in rollouts_of(files.output, files.failures, tally):
        yield shown.block(rollout)
    run = {
        "name": files.output.name,
        "gym_version": __version__,
        "columns": COLUMNS,
        "transcripts": shown.transcripts,
        "manifest": {name: value for name, value in _side_file(files.manifest).items() if name != "next_attempt"},
        "coverage": _side_file(files.coverage),
        "metrics": told(tally.table),
        "lines": shown.lines,
    }
    yield _block("run", run)
    yield f"<main></main><script>{script}</script></body></html>\n".encode()


def _block(name: str, value: object) -> bytes:
    packed = base64.b64encode(gzip.compress(orjson.dumps(value), 6, mtime=0)).decode()
    return f'<script type="application/octet-stream" id="{name}">{packed}</script>\n'.encode()


def _side_file(path: Path) -> dict[str, Any]:
    """A side file of the run; a run of another tool, or one that was killed, may have none."""
    try:
        value: object = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON ({error.msg}): remove it to make a report without it") from None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
