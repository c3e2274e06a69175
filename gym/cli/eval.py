"""`gym eval`: run rollouts and write them.

Thin: `run` finds the servers (its own, or those of a run that is up), chooses the rows, and calls
the collector. stdout gets records with `--json` and nothing else; people are told on stderr.
"""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym.cli.env import Config, ModelType, Overrides
from gym.cli.loop import run_to_end

if TYPE_CHECKING:
    from gym.config.plan import DatasetBinding, Plan
    from gym.rollouts.collect import Launch, Summary
    from gym.rollouts.dispatch import Dispatcher
    from gym.rollouts.options import CollectOptions
    from gym.rollouts.resume import Past
    from gym.rollouts.targets import Targets

app = typer.Typer(help="Run rollouts.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Run rollouts."""


@app.command()
def run(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the rollouts go; other files are written beside it.")
    ],
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", metavar="FILE", help="Rows, as JSONL; else a data set is used.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="A data set of the configuration.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The agent instance to run rows with.")] = None,
    env: Annotated[str | None, typer.Option("--env", metavar="NAME", help="The environment server that rows go to.")] = None,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Use the servers that 'gym env start' runs, and start none.")] = False,
    run_id: Annotated[str | None, typer.Option("--run", metavar="ID", help="With --no-serve: which run, if several are up.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Read at most so many rows.")] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="I/N", help="Run only every N-th task, from the I-th on; see 'gym eval merge'.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Episodes at a time.")] = 64,
    num_repeats: Annotated[
        int | None, typer.Option("--num-repeats", min=1, help="Rollouts for each row; else what the data set says.")
    ] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", min=1, max=100, help="Attempts at each rollout; else $NEMO_GYM_MAX_ROLLOUT_ATTEMPTS, or 3.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files of an earlier run at this output.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an earlier run at this output; begin if there is none.")] = False,
    allow_unsafe_resume: Annotated[
        bool, typer.Option("--allow-unsafe-resume", help="With --resume: also where rows, options or configuration have changed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a launch record and a done record on stdout.")] = False,
) -> None:
    """Run rows as episodes and write what came of them.

    Starts the servers of the configuration, or with --no-serve uses those that run, sends every row
    to its environment server, and accounts for each rollout.

    Exit codes: 0 all measured; 76 finished, but some were masked, failed or owed; 1 a mistake in
    options, config or credentials; 2 wrong usage; 130 interrupted.
    """
    from gym.config.digests import key_digests
    from gym.rollouts.collect import check_before_start, check_resume
    from gym.rollouts.targets import Targets

    if input is not None and dataset is not None:
        raise typer.BadParameter("give either --input or --dataset")
    if run_id is not None and not no_serve:
        raise typer.BadParameter("--run needs --no-serve")
    if resume and overwrite:
        raise typer.BadParameter("give either --resume or --overwrite")
    if allow_unsafe_resume and not resume:
        raise typer.BadParameter("--allow-unsafe-resume needs --resume")
    request = _Request(
        output, input, dataset, agent, env, limit, concurrency, num_repeats, attempts, overwrite, resume, allow_unsafe_resume, shard
    )
    check_before_start(output, overwrite=overwrite, resume=resume, inputs=[input] if input is not None else [])
    plan = None if no_serve and not config and not model_type and not overrides else _plan(config, model_type, overrides)
    if plan is not None:
        # What is wrong with these is said before anything is started.
        options = request.options(plan.datasets, plan.settings.agent_name)
        Targets.from_plan(plan).choose(options.environment, options.agent)
        if not no_serve:
            check_resume(options, key_digests(plan))

    async def work() -> "Summary":
        async with _servers(plan, no_serve, run_id) as servers:
            return await servers.collect(request, as_json)

    summary = run_to_end(work)
    if as_json:
        _record(summary.as_dict())
    say_closing(summary)
    raise typer.Exit(summary.exit_code)


@app.command()
def merge(
    shards: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The outputs of all shards.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the whole goes, as if one run had written it.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the files of an earlier run at this output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a done record on stdout.")] = False,
) -> None:
    """Put the outputs of all shards of a run together, with one account.

    Exit codes as of 'gym eval run'.
    """
    from gym.rollouts.merge import merge as put_together

    summary = put_together(output, shards, overwrite=overwrite)
    if as_json:
        _record(summary.as_dict())
    say_closing(summary)
    raise typer.Exit(summary.exit_code)


