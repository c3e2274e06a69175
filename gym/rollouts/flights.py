"""The episodes that are out: since when, where, and in which stage, as far as their environment servers tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from gym.protocol.failures import Stage

_ORDER = {stage: number for number, stage in enumerate(get_args(Stage))}
OTHER = "other"
"""Out, and in no stage that a server tells of: on its way, or just ended."""


class Flight(NamedTuple):
    """One episode that is out, since `started` (monotonic seconds)."""

    started: float
    environment: str


@dataclass
class Stages:
    """What environment servers say of their episodes."""

    of: dict[str, str] = field(default_factory=dict[str, str])
    """Capture key -> stage."""
    queued: int = 0
    """Episodes that wait to be let in."""


class StageCount(NamedTuple):
    """How many episodes are in a stage, and how old the oldest of these is, in seconds."""

    stage: str
    number: int
    oldest: float


def by_stage(flights: Mapping[str, Flight], told: Stages | None, now: float) -> list[StageCount]:
    """The episodes that are out by their stages, in the order of stages; empty where nobody tells."""
    if told is None:
        return []
    found: dict[str, tuple[int, float]] = {}
    queued = told.queued
    for key, flight in flights.items():
        stage = told.of.get(key)
        if stage is None:
            stage, queued = ("admission", queued - 1) if queued > 0 else (OTHER, 0)
        number, first = found.get(stage, (0, now))
        found[stage] = (number + 1, min(first, flight.started))
    ordered = sorted(found, key=lambda stage: _ORDER.get(stage, len(_ORDER)))
    return [StageCount(stage, found[stage][0], now - found[stage][1]) for stage in ordered]
