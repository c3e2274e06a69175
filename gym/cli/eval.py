"""`gym eval`: run rollouts and write them.

Thin: `run` finds the servers (its own, or those of a run that is up), chooses the rows, and calls
the collector. stdout gets records with `--json` and nothing else; people are told on stderr.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym.cli.collecting import AllowUnsafeResume, NoServe, Overwrite, Records, Resume, ServedRun, check_together, opening
from gym.cli.env import AgentType, Config, ModelType, Overrides
from gym.cli.loop import run_to_end
from gym.cli.serving import plan_to_run, servers
from gym.cli.telling import say_closing, say_record

if TYPE_CHECKING:
    from gym.config.plan import DatasetBinding
    from gym.rollouts.collect import Summary
    from gym.rollouts.options import CollectOptions

app = typer.Typer(help="Run rollouts.", no_args_is_help=True, rich_markup_mode=None)


def _concurrency(text: str) -> tuple[int, bool]:
    from gym.config.errors import UserError
    from gym.rollouts.options import concurrency_from

    try:
        return concurrency_from(text)
    except UserError as error:
        raise typer.BadParameter(str(error)) from None


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
    agent_type: AgentType = None,
    input: Annotated[Path | None, typer.Option("--input", "-i", metavar="FILE", help="Rows, as JSONL; else a data set is used.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", metavar="NAME", help="A data set of the configuration.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The agent instance to run rows with.")] = None,
    env: Annotated[str | None, typer.Option("--env", metavar="NAME", help="The environment server that rows go to.")] = None,
    no_serve: NoServe = False,
    run_id: ServedRun = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Read at most so many rows.")] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="I/N", help="Run only every N-th task, from the I-th on; see 'gym eval merge'.")
    ] = None,
    concurrency: Annotated[
        Any,
        typer.Option(
            "--concurrency",
            metavar="N|auto|auto:N",
            parser=_concurrency,
            help="Episodes at a time; with auto as many as the model bears, and at most N (512).",
        ),
    ] = "64",
    num_repeats: Annotated[
        int | None, typer.Option("--num-repeats", min=1, help="Rollouts for each row; else what the data set says.")
    ] = None,
    attempts: Annotated[
        int | None, typer.Option("--attempts", min=1, max=100, help="Attempts at each rollout; else $NEMO_GYM_MAX_ROLLOUT_ATTEMPTS, or 3.")
    ] = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    allow_unsafe_resume: AllowUnsafeResume = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check options, config and output, and start nothing.")] = False,
    as_json: Records = False,
) -> None:
    """Run rows as episodes and write what came of them.

    Starts the servers of the configuration, or with --no-serve uses those that run, sends every row
    to its environment server, and accounts for each rollout.

    Exit codes: 0 all measured; 76 finished, but some were masked, failed or owed; 1 a mistake in
    options, config or credentials; 2 wrong usage; 130 interrupted.
    """
    import sys

    from gym.config.digests import key_digests
    from gym.config.errors import UserError
    from gym.rollouts.collect import check_before_start, check_resume, collect
    from gym.rollouts.dispatch import PeerDispatcher
    from gym.rollouts.targets import Targets

    if input is not None and dataset is not None:
        raise typer.BadParameter("give either --input or --dataset")
    check_together(no_serve=no_serve, run_id=run_id, overwrite=overwrite, resume=resume, allow_unsafe_resume=allow_unsafe_resume)
    request = _Request(
        output, input, dataset, agent, env, limit, concurrency, num_repeats, attempts, overwrite, resume, allow_unsafe_resume, shard
    )
    check_before_start(output, overwrite=overwrite, resume=resume, inputs=[input] if input is not None else [])
    named = config or model_type or agent_type or overrides
    plan = None if no_serve and not named else plan_to_run(config, model_type, overrides, agent_type)
    if plan is not None:
        # What is wrong with these is said before anything is started.
        options = request.options(plan.datasets, plan.settings.agent_name)
        Targets.from_plan(plan).choose(options.environment, options.agent)
        if not no_serve:
            check_resume(options, key_digests(plan))
    if dry_run:
        typer.echo("nothing is wrong with it; nothing was started (--dry-run)", err=True)
        return

    async def work() -> "Summary":
        async with servers(plan, no_serve=no_serve, run_id=run_id) as up:
            return await collect(
                request.options(up.datasets, up.default_agent),
                up.targets,
                PeerDispatcher(up.peer, up.timeouts, up.models()),
                run_id=up.run_id,
                config_keys=up.config_keys,
                on_launch=opening(as_json),
                progress=sys.stderr,
            )

    try:
        summary = run_to_end(work)
    except UserError as error:
        if as_json:
            say_record({"event": "error", "message": str(error)})
        raise
    if as_json:
        say_record(summary.as_dict())
    say_closing(summary)
    raise typer.Exit(summary.exit_code)


@app.command()
def merge(
    shards: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The outputs of all shards.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the whole goes, as if one run had written it.")],
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a done record on stdout.")] = False,
) -> None:
    """Put the outputs of all shards of a run together, with one account.

    Exit codes as of 'gym eval run'.
    """
    from gym.rollouts.merge import merge as put_together

    summary = put_together(output, shards, overwrite=overwrite)
    if as_json:
        say_record(summary.as_dict())
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
    concurrency: tuple[int, bool]
    """How many episodes, and whether that is the most that `auto` may come to."""
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
        concurrency, adaptive = self.concurrency
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
            concurrency=concurrency,
            adaptive=adaptive,
            num_repeats=self.num_repeats or repeats,
            attempts=attempts_from(self.attempts),
            overwrite=self.overwrite,
            shard=shard_from(self.shard),
            resume=self.resume,
            allow_unsafe_resume=self.allow_unsafe_resume,
        )
