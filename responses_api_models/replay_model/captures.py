"""Which file holds the rollout that a capture key names.

All attempts of a rollout play its last recorded attempt: it is the one that was left standing, while what made the
others fail (a sandbox, a server that died) does not happen again. Who wants another names its file.
Invariant: what is there is looked up once, at the start.
"""

from pathlib import Path

from gym.config.roots import search_roots
from gym.models.capture.folder import file_name
from gym.models.capture.records import Capture, read_capture
from gym.protocol.errors import ContractError
from gym.protocol.ids import EpisodeId, parse_capture_key

_ATTEMPTS = 100
"""Later attempts are not looked for."""


class Captures:
    """The files of a run, or one of them. Raises ValueError, for whoever wrote the configuration, if there is nothing to play."""

    def __init__(self, captures: Path) -> None:
        place = next((path for root in search_roots() if (path := root / captures).exists()), None)
        if place is None:
            raise ValueError(f"captures: {captures} does not exist: give the folder <output stem>_model_calls of a run, or a file of it")
        self._shown = captures
        try:
            self._folder, names = (place, {path.name for path in place.glob("*.jsonl")}) if place.is_dir() else (place.parent, {place.name})
            if not names:
                raise ValueError(f"captures: {captures} holds no *.jsonl: was the run made with observability_enabled: true?")
            if not place.is_dir() and not read_capture(place).calls:
                raise ValueError(f"captures: {captures} holds no model calls: give a file of <output stem>_model_calls")
        except OSError as error:
            raise ValueError(f"captures: {captures} cannot be read: {error.strerror or error}") from error
        self._names = names

    def read(self, capture_key: str) -> tuple[str, Capture]:
        """The name of the file that a rollout plays, and what it holds. Raises ContractError, terminal, if that cannot be had."""
        name = self._name(capture_key)
        if name is None:
            reason = f"there is no capture of rollout {capture_key} in {self._shown}: give the rows of the recorded run, in their order"
            raise ContractError(409, reason, kind="replay_model:unknown_rollout", terminal=True)
        try:
            capture = read_capture(self._folder / name)
            problem = f"{capture.unreadable} of its lines are no records, or lack what they refer to" if capture.unreadable else ""
        except OSError as error:
            capture, problem = Capture(), error.strerror or str(error)
        if problem:
            reason = f"the capture {self._shown}: {name} cannot be played: {problem}"
            raise ContractError(409, reason, kind="replay_model:capture_unreadable", terminal=True)
        return name, capture

    def _name(self, capture_key: str) -> str | None:
        try:
            rollout_id = parse_capture_key(capture_key).rollout_id
        except ValueError:
            return None
        attempts = (file_name(EpisodeId(rollout_id=rollout_id, attempt=number).capture_key) for number in reversed(range(_ATTEMPTS)))
        return next((name for name in attempts if name in self._names), None)
