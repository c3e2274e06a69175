"""The `gym` command: its groups, and how it ends.

Owns exit codes and the last line of defence: 0 done, 1 the user's mistake in a config or a failed
check, 2 wrong usage of the command line, 130 interrupted. Imports nothing but typer and the
standard library, so that `--help` costs no more than starting Python; every command imports what
it needs when it runs.
"""

# ruff: noqa: E402 - see below
import os
import signal
import sys
import threading

# Until there is somebody to handle it, Ctrl-C ends us without a word: a traceback of imports helps nobody.
_silent = signal.getsignal(signal.SIGINT) is signal.default_int_handler and threading.current_thread() is threading.main_thread()
if _silent:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import gc
from pathlib import Path
from typing import Annotated

import typer

from gym.cli import batch, check, dataset, env, eval, manifests, results, reverify, sandbox, servers

if _silent:
    signal.signal(signal.SIGINT, signal.default_int_handler)

app = typer.Typer(
    name="gym",
    help="Run AI agents on tasks, verify what they did, and write the rollouts.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(env.app, name="env")
app.add_typer(eval.app, name="eval")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(dataset.app, name="dataset")
servers.add_to(env.app)
check.add_to(env.app)
manifests.add_to(env.app)
results.add_to(eval.app)
reverify.add_to(eval.app)
batch.add_to(eval.app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from gym import __version__

        typer.echo(f"gym {__version__}")
        raise typer.Exit


@app.callback()
def gym(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    """Run AI agents on tasks, verify what they did, and write the rollouts."""


def main() -> None:
    """Runs the command line and exits."""
    _fill_standard_streams()
    try:
        Path.cwd()
    except OSError as error:
        typer.echo(f"the working directory cannot be used ({error.strerror}): change to one that exists", err=True)
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))


def _fill_standard_streams() -> None:
    """Put /dev/null where a standard stream is closed (`gym … >&-`): else a socket would get its number, and be written to."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


def run(arguments: list[str]) -> int:
    """Runs one command; returns its exit code. A mistake of the user ends in a message, never in a traceback."""
    gc.set_threshold(50_000, 20, 20)  # imports make many objects that stay: collecting among them costs a tenth of a short command
    try:
        app(arguments, prog_name="gym")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader of our output went away (`gym … | head`): nothing to say, and nothing more to flush
        _drop_unwritten()
        return 141
    except OSError as error:
        # nobody's defect: a disk that is full, a folder that went away
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"error: {where}{error.strerror or error}", err=True)
        _drop_unwritten()
        return 1
    except Exception as error:
        from gym.config.errors import UserError

        if not isinstance(error, UserError):
            raise
        typer.echo(str(error), err=True)
        return 1
    return 0


def _drop_unwritten() -> None:
    """Let what stdout still holds go nowhere, so that the interpreter's last flush does not fail once more."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
