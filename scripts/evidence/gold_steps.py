"""A gold patch as steps of `scripted_model`, in calls of a harness's own tools: files are read, edited and written, then looked at."""

import re
from typing import Any

from harnesses import Call, Harness

_FILE = re.compile(r"^diff --git a/(\S+) b/(\S+)$", re.MULTILINE)
_HUNK = re.compile(r"^@@ [^\n]*@@[^\n]*\n", re.MULTILINE)


def steps_of(patch: str, harness: Harness) -> list[dict[str, Any]]:
    """The steps; paths are relative to the work tree."""
    reads: list[Call] = []
    changes: list[Call] = []
    pieces = _FILE.split(patch)
    for _, name, body in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        head, *hunks = _HUNK.split(body)
        sides = [_sides(hunk) for hunk in hunks]
        if "\ndeleted file" in head:
            changes.append(harness.shell(f"rm '{name}'"))
        elif "\nnew file" in head:
            changes.append(harness.write(name, "".join(new for _, new in sides)))
        else:
            reads.append(harness.read(name))
            changes += [harness.edit(name, old, new) for old, new in sides]
    return [
        *([{"calls": reads}] if reads else []),
        *({"calls": [change]} for change in changes),
        {"calls": [harness.shell("git diff --stat; git status --short")]},
        {"say": "The issue is resolved."},
    ]


def _sides(hunk: str) -> tuple[str, str]:
    """What a hunk takes away and what it puts there, with what stays around it."""
    lines: list[str] = []
    for line in hunk.splitlines(keepends=True):
        if line.startswith("\\"):  # the line before has no end
            lines[-1] = lines[-1].removesuffix("\n")
        else:
            lines.append(line)
    return "".join(line[1:] for line in lines if line[0] in " -"), "".join(line[1:] for line in lines if line[0] in " +")
