"""`gym dataset`: data sets out of rollouts. Thin: reads arguments, calls one function, prints on stderr."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gym.rollouts.export import Summary

FORMATS = ("nemo-rl", "verl", "trl", "atif", "swebench-predictions")

app = typer.Typer(help="Make data sets out of rollouts.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Make data sets out of rollouts."""


@app.command()
def export(
    input: Annotated[Path, typer.Option("--input", "-i", metavar="FILE", help="Rollouts, as 'gym eval run' wrote them.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the export goes; for atif a folder.")],
    format: Annotated[str, typer.Option("--format", "-f", metavar="FORMAT", help=f"Who is to read it: {', '.join(FORMATS)}.")],
    include_masked: Annotated[bool, typer.Option("--include-masked", help="Write rollouts too that must not be trained on.")] = False,
    token_ids: Annotated[bool, typer.Option("--token-ids", help="With trl: token ids and labels, in place of messages.")] = False,
    rollout_index: Annotated[
        int | None, typer.Option("--rollout-index", min=0, metavar="N", help="Only rollout N of each task; for predictions 0 unless given.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier export at this output.")] = False,
) -> None:
    """Write rollouts in the form that a trainer or a leaderboard reads.

    Rows that cannot be written, or must not be trained on, are left out and counted on stderr.

    Exit codes: 0 written, if only in part; 1 a mistake in the input or the options, and nothing was written; 2 wrong usage.
    """
    from gym.rollouts.export import ExportOptions, Format
    from gym.rollouts.export import export as run_export

    if format not in FORMATS:
        raise typer.BadParameter(f"{format!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    options = ExportOptions(input, output, Format(format), include_masked, token_ids, rollout_index, overwrite)
    _say(run_export(options), output, format)


def _say(summary: "Summary", output: Path, format: str) -> None:
    typer.echo(f"wrote {summary.written} of {summary.rows} rollouts to {output} ({format})", err=True)
    for line in summary.lines():
        typer.echo(line, err=True)
