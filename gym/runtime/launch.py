"""The second half of a start, and the way back: from a prepared run to servers that answer, and to nothing.

Starting is a transaction: if one server cannot start, all that was started is stopped again and
the error names the culprit. Stopping goes backwards: environment servers first, while what they
must clean up with still answers, then all others at once; then the run's reaper releases whatever
sandboxes are left of it.

`isolation: process` gives each instance a process; `colocated` puts all into this one, calling
each other without a network, except those that need an environment of their own.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import orjson

from gym.client import CallError
from gym.config.errors import UserError
from gym.config.plan import Instance, Plan
from gym.protocol import routes
from gym.protocol.errors import ContractError
from gym.runtime.listen import answering
from gym.runtime.loading import LoadError, make_server
from gym.runtime.logs import tail
from gym.runtime.prepare import Isolation, Running, Say, prepare
from gym.runtime.processes import ServerProcess
from gym.runtime.reaping import reaping

log = logging.getLogger("gym.runtime")

_REMIND_SECONDS = 5.0


@contextlib.asynccontextmanager
async def launch(plan: Plan, isolation: Isolation, *, say: Say = lambda line: None, log_dir: Path | None = None) -> AsyncGenerator[Running]:
    """Start everything in `plan`, and stop it all at the end. Raises UserError if something cannot start."""
    preparing = asyncio.ensure_future(asyncio.to_thread(prepare, plan, isolation, shared=False, say=say, log_dir=log_dir))
    try:
        running = await asyncio.shield(preparing)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await asyncio.to_thread((await preparing).abandon)
        raise
    async with serving(running):
        yield running


@contextlib.asynccontextmanager
async def serving(running: Running) -> AsyncGenerator[None]:
    """Bring a prepared run up, and take it down at the end; its folder goes with it, but for the logs of a crash."""
    failed = True
    try:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(running.close_sockets)
            stack.push_async_callback(running.transport.aclose)
            await stack.enter_async_context(reaping(running))
            await _start(running, stack)
            yield
        failed = False
    except asyncio.CancelledError:
        failed = False
        raise
    finally:
        keep = failed or any(process.crashed for process in running.processes.values())
        running.folder.remove(keep_logs=keep)
        running.ended = True
        if keep and running.processes:
            running.say(f"logs are kept in {running.folder.logs}")


async def _start(running: Running, stack: contextlib.AsyncExitStack) -> None:
    plan = running.plan
    others = contextlib.AsyncExitStack()
    environments = contextlib.AsyncExitStack()
    stack.push_async_callback(_stop_processes, running, environment_servers=False)
    await stack.enter_async_context(others)
    stack.push_async_callback(_stop_processes, running, environment_servers=True)
    await stack.enter_async_context(environments)
    for process in running.processes.values():
        process.start()
    # Environment servers last: on start they may have sessions of a dead predecessor to close.
    here = [i for i in plan.instances.values() if not i.remote and i.name not in running.processes]
    for instance in sorted(here, key=lambda i: i.kind == "environment_servers"):
        await _colocate(running, instance, environments if instance.kind == "environment_servers" else others)
    await _wait_ready(running)
    for server in running.servers.values():
        stack.push_async_callback(server.wind_up)
    stack.push_async_callback(drain, running, plan.settings.drain_timeout_seconds)


async def _colocate(running: Running, instance: Instance, stack: contextlib.AsyncExitStack) -> None:
    try:
        server = make_server(running.spec(instance), running.transport)
        app = server.app()
        await stack.enter_async_context(server.running())
    except (LoadError, UserError) as error:
        raise UserError(str(error)) from error
    except Exception as error:  # a server author's code: whatever it raises is a finding about that server
        log.debug("%s cannot start", instance.name, exc_info=True)
        kind = "" if isinstance(error, (CallError, ContractError, OSError, ValueError)) else f"{type(error).__name__}: "
        raise UserError(f"{instance.name}: cannot start: {kind}{error}") from error
    running.servers[instance.name] = server
    running.transport.add(running.peers[instance.name].url.removeprefix("http://"), app)
    if instance.name in running.listeners:
        await stack.enter_async_context(answering(app, running.listeners[instance.name]))
    for listener in running.published.sockets.get(instance.name, []):
        await stack.enter_async_context(answering(app.data(), listener))


async def _wait_ready(running: Running) -> None:
    limit = running.plan.settings.start_timeout_seconds
    deadline = asyncio.get_running_loop().time() + limit
    checks = {asyncio.ensure_future(_ready(running, process)): name for name, process in running.processes.items()}
    try:
        while checks:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                names = ", ".join(sorted(checks.values()))
                raise UserError(f"not ready within start_timeout_seconds ({limit:g} s): {names}; logs: {running.folder.logs}")
            done, _ = await asyncio.wait(checks, timeout=min(_REMIND_SECONDS, left), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                running.say(f"waiting for {', '.join(sorted(checks.values()))}")
            for task in done:
                name = checks.pop(task)
                task.result()
                running.processes[name].ready()
    finally:
        for task in checks:
            task.cancel()
        await asyncio.gather(*checks, return_exceptions=True)


async def _ready(running: Running, process: ServerProcess) -> None:
    """Return once the server has answered with its own name and this run's id. Raises UserError if it dies first."""
    died = asyncio.ensure_future(process.died.wait())
    answer = asyncio.ensure_future(running.peer(process.instance).get(routes.READY, timeout=None))
    try:
        await asyncio.wait((died, answer), return_when=asyncio.FIRST_COMPLETED)
        if not died.done() and answer.exception() is not None:
            await asyncio.wait((died,), timeout=1)  # a server that dies breaks its connections first
        if died.done():
            lines = "".join(f"\n    {line}" for line in tail(process.log_path))
            raise UserError(f"server {process.instance} ended while starting (exit {process.returncode}); log: {process.log_path}{lines}")
        said = answer.result().json()
    except CallError as error:
        raise UserError(f"server {process.instance} does not get ready: {error.message}; log: {process.log_path}") from error
    finally:
        died.cancel()
        answer.cancel()
        await asyncio.gather(died, answer, return_exceptions=True)
    if (said.get("instance"), said.get("run_id")) != (process.instance, running.run_id):
        where = running.peers[process.instance].url
        raise UserError(f"another program answers at {where}, in place of {process.instance}: {orjson.dumps(said)[:200]!r}")


