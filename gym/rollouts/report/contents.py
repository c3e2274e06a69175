"""What the page holds of each rollout: a line for its table, and its transcript, both within bounds.

Invariant: a rollout that ended without a row stands there as failed, with what is known of each of its attempts; nothing of a
failure is shown as a score. Texts are cut in their middle, and say by how much.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from gym.config.errors import UserError
from gym.harness.evidence import a_list, an_object
from gym.protocol import rollouts as keys
from gym.rollouts.aggregate import Tally
from gym.rollouts.scored import Scored, scored_rows
from gym.tasks.rows import RowProblem, read_rows

_MOST_TEXT = 20_000
_MOST_ITEMS = 400
_MOST_FIELDS = 200
_APART = ("response", "responses_create_params", "ng_agent_observations", "ng_model_call_capture", "reward", "mask_sample", "agent_ref")


@dataclass
class Rollout:
    """One rollout: `line` is its cells in the table (see COLUMNS), `details` what is shown of it when it is opened."""

    line: list[Any]
    details: dict[str, Any]


COLUMNS = ("rollout", "task", "taskset", "subset", "outcome", "reward", "attempts", "calls", "tokens", "seconds", "reason")


@dataclass
class _Failed:
    """The failed attempts of one rollout, and the row of the newest."""

    attempts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    newest: dict[str, Any] = field(default_factory=dict[str, Any])


def rollouts_of(output: Path, failures: Path, tally: Tally) -> Iterator[Rollout]:
    """All rollouts of a run: those with a row, in their order and counted by `tally`, then those that failed. Raises UserError."""
    failed = _failed(failures)
    for scored in scored_rows([output]):
        tally.add(scored)
        earlier = failed.pop(_name(scored.row), _Failed())
        yield _scored(scored, earlier)
    for attempts in failed.values():
        yield _lost(attempts)


def _failed(path: Path) -> dict[str, _Failed]:
    found: dict[str, _Failed] = {}
    if not path.exists():
        return found
    for row in read_rows(path):
        if isinstance(row, RowProblem):
            raise UserError(str(row))
        of = found.setdefault(_name(row.value), _Failed())
        told = {
            name: row.value.get(key)
            for name, key in (
                ("attempt", keys.ATTEMPT_INDEX),
                ("kind", keys.FAILURE_KIND),
                ("class", keys.FAILURE_CLASS),
                ("stage", keys.FAILURE_STAGE),
                ("message", keys.FAILURE_MESSAGE),
            )
        }
        of.attempts.append({name: shortened(value) for name, value in told.items()})
        of.newest = row.value
    return found


def _name(row: dict[str, Any]) -> str:
    """The rollout's id; rows of other tools may have none."""
    return str(row.get(keys.ROLLOUT_ID) or f"{row.get(keys.TASK_INDEX)}-{row.get(keys.ROLLOUT_INDEX, 0)}")


def _scored(scored: Scored, earlier: _Failed) -> Rollout:
    row = scored.row
    masked = scored.masked
    outcome = "masked" if masked else "unscored" if row.get("reward") is None else "measured"
    response = an_object(row.get("response"))
    reason = str(row.get("failure_reason") or an_object(response.get("incomplete_details")).get("reason") or "")
    attempts = earlier.attempts if not masked else [one for one in earlier.attempts if one["class"] != "masked_result"]
    return _rollout(row, scored.task, outcome, None if masked else row.get("reward"), reason, attempts, response)


def _lost(failed: _Failed) -> Rollout:
    row = failed.newest
    named = an_object(row.get(keys.TASK_ID))
    task = str(named.get("taskset", "")), str(named.get("task_id", row.get(keys.TASK_INDEX, "")))
    kind = row.get(keys.FAILURE_KIND) or row.get(keys.FAILURE_CLASS) or "failed"
    reason = f"{kind}: {row.get(keys.FAILURE_MESSAGE)}"
    return _rollout(row, task, "failed", None, reason, failed.attempts, an_object(row.get(keys.FAILURE_PARTIAL_RESPONSE)))


def _rollout(
    row: dict[str, Any],
    task: tuple[str, str],
    outcome: str,
    reward: float | None,
    reason: str,
    attempts: list[dict[str, Any]],
    response: dict[str, Any],
) -> Rollout:
    capture, observed = an_object(row.get("ng_model_call_capture")), an_object(row.get("ng_agent_observations"))
    metrics, usage = an_object(capture.get("metrics")), an_object(response.get("usage"))
    line: list[Any] = [
        _name(row),
        task[1],
        task[0],
        row.get("subset") if isinstance(row.get("subset"), str) else "",
        outcome,
        reward,
        len(attempts) + (outcome != "failed"),
        metrics.get("num_calls"),
        metrics.get("tokens_total", usage.get("total_tokens")),
        observed.get("seconds"),
        shortened(reason, 300),
    ]
    fields = {name: value for name, value in row.items() if name not in _APART and not name.startswith("_ng_")}
    return Rollout(
        line,
        {
            "asked": _items(an_object(row.get("responses_create_params")).get("input")),
            "output": _items(response.get("output")),
            "status": response.get("status"),
            "usage": usage,
            "attempts": attempts,
            "calls": [_call(call) for call in a_list(capture.get("calls"))[:_MOST_ITEMS]],
            "observations": shortened(observed),
            "fields": shortened(dict(list(fields.items())[:_MOST_FIELDS])),
        },
    )


def _call(call: object) -> dict[str, Any]:
    told = an_object(call)
    wanted = ("call_index", "status_code", "finish_reason", "started_at", "latency_total_ms", "latency_ttft_ms", "tokens_in", "tokens_out")
    return {name: shortened(told.get(name), 200) for name in wanted}


def _items(given: object) -> list[Any]:
    """Messages, reasoning, calls and their outputs, in order; the middle of very many is left out, and said to be."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": shortened(given)}]
    items = a_list(given)
    if len(items) > _MOST_ITEMS:
        half = _MOST_ITEMS // 2
        gap = {"type": "cut", "content": f"{len(items) - 2 * half} items are left out here; the output file has them"}
        items = [*items[:half], gap, *items[-half:]]
    return [_item(item) for item in items]


def _item(item: object) -> object:
    """Token ids are for trainers, and a thousand times as long as what they say."""
    if isinstance(item, dict):
        told = cast("dict[str, Any]", item)
        item = {name: value for name, value in told.items() if not name.endswith(("token_ids", "log_probs", "logprobs"))}
    return shortened(item)


def shortened(value: object, most: int = _MOST_TEXT) -> Any:
    """A JSON value whose texts are at most about `most` characters, and whose lists and objects at most as many members."""
    if isinstance(value, str):
        if len(value) <= most:
            return value
        half = most // 2
        return f"{value[:half]}\n… {len(value) - 2 * half} characters are left out here …\n{value[-half:]}"
    if isinstance(value, dict):
        return {str(name)[:200]: shortened(one, most) for name, one in list(cast("dict[object, object]", value).items())[:_MOST_ITEMS]}
    if isinstance(value, list):
        return [shortened(one, most) for one in cast("list[object]", value)[:_MOST_ITEMS]]
    return value
