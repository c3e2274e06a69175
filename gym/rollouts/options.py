"""What a collection is asked to do, and how many attempts a rollout has."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gym.config.errors import UserError

ATTEMPTS_VARIABLE = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
DEFAULT_ATTEMPTS = 3
DEFAULT_CONCURRENCY = 64
DEFAULT_CEILING = 512
MAX_CONCURRENCY = 1_000_000
MAX_ATTEMPTS = 100
MAX_REPEATS = 100_000
MAX_SHARDS = 100_000


@dataclass(frozen=True)
class CollectOptions:
    """The options of one collection; `__post_init__` raises UserError for values that cannot be meant."""

    input: Path
    output: Path
    taskset: str | None = None
    """The taskset of the data set that the input belongs to, where known."""
    environment: str | None = None
    agent: str | None = None
    limit: int | None = None
    """Rows read at most; None for all."""
    concurrency: int = DEFAULT_CONCURRENCY
    """Episodes at a time; with `adaptive` the most that may come of finding out how many are good."""
    adaptive: bool = False
    num_repeats: int = 1
    attempts: int = DEFAULT_ATTEMPTS
    shard: tuple[int, int] | None = None
    """Which part of the tasks, from 1, and of how many; None for all."""
    reverify: bool = False
    """The input is an earlier run's output, of which only the verdicts are made anew."""
    overwrite: bool = False
    resume: bool = False
    """Go on with what an earlier run left at the output; begin if there is nothing."""
    allow_unsafe_resume: bool = False
    """Go on also where options, rows or configuration are not those of the earlier run."""

    def __post_init__(self) -> None:
        _check("--concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        _check("--num-repeats", self.num_repeats, 1, MAX_REPEATS)
        _check("--attempts", self.attempts, 1, MAX_ATTEMPTS)
        if self.limit is not None:
            _check("--limit", self.limit, 1, 1 << 62)


def shard_from(text: str | None) -> tuple[int, int] | None:
    """What `--shard i/n` says. Raises UserError if it cannot be meant."""
    if text is None:
        return None
    part, slash, parts = text.partition("/")
    if not slash or not (part.isdecimal() and parts.isdecimal()) or not 1 <= int(part) <= int(parts) <= MAX_SHARDS:
        raise UserError(f"--shard {text} must be i/n with i from 1 to n, such as 1/4")
    return int(part), int(parts)


def concurrency_from(text: str) -> tuple[int, bool]:
    """What `--concurrency` says: a number, or `auto` with or without a ceiling; and whether it is auto. Raises UserError."""
    number, adaptive = text, text == "auto" or text.startswith("auto:")
    if adaptive:
        number = text.partition(":")[2] if ":" in text else str(DEFAULT_CEILING)
    if not number.isdecimal() or not 1 <= int(number) <= MAX_CONCURRENCY:
        raise UserError(f"{text!r} must be a number from 1 on, 'auto', or 'auto:N' for at most N")
    return int(number), adaptive


def attempts_from(option: int | None, env: Mapping[str, str] = os.environ) -> int:
    """The number of attempts: the option, else the environment variable, else 3. Raises UserError for a bad variable."""
    if option is not None:
        return option
    text = env.get(ATTEMPTS_VARIABLE, "").strip()
    if not text:
        return DEFAULT_ATTEMPTS
    if not text.isdecimal() or not 1 <= int(text) <= MAX_ATTEMPTS:
        raise UserError(f"{ATTEMPTS_VARIABLE}={text!r} must be a whole number from 1 to {MAX_ATTEMPTS}")
    return int(text)


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UserError(f"{name} {value} must lie between {low} and {high}")
