"""The lines of the output and of the failures file, as bytes.

Invariant: the collector's own keys (`_ng_*`) say what the collector knows; a result cannot set
them. Everything else in a result is kept as it came. A result is serialised here, once.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from gym.config.plan import Route
from gym.protocol import rollouts as keys
from gym.rollouts.outcomes import Episode, Failure
from gym.tasks.materialize import RUN_PREFIX


class RecordMaker:
    """Makes the rows of one run."""

    def __init__(self, run_id: str, environments: Mapping[str, Route]) -> None:
        self._run_id = run_id
        self._agents: dict[str, dict[str, str]] = {
            name: {"type": "responses_api_agents", "name": route.agent} for name, route in environments.items() if route.agent
        }

    def result(self, episode: Episode, row: dict[str, Any]) -> bytes:
        """The output row of a result; `row` is changed in place and becomes the record."""
        for key in [key for key in row if key.startswith(RUN_PREFIX) and key != keys.TOKEN_CAPTURE]:
            del row[key]
        row.update(self._identity(episode))
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)

    def failure(self, episode: Episode, failure: Failure) -> bytes:
        """The row of one failed attempt."""
        record: dict[str, Any] = {
            "schema_version": 1,
            "episode_id": {"rollout_id": episode.rollout_id, "attempt": episode.attempt},
            "run_id": self._run_id,
            "source": failure.source,
            "delivery": failure.delivery,
            "failure": {
                **failure.details,
                "failure_reason": failure.message,
                "terminal": failure.terminal,
                "failure_kind": failure.kind,
                "stage": failure.stage,
            },
        }
        if failure.http_status is not None:
            record["http_status"] = failure.http_status
        if failure.exception_type is not None:
            record["exception_type"] = failure.exception_type
        row = {
            **self._identity(episode),
            keys.FAILURE_CLASS: failure.failure_class,
            keys.FAILURE_KIND: failure.kind,
            keys.FAILURE_STAGE: failure.stage,
            keys.FAILURE_TERMINAL: not failure.retry,
            keys.FAILURE_MESSAGE: failure.message,
            keys.FAILURE_PARTIAL_RESPONSE: failure.partial_response,
            keys.FAILURE_RECORD: record,
        }
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)

    def _identity(self, episode: Episode) -> dict[str, Any]:
        identity: dict[str, Any] = {
            keys.TASK_INDEX: episode.task_index,
            keys.ROLLOUT_INDEX: episode.rollout_index,
            keys.ROLLOUT_ID: episode.rollout_id,
            keys.ATTEMPT_INDEX: episode.attempt,
            keys.RUN_ID: self._run_id,
            keys.TASK_ID: episode.task_id,
            keys.ENVIRONMENT_SERVER: episode.environment,
        }
        agent = self._agents.get(episode.environment or "")
        if agent is not None:
            identity["agent_ref"] = agent
        return identity
