"""`gym env check`: whether a recipe's tasks hold, found out with agents that need no model.

Thin: derives the configuration of the check, runs the collector twice in one run of servers, prints
the report. The table goes to stdout, or with --json the report.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gym.cli.env import Config, ModelType, Overrides
from gym.cli.loop import run_to_end
from gym.cli.servers import plan_of

if TYPE_CHECKING:
    from gym.config.plan import Plan
    from gym.rollouts.check import CheckReport
    from gym.rollouts.collect import Summary
    from gym.rollouts.files import OutputFiles
    from gym.rollouts.options import CollectOptions

_ROWS_SHOWN = 40
EXIT_UNCHECKED = 76


def check(
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", metavar="FILE", help="Rows, as JSONL; else a data set is used.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="A data set of the configuration.")] = None,
    server: Annotated[
        str | None, typer.Option("--resources-server", metavar="NAME", help="Whose tasks; needed only where there are several.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Read at most so many rows.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Episodes at a time.")] = 4,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Rollouts of each agent at each row; more of them find flaky tasks.")
    ] = 1,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="Keep the rollouts in this folder.")] = None,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="Write the report there, as JSON.")] = None,
    write_supported: Annotated[
        Path | None, typer.Option("--write-supported", metavar="FILE", help="Write the ids of the tasks that hold there, one a line.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report on stdout in place of the table.")] = False,
) -> None:
    """Check that tasks hold: their gold patch resolves them, and doing nothing does not.

    Every row runs through the whole path, once with an agent that applies the gold patch and once
    with one that does nothing. No model is needed.

    Exit codes: 0 all hold; 1 a task is broken or flaky, none could be checked, or a mistake in
    options or config; 76 some could not be checked; 2 wrong usage; 130 interrupted.
    """
    if input is not None and dataset is not None:
        raise typer.BadParameter("give either --input or --dataset")
    for name, target in (("--report", report), ("--write-supported", write_supported)):
        _must_be_writable(name, target)
    plan = plan_of(config, model_type, overrides)
    derived, options = _prepare(plan, server, input, dataset, limit, concurrency, repeats)
    found = _run(derived, options, output)
    _print(found, as_json=as_json)
    if output is None and len(found.checked) > len(_holding(found)):
        typer.echo("the rollouts are not kept: give a folder for them with --output to look into what does not hold", err=True)
    _write(found, report, write_supported)
    if not found.checked:
        typer.echo(f"error: no task could be checked{_first_reason(found)}", err=True)
    if not found.checked or len(found.checked) > len(_holding(found)):
        raise typer.Exit(1)
    raise typer.Exit(EXIT_UNCHECKED if len(found.checked) < len(found.tasks) else 0)


def _prepare(
    plan: "Plan", server: str | None, rows: Path | None, dataset: str | None, limit: int | None, concurrency: int, repeats: int
) -> "tuple[Plan, CollectOptions]":
    """The plan of the check, and what both collections have in common. Raises UserError."""
    import json
    import tempfile

    from gym.config import load
    from gym.config.roots import search_roots
    from gym.rollouts.options import CollectOptions
    from gym.swe.checking import check_config, checkable
    from gym.tasks.datasets import choose_dataset, dataset_file

    instance = checkable(plan, server)
    taskset = None
    if rows is None:
        binding = choose_dataset(plan.datasets, dataset)
        rows, taskset = dataset_file(binding, search_roots()), binding.dataset.taskset or binding.dataset.name
    options = CollectOptions(rows, Path(), taskset=taskset, limit=limit, concurrency=concurrency, num_repeats=repeats)
    with tempfile.TemporaryDirectory(prefix="gym-check-") as folder:
        path = Path(folder) / "check.yaml"
        path.touch(0o600)
        path.write_text(json.dumps(check_config(plan, instance)))
        return load([path]).plan, options


def _run(plan: "Plan", options: "CollectOptions", output: Path | None) -> "CheckReport":
    """Both collections, one after the other, in one run of the servers."""
    import contextlib
    import sys
    import tempfile
    from dataclasses import replace

    from gym.cli.telling import say_closing, say_opening
    from gym.config.digests import key_digests
    from gym.rollouts.check import read_check
    from gym.rollouts.collect import check_before_start, collect
    from gym.rollouts.dispatch import PeerDispatcher
    from gym.rollouts.files import OutputFiles
    from gym.rollouts.targets import Targets
    from gym.runtime.launch import launch
    from gym.runtime.logs import log_colocated
    from gym.swe.checking import NOOP, ORACLE

    with contextlib.ExitStack() as stack:
        folder = output or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gym-check-")))
        paths = {ORACLE: folder / "oracle.jsonl", NOOP: folder / "noop.jsonl"}
        _must_be_new(output, [OutputFiles(path) for path in paths.values()])
        check_before_start(paths[ORACLE], overwrite=False, inputs=[options.input])
        log_colocated(plan.settings)

        async def work() -> "list[Summary]":
            async with launch(plan, plan.settings.isolation or "colocated", say=lambda line: typer.echo(line, err=True)) as running:
                dispatcher = PeerDispatcher(running.peer, plan.episode_timeouts)
                done: list[Summary] = []
                try:
                    for environment, path in paths.items():
                        done.append(
                            await collect(
                                replace(options, output=path, environment=environment),
                                Targets.from_plan(plan),
                                dispatcher,
                                run_id=running.run_id,
                                config_keys=key_digests(plan),
                                on_launch=say_opening,
                                progress=sys.stderr,
                            )
                        )
                        if done[-1].interrupted or done[-1].problem is not None:
                            break
                finally:
                    running.hurry.set()  # every episode has ended or been cancelled: there is nothing to wait for
                return done

        for summary in run_to_end(work):
            say_closing(summary)
            if summary.interrupted or summary.problem is not None:
                raise typer.Exit(summary.exit_code)
        return read_check(*(OutputFiles(path) for path in paths.values()))


def _must_be_writable(option: str, path: Path | None) -> None:
    """Said before hours of work and not after them. Raises UserError."""
    import os

    from gym.config.errors import UserError

    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder: name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} {path}: its folder cannot be made: {error.strerror or error}") from None
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{option} {path}: its folder cannot be written")


def _must_be_new(output: Path | None, files: "list[OutputFiles]") -> None:
    """Raise UserError if --output is no folder, or holds an earlier check."""
    from gym.config.errors import UserError

    if output is None:
        return
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is a file: name a folder")
    if any(path.exists() for each in files for path in each.results):
        raise UserError(f"--output {output} holds an earlier check: choose another folder, or remove it")


def _holding(found: "CheckReport") -> list[str]:
    from gym.rollouts.check import State

    return [task.task_id for task in found.of(State.HOLDS)]


def _write(found: "CheckReport", report: Path | None, write_supported: Path | None) -> None:
    from gym.rollouts.files import write_atomically, write_json

    if report is not None:
        write_json(report, found.as_dict())
    if write_supported is not None:
        write_atomically(write_supported, [f"{name}\n".encode() for name in _holding(found)])


def _print(found: "CheckReport", *, as_json: bool) -> None:
    """The report as JSON, or as a table: all tasks of a few, else those that do not hold."""
    import json

    from gym.config.errors import printable
    from gym.protocol.failures import bounded_reason
    from gym.rollouts.check import State

    if as_json:
        typer.echo(json.dumps(found.as_dict()))
        return
    shown = found.tasks if len(found.tasks) <= _ROWS_SHOWN else [task for task in found.tasks if task.state is not State.HOLDS]
    table = [("task", "gold", "no-op", "state"), *((task.task_id, task.oracle.label, task.noop.label, task.state.value) for task in shown)]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    for row, reason in zip(table, ["", *(task.reason for task in shown)], strict=True):
        cells = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        why = f": {printable(bounded_reason(' '.join(reason.split()), 200))}" if reason else ""
        typer.echo(f"{cells}  {row[3]}{why}".rstrip())
    typer.echo(found.line())


def _first_reason(found: "CheckReport") -> str:
    from gym.config.errors import printable

    reason = next((task.reason for task in found.tasks if task.reason), "")
    return f": {printable(' '.join(reason.split())[:300])}" if reason else ""


def add_to(app: typer.Typer) -> None:
    """Add the command to the group `gym env`."""
    app.command()(check)