async def drain(running: Running, seconds: float) -> None:
    """Admit no new episodes and give the running ones up to `seconds` to end, or until `running.hurry` is set."""
    ours = running.processes | running.servers
    names = [name for name, info in running.peers.items() if info.kind == "environment_servers" and name in ours]
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    said = -1
    while names and not running.hurry.is_set():
        count = sum(await asyncio.gather(*(_drain_one(running, name) for name in names)))
        left = deadline - loop.time()
        if not count or left <= 0:
            return
        if count != said:
            running.say(f"{count} episode(s) still running; up to {left:.0f} s for them to end (Ctrl-C to cancel them now)")
            said = count
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(running.hurry.wait(), min(0.1, left))


async def _drain_one(running: Running, name: str) -> int:
    try:
        reply = await running.peer(name).post(routes.DRAIN, {}, timeout=2)
        return int(reply.json()["running"])
    except (CallError, ValueError, KeyError):
        return 0


async def _stop_processes(running: Running, *, environment_servers: bool) -> None:
    chosen = [p for name, p in running.processes.items() if (running.peers[name].kind == "environment_servers") == environment_servers]
    grace = max([_stop_grace(running.plan, name) for name in running.processes], default=30.0)
    await asyncio.gather(*(process.stop(grace) for process in chosen))


def _stop_grace(plan: Plan, name: str) -> float:
    """Seconds that an instance may take to end: its own cleanup bounds, plus a margin."""
    cleanup = getattr(plan.instances[name].config, "cleanup_timeout_seconds", None)
    return 3 * float(cleanup) + 10 if cleanup is not None else 150.0
