"""Processes that end with the one that started them, however that ends. Linux alone tells a process of it."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
"""Loaded here, since between a fork and an exec nothing should be loaded any more."""


def end_with_parent(parent: int, number: signal.Signals) -> bool:
    """Have this process signalled when `parent`, which started it, dies; False if it died before we could ask."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    return os.getppid() == parent


def ending_with_us(number: signal.Signals) -> Callable[[], None]:
    """For `preexec_fn` of a process that this one is about to start. It does not begin if we are gone already."""
    parent = os.getpid()

    def ask() -> None:
        if not end_with_parent(parent, number):
            os._exit(1)

    return ask
