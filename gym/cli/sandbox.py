"""`gym sandbox`: look at sandboxes, and release those whose owners are gone.

Thin: which providers to ask is said by `--config`, else it is the Docker engine that DOCKER_HOST
names; what is owed by earlier runs is read from their journals. Data goes to stdout, problems go
to stderr.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gym.cli.env import Config, ModelType, Overrides
from gym.cli.tables import print_table

if TYPE_CHECKING:
    from gym.sandbox.reaper import Found, Reaper, Report

T = TypeVar("T")

app = typer.Typer(help="Look at sandboxes, and release what is left over.", no_args_is_help=True, rich_markup_mode=None)

RunId = Annotated[str | None, typer.Option("--run", metavar="ID", help="Only those of this run.")]


@app.command()
def ls(
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    run_id: RunId = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List sandboxes, with run, episode, age and owner.

    Asks the providers of the configuration, or without one the Docker engine that DOCKER_HOST names,
    and the journals of this user's runs. Exit codes: 0 listed; 1 a provider does not answer.
    """
    report = _with_reaper(config, model_type, overrides, lambda reaper: reaper.survey(run_id))
    if as_json:
        import json

        typer.echo(json.dumps([_entry(found) for found in report.found], indent=2))
    else:
        _table(report)
    _tell_problems(report)


