"""Running a command's coroutine, with servers around it that must be stopped in order however it ends."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import typer

Result = TypeVar("Result")


def run_to_end(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """What `work` returns. SIGTERM and SIGHUP cancel it as Ctrl-C does; all end the command with 130, once all is undone."""
    import asyncio
    import signal

    async def cancellable() -> Result:
        main, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert main is not None

        # Servers may be starting or stopping around the collector: that is undone in order too.
        def cancel(*_: object) -> None:
            loop.call_soon_threadsafe(main.cancel)

        wanted = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
        before = {number: signal.signal(number, cancel) for number in wanted}
        try:
            return await work()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(cancellable())
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