@dataclass(frozen=True)
class _Request:
    """The options of the command, before a data set has been chosen."""

    output: Path
    input: Path | None
    dataset: str | None
    agent: str | None
    env: str | None
    limit: int | None
    concurrency: int
    num_repeats: int | None
    attempts: int | None
    overwrite: bool
    resume: bool = False
    allow_unsafe_resume: bool = False
    shard: str | None = None

    def options(self, datasets: "tuple[DatasetBinding, ...]", default_agent: str | None) -> "CollectOptions":
        """What the collector is asked to do. Raises UserError if no rows can be found."""
        from gym.config.roots import search_roots
        from gym.rollouts.options import CollectOptions, attempts_from, shard_from
        from gym.tasks.datasets import choose_dataset, dataset_file

        rows, taskset, repeats = self.input, None, 1
        if rows is None:
            binding = choose_dataset(datasets, self.dataset)
            rows = dataset_file(binding, search_roots())
            taskset, repeats = binding.dataset.taskset or binding.dataset.name, binding.dataset.num_repeats
        return CollectOptions(
            input=rows,
            output=self.output,
            taskset=taskset,
            environment=self.env,
            agent=self.agent or (default_agent if self.env is None else None),
            limit=self.limit,
            concurrency=self.concurrency,
            num_repeats=self.num_repeats or repeats,
            attempts=attempts_from(self.attempts),
            overwrite=self.overwrite,
            shard=shard_from(self.shard),
            resume=self.resume,
            allow_unsafe_resume=self.allow_unsafe_resume,
        )


class _Servers:
    """Servers that are up, as the collector needs them."""

    def __init__(
        self,
        run_id: str,
        targets: "Targets",
        dispatcher: "Dispatcher",
        config_keys: Mapping[str, str],
        datasets: "tuple[DatasetBinding, ...]",
        default_agent: str | None,
    ) -> None:
        self._run_id, self._targets, self._dispatcher = run_id, targets, dispatcher
        self._config_keys, self._datasets, self._default_agent = config_keys, datasets, default_agent

    async def collect(self, request: _Request, as_json: bool) -> "Summary":
        """Run the collector."""
        import sys

        from gym.rollouts.collect import collect

        def on_launch(launch: "Launch") -> None:
            if as_json:
                _record(launch.as_dict())
            say_opening(launch)

        return await collect(
            request.options(self._datasets, self._default_agent),
            self._targets,
            self._dispatcher,
            run_id=self._run_id,
            config_keys=self._config_keys,
            on_launch=on_launch,
            progress=sys.stderr,
        )


@contextlib.asynccontextmanager
async def _servers(plan: "Plan | None", no_serve: bool, run_id: str | None) -> "AsyncGenerator[_Servers]":
    """The servers of a run that is up, or our own for as long as the context lasts."""
    from gym.config.digests import key_digests
    from gym.config.plan import DatasetBinding
    from gym.rollouts.dispatch import PeerDispatcher
    from gym.rollouts.targets import Targets
    from gym.runtime.head import server_blocks_digest

    if no_serve:
        from gym.runtime.attach import attach

        async with attach(run_id) as up:
            if plan is not None:
                _refuse_other_config(server_blocks_digest(plan), up.blocks)
            ours = Targets.from_plan(plan) if plan is not None else Targets({}, {})
            targets = Targets(up.routes, up.environments, ours.directories)
            datasets = tuple(DatasetBinding(instance, dataset) for instance, dataset in up.datasets)
            agent = plan.settings.agent_name if plan is not None else None
            yield _Servers(up.run_id, targets, PeerDispatcher(up.peer, up.episode_timeouts), up.config_keys, datasets, agent)
        return
    from gym.runtime.launch import launch
    from gym.runtime.logs import log_colocated

    assert plan is not None
    log_colocated(plan.settings)
    async with launch(plan, plan.settings.isolation or "colocated", say=lambda line: typer.echo(line, err=True)) as running:
        dispatcher = PeerDispatcher(running.peer, plan.episode_timeouts)
        try:
            yield _Servers(running.run_id, Targets.from_plan(plan), dispatcher, key_digests(plan), plan.datasets, plan.settings.agent_name)
        finally:
            running.hurry.set()  # every episode has ended or been cancelled: there is nothing to wait for


