"""Tables on stdout: columns as wide as their longest cell, two spaces apart."""

from collections.abc import Sequence

import typer


def print_table(rows: Sequence[Sequence[str]], width: int | None = None) -> None:
    """Print rows of equal length, the head first; lines are cut at `width` columns if it is given."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip()
        typer.echo(line if width is None or len(line) <= width else f"{line[: max(0, width - 1)]}…")
