"""The main function of a server process: `python -m gym.runtime.child SPEC SOCKET_FDS PARENT`.

It reads its spec from a private file, serves on the sockets that it inherited (all routes on the first,
data routes alone on the others, which sandboxes can reach), and ends on SIGTERM:
it stops accepting, lets its server release what it holds, and exits. It dies with its parent, and if
it is the last to do so releases what the run still owes, such as its network, and clears the run's
folder; should its own clean-up hang, a last timer ends it.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from gym.parenthood import end_with_parent

log = logging.getLogger("gym.runtime")

_LAST_RESORT_SECONDS = 600.0
"""After SIGTERM: longer than any bounded clean-up of ours; only a clean-up that hangs meets it."""


def main(spec_path: str, descriptors: str, parent: str) -> int:
    """Serve one instance until SIGTERM. Returns the exit status."""
    if not end_with_parent(int(parent), signal.SIGTERM):
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, in its order

    import uvloop

    from gym.client import CallError
    from gym.config.errors import UserError
    from gym.protocol.errors import ContractError
    from gym.runtime.folder import hold, leave
    from gym.runtime.loading import InstanceSpec, LoadError, make_server
    from gym.runtime.logs import leave_out_whereabouts, log_to_stderr
    from gym.transports import HTTPTransport

    spec = InstanceSpec.from_json(Path(spec_path).read_bytes())
    _name_process(spec.instance)
    secrets = [spec.secret, spec.token or "", spec.policy.get("policy_api_key") or ""]
    log_to_stderr(logging.INFO, secrets)
    leave_out_whereabouts()
    held = hold(Path(spec.state_dir))
    try:
        server = make_server(spec, HTTPTransport())
    except LoadError as error:
        log.error("%s", error)
        return 3

    async def serve() -> int:
        from gym.runtime.listen import answering

        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_term() -> None:
            stop.set()
            timer = threading.Timer(_LAST_RESORT_SECONDS, os._exit, (4,))
            timer.daemon = True
            timer.start()

        loop.add_signal_handler(signal.SIGTERM, on_term)
        control, *data = [_listener(int(descriptor)) for descriptor in descriptors.split(",")]
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(server.context.transport.aclose)
            try:
                app = server.app()
                await stack.enter_async_context(server.running())
            except Exception as error:
                expected = isinstance(error, (UserError, CallError, ContractError, OSError, ValueError))
                log.error("%s: cannot start: %s: %s", spec.instance, type(error).__name__, error, exc_info=not expected)
                return 3
            await stack.enter_async_context(answering(app, control))
            for listener in data:
                await stack.enter_async_context(answering(app.data(), listener))
            warming = loop.run_in_executor(None, importlib.import_module, "aiohttp")  # or the first episode would wait for it
            await stop.wait()
            await warming
            await server.wind_up()
        return 0

    code = uvloop.run(serve())
    if os.getppid() != int(parent):
        from gym.runtime.reaping import release_the_rest

        leave(Path(spec.state_dir), held, release_the_rest)
    return code


def _listener(descriptor: int) -> socket.socket:
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener


def _name_process(instance: str) -> None:
    """Show the instance's name in `ps`, without touching the environment that /proc shows."""
    os.environ.setdefault("SPT_NOENV", "1")
    from setproctitle import setproctitle

    setproctitle(f"gym server {instance}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