def _plan(config: list[str] | None, model_type: str | None, overrides: list[str] | None) -> "Plan":
    from gym.cli.env import check_providers, check_usage, report
    from gym.config import load
    from gym.config.errors import ConfigErrors

    check_usage(config, model_type, overrides)
    loaded = load([Path(path) for path in config or []], overrides or [], model_type=model_type)
    report(loaded.warnings)
    if wrong := check_providers(loaded.plan):
        raise ConfigErrors(wrong)
    return loaded.plan


def _refuse_other_config(ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    from gym.config.errors import UserError, listed

    different = sorted(name for name, digest in ours.items() if theirs.get(name) != digest)
    if different:
        raise UserError(
            f"the running servers were started with another configuration of {listed(different)}: "
            "give the same --config and overrides as to 'gym env start', or none"
        )


def say_opening(launch: "Launch") -> None:
    """Tell people what is about to run."""
    for line in _opening_lines(launch):
        typer.echo(line, err=True)


def say_closing(summary: "Summary") -> None:
    """Tell people how it ended."""
    if summary.problem is not None:
        typer.echo(f"error: {summary.problem}", err=True)
    for line in _closing_lines(summary):
        typer.echo(line, err=True)


def _opening_lines(launch: "Launch") -> list[str]:
    from gym.config.errors import printable

    found = launch.prepared
    lines = [
        f"{_count(found.expected, 'rollout')} of {_count(found.rows, 'row')} -> {printable(str(launch.files.output))} (run {launch.run_id})"
    ]
    if launch.past is not None:
        lines += _resumed_lines(launch.past)
    if found.bad_rows:
        lines.append(f"warning: {found.bad_rows} of {_count(found.rows, 'row')} cannot be run; the first: {found.first_problem}")
    if found.positional_rows:
        lines.append(
            f"warning: {_count(found.positional_rows, 'row')} without task_id, problem_id or instance_id, named by position: "
            "names change when rows are added or moved"
        )
    return lines


def _resumed_lines(past: "Past") -> list[str]:
    from gym.config.errors import listed

    ended = past.before.expected - past.before.owed
    lines = [f"resumed: {_count(ended, 'rollout')} ended before, {past.to_run} to run"]
    lines += [f"warning: the last line of {name} was torn: {cut} bytes are cut" for name, cut in past.torn.items()]
    if past.changed:
        lines.append(f"warning: not as in the run that is gone on with: {listed(past.changed)}")
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _closing_lines(summary: "Summary") -> list[str]:
    lines = [_account(summary)]
    if summary.problem is None:
        lines += _first_failure(summary.files.failures)  # also of attempts that were made good: somebody broke
    return lines


def _first_failure(path: Path) -> list[str]:
    """Where to look, and one reason: an account of kinds alone says nothing that can be acted on."""
    import orjson

    from gym.config.errors import printable
    from gym.protocol.rollouts import FAILURE_MESSAGE, FAILURE_STAGE, ROLLOUT_ID
    from gym.rollouts.outcomes import failure_line

    try:
        with path.open("rb") as lines:
            row = orjson.loads(next(lines, b"{}"))
        first = failure_line(row[ROLLOUT_ID], row.get(FAILURE_STAGE), str(row[FAILURE_MESSAGE]))
        return [f"failed attempts are in {printable(str(path))}; the first, of {first}"]
    except (OSError, ValueError, KeyError):
        return []  # it could not be written, and that has been said


def _account(summary: "Summary") -> str:
    overall: dict[str, Any] = summary.metrics.get("overall") or {}
    mean, error = overall.get("mean_reward"), overall.get("standard_error")
    reward = f"; mean reward {mean:.4f}" + (f" ± {error:.4f}" if error is not None else "") if mean is not None else ""
    state = "interrupted: " if summary.interrupted else ""
    return f"{state}{summary.coverage.line()}{reward}"


def _record(value: dict[str, Any]) -> None:
    """Print a record on stdout. If nobody reads it any more, the run goes on: its account is in the files."""
    import os
    import sys

    import orjson

    try:
        sys.stdout.write(orjson.dumps(value).decode() + "\n")
        sys.stdout.flush()
    except OSError as error:
        typer.echo(f"the {value['event']} record could not be printed on stdout: {error.strerror or error}; the run goes on", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
