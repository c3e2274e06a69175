"""What a rollout's model calls amount to: the answer to the close of its capture.

A pure function of what the file says, so that a report made again, by whatever process, is the same. Calls stand in it without
their bodies. Whatever is not known for certain is a gap with a code; no gap is ever filled with a guess.
"""

from typing import Any

from gym.models.calls import ModelCall
from gym.models.capture.records import Capture

INCOMPLETE = "model_call_capture_incomplete"
"""Gap: a call was begun and its end is not known, or a line could not be written."""
UNREADABLE_RECORDS = "model_call_capture_records_unreadable"
"""Gap: lines of the file cannot be read."""
NO_RECORDS = "model_call_capture_no_records"
"""Gap: nothing was recorded, because no call was made, or because calls went where nobody records them."""
UNREADABLE = "model_call_capture_unreadable"
"""Gap: the model server could not be asked."""

Report = dict[str, Any]


def gap(code: str, detail: str) -> dict[str, str]:
    """One thing that is not known."""
    return {"code": code, "detail": detail}


def report_of(key: str, model_server: str, capture: Capture, problems: list[str]) -> Report:
    """The report of a rollout; `problems` are lines that could not be written."""
    gaps = [gap(INCOMPLETE, problem) for problem in problems]
    gaps += [gap(INCOMPLETE, f"call {call.index} was begun, and its end is not known") for call in capture.unfinished]
    if capture.unreadable:
        gaps.append(gap(UNREADABLE_RECORDS, f"{capture.unreadable} line(s) of the capture cannot be read"))
    if not capture.calls and not gaps:
        gaps.append(gap(NO_RECORDS, "no model call was made below the rollout's prefix"))
    return {
        "rollout_id": key,
        "model_server": model_server,
        "metrics": _metrics(capture.calls),
        "calls": [_summary(call) for call in capture.calls],
        "gaps": gaps,
        "usage": _usage([call for call in capture.calls if answered(call)]),
    }


def empty_report(key: str, model_server: str | None, code: str, detail: str) -> Report:
    """Stands for a rollout of which nothing could be learned."""
    return {
        "rollout_id": key,
        "model_server": model_server,
        "metrics": _metrics([]),
        "calls": [],
        "gaps": [gap(code, detail)],
        "usage": None,
    }


def answered(call: ModelCall) -> bool:
    """Whether a call brought a whole reply of the model's."""
    return call.complete and call.error_category is None


def _metrics(calls: list[ModelCall]) -> dict[str, Any]:
    tokens_in, tokens_out = (sum(getattr(call, name) or 0 for call in calls) for name in ("input_tokens", "output_tokens"))
    return {
        "num_calls": len(calls),
        "num_failed_calls": sum(not answered(call) for call in calls),
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "tokens_reasoning": sum(call.reasoning_tokens or 0 for call in calls),
        "tokens_total": tokens_in + tokens_out,
        "cached_tokens": sum(call.cached_tokens or 0 for call in calls),
        "latency_total_ms": round(sum(call.latency_ms or 0.0 for call in calls), 3),
    }


def _summary(call: ModelCall) -> dict[str, Any]:
    response = call.response or {}
    known = {
        "model_call_id": call.call_id,
        "call_index": call.index,
        "response_id": response.get("id"),
        "model": response.get("model"),
        "dialect": call.dialect,
        "streamed": call.streamed or None,
        "status_code": call.status,
        "complete": call.complete,
        "finish_reason": call.finish_reason,
        "error_category": call.error_category,
        "error": call.error,
        "started_at": call.started_at,
        "latency_total_ms": call.latency_ms,
        "latency_ttft_ms": call.first_token_ms,
        "tokens_in": call.input_tokens,
        "tokens_out": call.output_tokens,
        "tokens_reasoning": call.reasoning_tokens,
        "cached_tokens": call.cached_tokens,
        "upstream_status_code": call.notes.upstream_status,
        "upstream_attempts": call.notes.upstream_attempts or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _usage(calls: list[ModelCall]) -> dict[str, Any] | None:
    """The sum over calls, as a Responses object says it; None if no call said anything."""
    told = [call for call in calls if call.input_tokens is not None or call.output_tokens is not None]
    if not told:
        return None
    totals = _metrics(told)
    return {
        "input_tokens": totals["tokens_in"],
        "input_tokens_details": {"cached_tokens": totals["cached_tokens"]},
        "output_tokens": totals["tokens_out"],
        "output_tokens_details": {"reasoning_tokens": totals["tokens_reasoning"]},
        "total_tokens": totals["tokens_total"],
    }
