"""Who is who: episodes, tasks, sessions and the capture key that ties model calls to them."""

import re
import uuid
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ATTEMPT_SUFFIX = re.compile(r"-a[0-9]+$")


def check_rollout_id(value: str) -> str:
    """Return `value` if it can be a rollout id; raise ValueError with the reason otherwise.

    A rollout id must not end in `-a<N>`: that suffix marks the attempt in a capture key, and
    `capture_key` could not be read back.
    """
    if not _ROLLOUT_ID.fullmatch(value):
        raise ValueError(f"rollout id {value!r} must start with a letter or digit and hold only letters, digits, '.', '_' and '-'")
    if _ATTEMPT_SUFFIX.search(value):
        raise ValueError(f"rollout id {value!r} must not end in '-a<number>', which marks an attempt")
    return value


RolloutId = Annotated[str, AfterValidator(check_rollout_id)]


def capture_key(rollout_id: str, attempt: int) -> str:
    """The name under which an attempt's model calls are recorded; see `parse_capture_key`."""
    return rollout_id if attempt == 0 else f"{rollout_id}-a{attempt}"


class EpisodeId(BaseModel):
    """One physical attempt of a logical rollout."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    rollout_id: RolloutId
    attempt: int = Field(default=0, ge=0)

    @property
    def capture_key(self) -> str:
        """The name under which this attempt's model calls are recorded; see `parse_capture_key`."""
        return capture_key(self.rollout_id, self.attempt)


def parse_capture_key(key: str) -> EpisodeId:
    """The inverse of `EpisodeId.capture_key`. Raises ValueError for a key that no episode has."""
    rollout_id, found, attempt = key.rpartition("-a")
    if found and attempt.isdecimal() and attempt != "0":
        return EpisodeId(rollout_id=rollout_id, attempt=int(attempt))
    return EpisodeId(rollout_id=key)


class TaskId(BaseModel):
    """A task's durable name, unique within a run; `taskset` by convention `<environment>:<subset>`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    taskset: str = Field(min_length=1)
    task_id: str = Field(min_length=1)


def new_resources_session_id() -> str:
    """A fresh id for a resources session; the caller makes it before the first send."""
    return f"resources-session-{uuid.uuid4().hex}"


def new_agent_session_id() -> str:
    """A fresh id for an agent session; the caller makes it before the first send."""
    return f"agent-session-{uuid.uuid4().hex}"