@app.command()
def reap(
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    run_id: RunId = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also sandboxes of yours whose owner cannot be judged from here; asks before.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Release the sandboxes whose owners are gone.

    Never touches one of a live owner or of another user. Exit codes: 0 nothing is left over;
    1 something could not be released or asked; 2 wrong usage.
    """
    import sys

    if everything and not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("--all asks before it releases, and there is no terminal: add --yes")
        report = _with_reaper(config, model_type, overrides, lambda reaper: reaper.survey(run_id))
        chosen = [found for found in report.found if found.judgement.releasable or found.given_up or found.judgement.owner == "unknown"]
        if chosen:
            _table(report)
            if not typer.confirm(f"Release {_count(chosen)}?"):
                raise typer.Exit(1)

    async def work(reaper: "Reaper") -> "Report":
        return await _reap_to_the_end(reaper, run_id, everything)

    report = _with_reaper(config, model_type, overrides, work)
    for found in report.released:
        typer.echo(f"released {found.sandbox_id}  run {_label(found, 'run-id')}  ({found.judgement.why})")
    left = [found for found in report.found if found not in report.released and found.status is not None]
    tally = ", ".join(f"{count} {owner}" for owner, count in _tally(left).items())
    typer.echo(f"{_count(report.released)} released{f'; left alone: {tally}' if tally else ''}", err=True)
    _tell_problems(report)


async def _reap_to_the_end(reaper: "Reaper", run_id: str | None, unknown: bool) -> "Report":
    """Reap, and where a create may still be under way, once more when that is over."""
    import asyncio

    from gym.runtime.folder import clear_dead_runs, state_root
    from gym.sandbox.reaper import SETTLE_SECONDS

    report = await reaper.reap(run_id, unknown=unknown)
    if report.pending and not report.problems:
        typer.echo(f"{report.pending} may still be on the way; looking again in {SETTLE_SECONDS:g} s", err=True)
        await asyncio.sleep(SETTLE_SECONDS)
        again = await reaper.reap(run_id, unknown=unknown)
        again.released[:0] = report.released
        report = again
    if (state_root() / "runs").is_dir():
        clear_dead_runs()
    return report


def _with_reaper(
    config: list[str] | None, model_type: str | None, overrides: list[str] | None, work: "Callable[[Reaper], Awaitable[T]]"
) -> T:
    """Runs `work` with a reaper of all that can be reached."""
    import asyncio

    from gym.config.errors import UserError
    from gym.runtime.folder import lease_folders
    from gym.sandbox.reaper import Reaper
    from gym.sandbox.registry import provider_from_block
    from gym.sandbox.spec import SandboxError

    blocks: list[tuple[str, Any]] = list(_blocks(config, model_type, overrides).items())
    folders = lease_folders()
    blocks += [item for folder in folders if folder.owed() for item in folder.providers().items()]

    async def with_reaper() -> T:
        reaper = Reaper([], folders)
        for name, block in blocks:
            try:
                reaper.add(provider_from_block(name, block))
            except (SandboxError, ValueError) as error:
                raise UserError(f"sandbox provider {name} cannot be used: {error}") from error
        try:
            return await work(reaper)
        finally:
            await reaper.aclose()

    return asyncio.run(with_reaper())


def _blocks(config: list[str] | None, model_type: str | None, overrides: list[str] | None) -> dict[str, Any]:
    if not config and not model_type and not overrides:
        return {"docker": {"docker": {}}}
    from gym.cli.servers import plan_of
    from gym.config.errors import UserError

    found = dict(plan_of(config, model_type, overrides).sandbox_providers)
    if not found:
        raise UserError("the configuration has no sandbox provider, so there is nowhere to look; without --config it is Docker")
    return found


def _label(found: "Found", name: str) -> str:
    return found.labels.get(f"nemo-gym.{name}", "")


def _entry(found: "Found") -> dict[str, Any]:
    """One sandbox as a record. Times are in seconds; what is not known is null."""
    from gym.sandbox.ownership import METADATA

    expires, taken = _number(_label(found, "expires-at")), _number(_label(found, "created-at"))
    now = time.time()
    return {
        "sandbox_id": found.sandbox_id,
        "kind": "network" if found.is_network else "sandbox",
        "run_id": _label(found, "run-id") or None,
        "episode": _label(found, "episode-id") or None,
        "session_id": _label(found, "session-id") or None,
        "instance": _label(found, "instance") or None,
        "role": _label(found, "role") or None,
        "age_s": None if taken is None else max(0, round(now - taken)),
        "expires_in_s": None if expires is None else round(expires - now),
        "owner": {"host": _label(found, "owner-host"), "pid": _label(found, "owner-pid"), "user": _label(found, "owner-user")},
        "owner_state": found.judgement.owner.value,
        "why": found.judgement.why,
        "given_up": found.given_up,
        "status": found.status.value if found.status is not None else "missing",
        "place": found.place,
        "metadata": {name.removeprefix(METADATA): value for name, value in found.labels.items() if name.startswith(METADATA)},
    }


def _table(report: "Report") -> None:
    """One line for each sandbox, under a heading."""
    rows: list[tuple[str, ...]] = [("SANDBOX", "RUN", "EPISODE", "INSTANCE", "ROLE", "AGE", "EXPIRES", "STATUS", "OWNER", "WHY")]
    for found in report.found:
        entry = _entry(found)
        owner = f"{entry['owner']['pid']}@{entry['owner']['host']}"
        state = "given up" if entry["given_up"] else entry["owner_state"]
        texts = (entry["sandbox_id"][:21], entry["run_id"], entry["episode"], entry["instance"], entry["role"])
        times = (_duration(entry["age_s"]), _duration(entry["expires_in_s"]))
        rows.append((*(str(text or "-") for text in texts), *times, entry["status"], state, f"{entry['why']} ({owner})"))
    if report.found:
        print_table(rows)
    typer.echo(_count(report.found), err=True)


def _tell_problems(report: "Report") -> None:
    for problem in dict.fromkeys(report.problems):
        typer.echo(problem, err=True)
    if report.problems or report.pending:
        if report.pending:
            typer.echo(f"{report.pending} could not be settled: try again", err=True)
        raise typer.Exit(1)


def _tally(found: "list[Found]") -> dict[str, int]:
    from collections import Counter

    return dict(Counter(one.judgement.owner.value for one in found))


def _count(found: "list[Found]") -> str:
    networks = sum(one.is_network for one in found)
    number = len(found) - networks
    of_networks = f", {networks} network{'s' * (networks != 1)}" if networks else ""
    return f"{number} sandbox{'es' * (number != 1)}{of_networks}"


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 0:
        return "over"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 60}h{minutes % 60:02}m" if minutes >= 60 else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
