"""`gym env start`, `status` and `logs`: servers that run, and looking at them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gym.cli.env import AgentType, Config, ModelType, Overrides, before_a_run, examine, report

if TYPE_CHECKING:
    from gym.config.plan import Plan

RunId = Annotated[str | None, typer.Option("--run", metavar="ID", help="Which run, where several are up.")]


def plan_of(config: list[str] | None, model_type: str | None, overrides: list[str] | None, agent_type: str | None = None) -> "Plan":
    """The plan of a configuration; its problems go to stderr, and errors end the command."""
    examined = examine(config, model_type, overrides, agent_type)
    report(before_a_run(examined.problems))
    if examined.plan is None:
        raise typer.Exit(1)
    return examined.plan


def say_to_stderr(line: str) -> None:
    """Tell people what is being done."""
    typer.echo(f"gym: {line}", err=True)


def start(
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    agent_type: AgentType = None,
    log_dir: Annotated[Path | None, typer.Option("--log-dir", metavar="DIR", help="Write the servers' logs here, and keep them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a record on stdout once the servers are ready.")] = False,
) -> None:
    """Start servers and keep them until Ctrl-C.

    The first Ctrl-C lets running episodes end, the second cancels them, the third kills the servers.
    """
    plan = plan_of(config, model_type, overrides, agent_type)
    import uvloop

    from gym.config.errors import UserError
    from gym.runtime.foreground import run_in_foreground
    from gym.runtime.logs import log_to_stderr
    from gym.runtime.prepare import prepare

    if not plan.instances:
        raise UserError("the configuration has no server instance, so there is nothing to start")
    log_to_stderr(30, [plan.settings.policy_api_key or ""])
    running = prepare(plan, plan.settings.isolation or "process", shared=True, say=say_to_stderr, log_dir=log_dir)
    try:
        running.fork_servers()
        code = uvloop.run(run_in_foreground(running, configs=config or [], as_json=as_json))
    finally:
        running.abandon()
    raise typer.Exit(code)


def prefetch(
    overrides: Overrides = None,
    config: Config = None,
    model_type: ModelType = None,
    agent_type: AgentType = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Use no network: make what the caches of uv and npm hold, and say what is missing.")
    ] = False,
) -> None:
    """Make what the servers of a configuration need, and start nothing.

    Python environments of servers and the programs of agents in sandboxes go to the cache, so that a start downloads nothing.
    Images of tasks are not pulled. What is there is left alone, and what was left unfinished is made anew.

    Exit codes: 0 everything is there; 1 something could not be made, each with its reason; 2 wrong usage.
    """
    plan = plan_of(config, model_type, overrides, agent_type)
    from gym.harness.programs import refuse_network
    from gym.runtime.prefetch import prefetch as fetched

    if offline:
        refuse_network()
    for made in fetched(plan, say_to_stderr):
        typer.echo(made)


def status(run_id: RunId = None, as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False) -> None:
    """Show what is running.

    Instances with address, health and open sessions, and running episodes with their stage and age.
    Exit codes: 0 all answer; 1 one does not, or nothing is running.
    """
    import asyncio

    said = asyncio.run(_status(run_id))
    if as_json:
        import json

        typer.echo(json.dumps(said, indent=2))
        return
    typer.echo(f"run {said['run_id']}  head {said['head_url']}")
    width = max(len(name) for name in said["instances"])
    for name, entry in said["instances"].items():
        extra = f"  sessions {entry['sessions']}" if entry.get("sessions") else ""
        inside = "".join(f"  from {block}: {url}" for block, url in entry.get("published", {}).items())
        typer.echo(f"  {name:<{width}}  {entry['health']:<11}  {entry['url']}{inside}{extra}")
    for name, entry in said["instances"].items():
        for episode in entry.get("episodes", []):
            typer.echo(f"  {name}: episode {episode['episode']}  task {episode['task']}  {episode['stage']}  {episode['age_s']} s")
    unwell = [name for name, entry in said["instances"].items() if entry["health"] != "ok"]
    if unwell:
        typer.echo(f"not answering: {', '.join(unwell)}", err=True)
        raise typer.Exit(1)


async def _status(run_id: str | None) -> dict[str, Any]:
    from gym.protocol import routes
    from gym.runtime.attach import ask_head, find_head
    from gym.transports import HTTPTransport

    head = find_head(run_id)
    transport = HTTPTransport()
    try:
        said = await ask_head(head, transport, routes.STATUS)
    finally:
        await transport.aclose()
    token_file = head.folder / "token" if head.folder is not None and head.token is not None else None
    return {"head_url": head.url, "token_file": str(token_file) if token_file else None, **said}


def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The instance.")],
    run_id: RunId = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing as the log grows.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines to begin with.")] = 50,
) -> None:
    """Print the log of one server."""
    from gym.config.errors import UserError, did_you_mean
    from gym.runtime.attach import find_head
    from gym.runtime.logs import follow_file, log_folder, tail

    folder = find_head(run_id).folder
    if folder is None:
        raise UserError("the logs of a run on another machine cannot be read from here")
    known = {path.stem: path for path in log_folder(folder).glob("*.log")}
    if name not in known:
        raise UserError(f"no log of {name!r} — {did_you_mean(name, known)}")
    for line in tail(known[name], lines, limit=16 * 2**20):
        typer.echo(line)
    if follow:
        for line in follow_file(known[name]):
            typer.echo(line)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the group `gym env`."""
    for command in (start, prefetch, status, logs):
        app.command()(command)
