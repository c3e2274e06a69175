"""`gym env start`: bring a run up, keep it, and take it down on a signal.

The first Ctrl-C drains (no new episodes, running ones may end), the second cancels what runs, the
third kills; each says what is left. A Ctrl-C while servers are still starting undoes the start. Should
even that hang, one more leaves at once.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from gym.runtime.head import head_app
from gym.runtime.launch import serving
from gym.runtime.listen import answering, open_socket, url_of
from gym.runtime.prepare import Running

Say = Callable[[str], None]


class _Signals:
    """Counts presses, and turns them into the three steps of stopping."""

    def __init__(self, main: "asyncio.Task[Any]", say: Say) -> None:
        self.stop = asyncio.Event()
        self.running: Running | None = None
        self.exit_code = 0
        self._main = main
        self._say = say
        self._presses = 0

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        self._presses += 1
        self.exit_code = self.exit_code or 128 + number
        if self._presses > 3 or (self._presses == 3 and self.running is None):
            self._say("leaving at once")
            os._exit(self.exit_code)  # the servers are told by the kernel that their parent is gone
        if self.running is None:
            if self._presses == 1:
                self._say("stopping before everything has started")
                self._main.cancel()
        elif self._presses == 1:
            self._say("stopping: no new episodes are admitted")
            self.stop.set()
        elif self._presses == 2:
            self._say("cancelling the running episodes, and releasing what they hold")
            self.running.hurry.set()
        else:
            self._say("killing the servers")
            self.running.kill()


async def run_in_foreground(running: Running, *, configs: Sequence[str], as_json: bool) -> int:
    """Serve a prepared run until a signal, and return the exit status. Raises UserError if it cannot start."""
    plan, say = running.plan, running.say
    main = asyncio.current_task()
    assert main is not None
    signals = _Signals(main, say)
    signals.install()
    try:
        async with contextlib.AsyncExitStack() as stack:
            head = open_socket(plan.settings.head_server.host, plan.settings.head_server.port, "the head server")
            stack.callback(head.close)
            await stack.enter_async_context(serving(running))
            await stack.enter_async_context(answering(head_app(running), head))
            if running.credentials.token is not None:
                running.folder.write_private("token", running.credentials.token.encode())
            running.folder.announce(url_of(head), list(configs))
            _announce(running, url_of(head), as_json, say)
            signals.running = running
            await signals.stop.wait()
    except asyncio.CancelledError:
        if not signals.exit_code:
            raise
    say("stopped")
    return signals.exit_code


def _announce(running: Running, head_url: str, as_json: bool, say: Say) -> None:
    width = max(len(name) for name in running.peers)
    for name, info in running.peers.items():
        say(f"  {name:<{width}}  {info.kind}/{info.implementation}  {info.url}")
    say(f"{len(running.peers)} servers are ready; run {running.run_id}; head {head_url}; Ctrl-C stops them")
    if as_json:
        auth = running.plan.settings.auth
        record = {
            "event": "ready",
            "run_id": running.run_id,
            "head_url": head_url,
            "token_file": None if auth == "off" else str(running.folder.path / "token"),
            "log_dir": str(running.folder.logs),
            "instances": {
                name: {"kind": i.kind, "implementation": i.implementation, "url": i.url, "published": dict(i.published)}
                for name, i in running.peers.items()
            },
        }
        sys.stdout.write(orjson.dumps(record).decode() + "\n")
        sys.stdout.flush()
