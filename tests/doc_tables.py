"""Tables of pages that tests write: a row of what was found, put into its place with GYM_WRITE_DOCS=1, and read back without."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path


def writing() -> bool:
    """Whether tests are to write their rows into the pages."""
    return os.environ.get("GYM_WRITE_DOCS") == "1"


def line_of(cells: Sequence[str]) -> str:
    """A row as it stands in a page."""
    return f"| {' | '.join(cells)} |"


def put_row(page: Path, head: Sequence[str], cells: Sequence[str], keys: int) -> None:
    """Put a row into the table that has this head, in place of the one with the same first `keys` cells; rows are sorted."""
    lock = os.open(page.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before, rows, after = _parts(page, head)
        kept = [row for row in rows if row[:keys] != list(cells[:keys]) and len(row) == len(cells)]
        table = [line_of(head), "|---" * len(head) + "|", *sorted(line_of(row) for row in [*kept, cells])]
        page.write_text("\n".join([*before, *table, *after]) + "\n")
    finally:
        os.close(lock)


def row_of(page: Path, head: Sequence[str], key: Sequence[str]) -> list[str] | None:
    """The row of the table that has this head which begins with these cells."""
    return next((row for row in _parts(page, head)[1] if row[: len(key)] == list(key)), None)


def _parts(page: Path, head: Sequence[str]) -> tuple[list[str], list[list[str]], list[str]]:
    """The lines before a table, its rows as cells, and the lines after."""
    lines = page.read_text().splitlines()
    start = lines.index(line_of(head))
    end = next((at for at in range(start, len(lines)) if not lines[at].startswith("|")), len(lines))
    return lines[:start], [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines[start + 2 : end]], lines[end:]
