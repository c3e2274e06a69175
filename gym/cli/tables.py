"""Tables on stdout."""

from collections.abc import Sequence

import typer

from gym.tables import table_lines


def print_table(rows: Sequence[Sequence[str]], width: int | None = None) -> None:
    """Print rows of equal length, the head first; lines are cut at `width` columns if it is given."""
    for line in table_lines(rows):
        typer.echo(line if width is None or len(line) <= width else f"{line[: max(0, width - 1)]}…")
