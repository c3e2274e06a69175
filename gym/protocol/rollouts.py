"""What stands in the files that the collector writes: outcomes, row keys and the failure record."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from gym.protocol.ids import EpisodeId


class Outcome(StrEnum):
    """How a rollout ended; every rollout ends as exactly one of these."""

    MEASURED = "measured"
    """A verdict, with a reward."""
    MASKED = "masked"
    """The episode ran to its end and the verifier could give no verdict; enters no mean."""
    UNSCORED = "unscored"
    """Verification was switched off."""
    FAILED = "failed"
    """The episode failed; there is no row."""
    OWED = "owed"
    """Nothing is known."""


TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
ROLLOUT_ID = "_ng_rollout_id"
ATTEMPT_INDEX = "_ng_attempt_index"
RUN_ID = "_ng_run_id"
TASK_ID = "_ng_task_id"
ENVIRONMENT_SERVER = "_ng_environment_server"
TOKEN_CAPTURE = "_ng_token_capture"
"""What became of the tokens of a rollout's model calls; the one key of the collector's that the environment server sets."""
PREVIOUS_VERDICT = "ng_previous_verdict"
"""In a row that was verified again: the verdict that it had, and the run that gave it."""
MODEL_CALLS = "ng_model_call_capture"
"""What is known of a rollout's model calls."""

FAILURE_CLASS = "_ng_failure_class"
FAILURE_KIND = "_ng_failure_kind"
FAILURE_STAGE = "_ng_failure_stage"
FAILURE_TERMINAL = "_ng_failure_terminal"
FAILURE_MESSAGE = "_ng_failure_message"
FAILURE_PARTIAL_RESPONSE = "_ng_failure_partial_response"
FAILURE_RECORD = "_ng_failure_record"
NO_PERSIST = "_ng_no_persist"
"""In an agent's row of the old form: it is no measurement, and must not be kept as one."""

Delivery = Literal["not_sent", "possibly_delivered", "delivered"]


class FailureRecord(BaseModel):
    """`_ng_failure_record`: everything known about one failed attempt."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    schema_version: Literal[1] = 1
    episode_id: EpisodeId
    run_id: str
    source: Literal["environment", "collector"]
    delivery: Delivery
    failure: dict[str, Any]
    http_status: int | None = None
    exception_type: str | None = None
