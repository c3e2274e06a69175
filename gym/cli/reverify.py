"""`gym eval reverify`: verdicts again without the agent. Thin: starts the servers that verify, and calls the collector."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gym.cli.collecting import AllowUnsafeResume, NoServe, Overwrite, Records, Resume, ServedRun, check_together, opening
from gym.cli.env import Config, ModelType, Overrides
from gym.cli.loop import run_to_end
from gym.cli.serving import plan_to_run, servers
from gym.cli.telling import say_closing, say_record

if TYPE_CHECKING:
    from gym.rollouts.collect import Summary
    from gym.rollouts.verdicts import Changes

_FLIPS_SHOWN = 50


def add_to(app: typer.Typer) -> None:
    """Add the command to `gym eval`."""
    app.command()(reverify)


def reverify(
    rollouts: Annotated[
        Path, typer.Argument(metavar="FILE", help="Rollouts, as 'gym eval run' wrote them; it and the files beside it are only read.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Where the rollouts with their new verdicts go.")],
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    env: Annotated[
        str | None,
        typer.Option("--env", metavar="NAME", help="The environment server whose resources server verifies; else each row's own."),
    ] = None,
    no_serve: NoServe = False,
    run_id: ServedRun = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Read at most so many rollouts.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Verifications at a time.")] = 64,
    attempts: Annotated[
        int | None, typer.Option("--attempts", min=1, max=100, help="Attempts at each verdict; else $NEMO_GYM_MAX_ROLLOUT_ATTEMPTS, or 3.")
    ] = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    allow_unsafe_resume: AllowUnsafeResume = False,
    as_json: Records = False,
) -> None:
    """Verify rollouts again, without their agent, and say which verdicts are others now.

    Starts only the servers that verify. A patch of an SWE task is graded in a fresh sandbox; other servers get the stored response,
    and one whose verdict rests on what the agent did in its session refuses. Each row keeps its old verdict beside the new one.

    Exit codes: 0 all measured; 76 finished, but some were masked, failed or owed; 1 a mistake in
    options or config, or a server that cannot verify again; 2 wrong usage; 130 interrupted.
    """
    import sys
    from functools import partial

    from gym.config.digests import key_digests
    from gym.rollouts.collect import check_before_start, check_resume, collect
    from gym.rollouts.earlier import EarlierRun
    from gym.rollouts.options import CollectOptions, attempts_from
    from gym.rollouts.reverify import Rollouts, modes_of, targets_of, verifying_servers
    from gym.rollouts.targets import Targets
    from gym.rollouts.verdicts import read_changes
    from gym.rollouts.verifier import Verifier

    check_together(no_serve=no_serve, run_id=run_id, overwrite=overwrite, resume=resume, allow_unsafe_resume=allow_unsafe_resume)
    earlier = EarlierRun(rollouts)
    earlier.check()
    check_before_start(output, overwrite=overwrite, resume=resume, inputs=earlier.all_files())
    options = CollectOptions(
        input=rollouts,
        output=output,
        environment=env,
        limit=limit,
        concurrency=concurrency,
        attempts=attempts_from(attempts),
        reverify=True,
        overwrite=overwrite,
        resume=resume,
        allow_unsafe_resume=allow_unsafe_resume,
    )
    plan = None if no_serve and not config and not model_type and not overrides else plan_to_run(config, model_type, overrides)
    started = plan.only(verifying_servers(Targets.from_plan(plan), env)) if plan is not None else None
    if started is not None and not no_serve:
        check_resume(options, key_digests(started))

    def left_out() -> str | None:
        without = earlier.without_row()
        return f"{without} rollouts of the earlier run ended without a row, and are not verified" if without else None

    async def work() -> "Summary":
        async with servers(plan, no_serve=no_serve, run_id=run_id, started=started) as up:
            targets = targets_of(up.targets)
            modes = await modes_of(verifying_servers(targets, env), up.peer)
            verifier = Verifier(rollouts, targets, modes, up.peer, up.timeouts)
            try:
                return await collect(
                    options,
                    targets,
                    verifier,
                    run_id=up.run_id,
                    config_keys=up.config_keys,
                    preparation=partial(Rollouts, modes=modes),
                    on_launch=opening(as_json, left_out),
                    progress=sys.stderr,
                )
            finally:
                verifier.close()

    summary = run_to_end(work)
    changes = read_changes(summary.files.output)
    if as_json:
        say_record({**summary.as_dict(), "verdicts": changes.as_dict()})
    say_closing(summary)
    _say_changes(changes)
    raise typer.Exit(summary.exit_code)


def _say_changes(changes: "Changes") -> None:
    from gym.config.errors import printable

    typer.echo(changes.line(), err=True)
    for flip in changes.flips[:_FLIPS_SHOWN]:
        typer.echo(f"  {printable(str(flip))}", err=True)
    if changes.changed > _FLIPS_SHOWN:
        typer.echo(f"  and {changes.changed - _FLIPS_SHOWN} more; each row has its old verdict as ng_previous_verdict", err=True)
