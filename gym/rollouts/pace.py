"""`--concurrency auto`: finding out how many episodes the model bears.

The rule is TCP's. The limit begins low and doubles for as long as latency holds (slow start, RFC 5681), grows by an eighth
once it has met a bound, and is halved when the model says 429 (additive increase, multiplicative decrease: Chiu and
Jain 1989); nothing new is sent before the Retry-After that came with it. Latency holds while it is at most twice the
lowest seen, that is while at most every other call waits (the measure of TCP Vegas, Brakmo et al. 1994); if a
step breaks that, the step is taken back. A 5xx, a time-out or a broken connection does not say that it is too
much, and changes nothing.

Invariants: the limit is judged only while it is reached, by calls that were made under it; one cut is not followed by another
before what was out has come down to it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from gym.rollouts.gate import Gate
from gym.rollouts.ledger import Ledger

FIRST_LIMIT = 4
TOLERANCE = 2.0
"""How many times the lowest latency may be reached."""
FEWEST_CALLS = 16
"""A mean over fewer calls says nothing."""
ROUNDS_OF_REST = 8
"""How many rounds a limit is kept after a step was taken back, before the next one."""
POLL_SECONDS = 1.0


@dataclass(slots=True)
class Traffic:
    """What went to the model, or the environment servers, since the start: it only grows."""

    calls: int = 0
    """Answered well, and at once."""
    seconds: float = 0.0
    """How long these took, in all."""
    tokens: int = 0
    """What they generated; 0 where that is not known."""
    limited: int = 0
    """How often the answer was 429."""
    shut_until: float = 0.0
    """Monotonic seconds: the latest time that a Retry-After of these named."""

    def turned_away(self, now: float, retry_after: float | None) -> None:
        """Count a 429."""
        self.limited += 1
        self.shut_until = max(self.shut_until, now + (retry_after or 0.0))

    def latency_since(self, earlier: "Traffic") -> float:
        """Seconds for each token, where all of it has any, else for each call."""
        tokens = self.tokens - earlier.tokens
        return (self.seconds - earlier.seconds) / (tokens if tokens > 0 else self.calls - earlier.calls)


def summed(parts: Iterable[Traffic]) -> Traffic:
    """The traffic of several servers as one."""
    whole = Traffic()
    for part in parts:
        whole.calls += part.calls
        whole.seconds += part.seconds
        whole.tokens += part.tokens
        whole.limited += part.limited
        whole.shut_until = max(whole.shut_until, part.shut_until)
    return whole


class Pace:
    """The limit, as it stands now."""

    def __init__(self, most: int) -> None:
        self.limit = min(FIRST_LIMIT, most)
        self.highest = self.limit
        self.cuts = 0
        self.shut_until = 0.0
        self._most = most
        self._held = self.limit
        """The highest limit under which latency held since the last cut."""
        self._lowest: float | None = None
        self._slow_start = True
        self._settling = False
        """A cut was made, and more than the limit is out."""
        self._rest = 0
        self._mark: Traffic | None = None
        """The traffic when the round began."""
        self._limited = 0

    def step(self, now: float, traffic: Traffic, *, out: int, waiting: int) -> None:
        """Look at what has happened. `out` episodes are out, of which `waiting` knock at a full server."""
        if self._mark is not None and traffic.calls < self._mark.calls:
            self._mark = None  # a server was started anew
        limited, self._limited = traffic.limited - self._limited, traffic.limited
        if limited > 0:
            self.shut_until = max(self.shut_until, traffic.shut_until)
            if not self._settling:
                self._cut()
        if out > self.limit or now < self.shut_until:
            self._mark = None
            return
        self._settling = False
        if waiting or out < self.limit - self.limit // 10:
            return  # something else keeps it low, so that it says nothing about the limit
        if self._mark is None:
            self._mark = replace(traffic)
        elif traffic.calls - self._mark.calls >= max(FEWEST_CALLS, self.limit):
            self._judge(traffic.latency_since(self._mark))
            self._mark = replace(traffic) if out >= self.limit else None

    def begin(self, limited: int) -> None:
        """So many 429s were there before, and say nothing about this run."""
        self._limited = limited

    def forget(self) -> None:
        """Latency is told by somebody else from here on."""
        self._mark = self._lowest = None

    def as_dict(self) -> dict[str, Any]:
        """What the done record says."""
        return {"mode": "auto", "limit": self.limit, "highest": self.highest, "cuts": self.cuts}

    def _cut(self) -> None:
        self.cuts += 1
        self.limit = self._held = max(1, self.limit // 2)
        self._slow_start, self._settling, self._mark, self._rest = False, True, None, 0

    def _judge(self, latency: float) -> None:
        """The end of a round."""
        self._lowest = latency if self._lowest is None else min(self._lowest, latency)
        if latency > TOLERANCE * self._lowest:
            self.limit, self._slow_start, self._rest = min(self.limit, self._held), False, ROUNDS_OF_REST
            return
        self._held = self.limit
        if self._rest:
            self._rest -= 1
            return
        self.limit = min(self._most, self.limit * 2 if self._slow_start else self.limit + max(1, self.limit // 8))
        self.highest = max(self.highest, self.limit)


async def keep_pace(
    pace: Pace, gate: Gate, ledger: Ledger, episodes: Traffic, model_traffic: Callable[[], Awaitable[Traffic | None]]
) -> None:
    """Set the gate by what is seen, until cancelled.

    `episodes` is what the environment servers answered. The latency that counts is the model's, once any model server
    tells of calls, else that of episodes; a 429 counts from wherever it comes.
    """
    by_model, model = False, await model_traffic()
    pace.begin(_seen(episodes, model, by_model).limited)
    while True:
        await asyncio.sleep(POLL_SECONDS)
        model = await model_traffic()
        if not by_model and model is not None and model.calls:
            by_model = True
            pace.forget()
        pace.step(time.monotonic(), _seen(episodes, model, by_model), out=gate.out, waiting=ledger.waiting)
        if (pace.limit, pace.shut_until) != (gate.limit, gate.shut_until):
            gate.set(pace.limit, pace.shut_until)


def _seen(episodes: Traffic, model: Traffic | None, by_model: bool) -> Traffic:
    if model is None:
        return episodes
    limited, shut_until = episodes.limited + model.limited, max(episodes.shut_until, model.shut_until)
    return replace(model if by_model else episodes, limited=limited, shut_until=shut_until)
