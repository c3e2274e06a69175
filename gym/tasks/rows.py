"""Reading rows: a JSONL file as a stream of objects and of problems, one line at a time.

Invariant: every line that is not blank comes out exactly once, as a `Row` or as a `RowProblem`,
in order; a bad line never ends the stream. What a row means is not judged here.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import orjson

from gym.config.errors import UserError

MAX_LINE_BYTES = 1 << 30
"""Longest line that is read, in bytes; a longer one is hardly a row, and would fill the memory."""

_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"\x1f\x8b": "gzip-compressed",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "a Parquet file",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


_JSON_NAMES: dict[type, str] = {list: "a list", str: "a string", bool: "a truth value", type(None): "null"}


class TaskFileError(UserError):
    """A file of rows that cannot be read at all; the message is for the user."""


class Digest(Protocol):
    """What `hashlib` makes: fed with the bytes of the file."""

    def update(self, data: bytes, /) -> object:
        """Take in more bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and where it stands: in which line (from 1), and at which byte (from 0) `raw` begins."""

    path: Path
    line: int
    offset: int
    value: dict[str, Any]
    raw: bytes
    """The line itself, without the white space around it."""


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A line that is no row, or a row that is no task."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def open_rows(path: Path) -> io.BufferedReader:
    """Open a file of rows. Raises TaskFileError if it is absent, unreadable, or plainly another format."""
    try:
        if path.is_dir():
            raise TaskFileError(f"{path} is a folder: name a JSONL file")
        file = path.open("rb")
    except FileNotFoundError:
        raise TaskFileError(f"input file {path} does not exist: check the path, or prepare the data set first") from None
    except OSError as error:
        raise TaskFileError(f"input file {path} cannot be read: {error.strerror or error}") from None
    # peek, because a pipe cannot seek back
    head = file.peek(4)[:4]
    for magic, what in _MAGIC.items():
        if head.startswith(magic):
            file.close()
            raise TaskFileError(f"input file {path} is {what}: rows must be plain JSON, one object a line, in UTF-8")
    return file


def read_rows(
    path: Path, *, limit: int | None = None, digest: Digest | None = None, loads: Callable[[bytes], object] = orjson.loads
) -> Iterator[Row | RowProblem]:
    """The rows of `path`, in order; blank lines, a byte-order mark and CRLF are tolerated.

    After `limit` rows it stops. `digest` is fed with every byte of the file, those behind the
    limit too. `loads` reads a line, and raises orjson.JSONDecodeError for one that is not JSON.
    Raises TaskFileError as `open_rows` does.
    """
    with open_rows(path) as file:
        number = count = end = 0
        while count != limit and (line := file.readline(MAX_LINE_BYTES)):
            number += 1
            offset, end = end, end + len(line)
            if digest is not None:
                digest.update(line)
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                count += 1
                yield RowProblem(path, number, f"the line is longer than {MAX_LINE_BYTES} bytes")
                while (more := file.readline(1 << 20)) and not more.endswith(b"\n"):
                    end += len(more)
                    if digest is not None:
                        digest.update(more)
                end += len(more)
                if digest is not None:
                    digest.update(more)
                continue
            raw = line[3:] if number == 1 and line.startswith(_BOM) else line
            raw = raw.strip()
            if raw:
                count += 1
                yield _parse(path, number, offset + line.find(raw), raw, loads, whole=line.endswith(b"\n"))
        while digest is not None and (rest := file.read(1 << 20)):
            digest.update(rest)


def _parse(path: Path, number: int, offset: int, raw: bytes, loads: Callable[[bytes], object], *, whole: bool) -> Row | RowProblem:
    try:
        value: object = loads(raw)
    except orjson.JSONDecodeError as error:
        return RowProblem(path, number, _why(raw, error, whole=whole))
    if not isinstance(value, dict):
        kind = _JSON_NAMES.get(type(value), "a number")
        return RowProblem(path, number, f"the row is {kind}, not an object: the file must hold one JSON object a line")
    return Row(path, number, offset, cast(dict[str, Any], value), raw)


def _why(raw: bytes, error: orjson.JSONDecodeError, *, whole: bool) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as bad:
        return f"not valid UTF-8 (byte {bad.start + 1} of the line)"
    if not whole:
        return f"not JSON: the file ends inside this row, which seems to be cut off ({error.msg}, column {error.colno})"
    return f"not JSON: {error.msg} (column {error.colno})"
