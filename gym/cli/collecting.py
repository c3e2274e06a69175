"""What the commands that collect rollouts share: their options, which of them go together, and what is said at the start."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from gym.cli.telling import say_opening, say_record

if TYPE_CHECKING:
    from gym.rollouts.collect import Launch

NoServe = Annotated[bool, typer.Option("--no-serve", help="Use the servers that 'gym env start' runs, and start none.")]
ServedRun = Annotated[str | None, typer.Option("--run", metavar="ID", help="With --no-serve: which run, if several are up.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the files of an earlier run at this output.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an earlier run at this output; begin if there is none.")]
AllowUnsafeResume = Annotated[
    bool, typer.Option("--allow-unsafe-resume", help="With --resume: also where rows, options or configuration have changed.")
]
Records = Annotated[bool, typer.Option("--json", help="Print a launch record and a done record on stdout.")]


def check_together(*, no_serve: bool, run_id: str | None, overwrite: bool, resume: bool, allow_unsafe_resume: bool) -> None:
    """Raises a usage error (exit 2) for options that do not go together."""
    if run_id is not None and not no_serve:
        raise typer.BadParameter("--run needs --no-serve")
    if resume and overwrite:
        raise typer.BadParameter("give either --resume or --overwrite")
    if allow_unsafe_resume and not resume:
        raise typer.BadParameter("--allow-unsafe-resume needs --resume")


def opening(as_json: bool, more: Callable[[], str | None] = lambda: None) -> "Callable[[Launch], None]":
    """What to call once the tasks are known: tells people, with a line of `more` if it has one, and programs with `as_json`."""

    def on_launch(launch: "Launch") -> None:
        if as_json:
            say_record(launch.as_dict())
        say_opening(launch)
        if line := more():
            typer.echo(line, err=True)

    return on_launch
