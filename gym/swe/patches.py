"""Patches as bytes: their sections, and which files they touch.

A patch may hold any bytes; it is never decoded as a whole.
"""

import re

_HEADER = re.compile(rb"^diff --git (.+)$", re.MULTILINE)
_QUOTED_AT_END = re.compile(rb' ("(?:[^"\\]|\\.)*")$')
_RENAMED = re.compile(rb"^rename from (.+)$", re.MULTILINE)


def sections(patch: bytes) -> list[tuple[str, bytes]]:
    """The patch cut at its `diff --git` lines: (path after the change, bytes). Text before the first is dropped."""
    starts = [match.start() for match in _HEADER.finditer(patch)]
    pieces = [patch[start:end] for start, end in zip(starts, [*starts[1:], len(patch)], strict=False)]
    return [(_path(piece), piece) for piece in pieces]


def touched(patch: bytes) -> set[str]:
    """Every path that the patch changes, creates or removes; of a rename, both."""
    return {path for path, _ in sections(patch)} | {_unquote(match[1].rstrip(b"\r")) for match in _RENAMED.finditer(patch)}


def _path(section: bytes) -> str:
    """The path that a section is about; for a rename, the new one."""
    for line in section.split(b"\n", 12)[1:12]:
        if line.startswith((b"@@", b"GIT binary patch")):
            break
        for prefix in (b"+++ ", b"rename to ", b"copy to "):
            if line.startswith(prefix) and line[len(prefix) :].strip() != b"/dev/null":
                name = _unquote(line[len(prefix) :].rstrip(b"\r\t"))
                return name.removeprefix("b/") if prefix == b"+++ " else name
    header = section.split(b"\n", 1)[0][len(b"diff --git ") :].rstrip(b"\r")
    if quoted := _QUOTED_AT_END.search(header):
        return _unquote(quoted[1]).removeprefix("b/")
    # Without quotes and without a rename, both halves are the same but for their first letter.
    return header[len(header) // 2 + 1 :].decode(errors="surrogateescape").removeprefix("b/")


def _unquote(name: bytes) -> str:
    """A path as git writes it: quoted, with octal escapes, if it holds anything unusual."""
    if not (name.startswith(b'"') and name.endswith(b'"') and len(name) > 1):
        return name.decode(errors="surrogateescape")
    simple = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v", b'"': b'"', b"\\": b"\\"}

    def plain(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        return simple[escape] if escape in simple else bytes([int(escape, 8) & 0xFF])

    return re.sub(rb'\\([0-7]{3}|[abfnrtv"\\])', plain, name[1:-1]).decode(errors="surrogateescape")
