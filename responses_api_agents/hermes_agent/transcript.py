"""From what the driver said to Responses output items, and to how the conversation ended.

Invariant: nothing here can fail on what the sandbox wrote. A line that is no event is counted, and what an event lacks is left out.
Success is what the driver's result says: a run without one broke, whatever its exit code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gym.harness.adapter import STDOUT, Ending, Transcript
from gym.harness.chat import chat_items, chat_text
from gym.harness.evidence import a_list, an_object, json_lines
from gym.protocol.failures import bounded_reason
from gym.protocol.responses import Item

_OWN_ERRORS = {
    "content_policy_blocked": "content_filter",
    "Response truncated due to output length": "max_output_tokens",
    "Response remained truncated": "max_output_tokens",
    "First response truncated due to output length": "max_output_tokens",
    "Model used all output tokens on reasoning": "max_output_tokens",
    "Incomplete REASONING_SCRATCHPAD": "invalid_answers",
    "Model generated invalid tool call": "invalid_answers",
}
_OWN_EXITS = {"max_iterations_reached": "max_turns", "empty_response_exhausted": "empty_response"}
"""How Hermes begins to say that a run ended by the policy's own doing, as its `error` or its `turn_exit_reason`; and our word for it."""
_BROKE = ("local_processing_error", "error_near_max_iterations", "partial_stream_recovery", "all_retries_exhausted")
"""Exits that Hermes makes the best of, and that are none of the policy's doing."""
_LIMITS = {"compression_exhausted": "context_overflow", "compaction_disabled": "context_overflow", "guardrail": "guardrail"}
_REFUSED = re.compile(r"HTTP 40[13]\b")
_KEPT = ("completed", "failed", "partial", "error", "failure_reason", "turn_exit_reason", "api_calls", "tokens")
_TOLD_CHARACTERS = 2000


@dataclass
class _Agent:
    """What Hermes, or a sub-agent of it, did."""

    session: str = ""
    items: list[Item] = field(default_factory=list[Item])
    told: list[str] = field(default_factory=list[str])
    """What it was told: the task first, then what Hermes itself put in."""

    def take(self, message: dict[str, Any]) -> None:
        """The next message of its history."""
        if message.get("role") == "user":
            self.told.append(bounded_reason(chat_text(message), _TOLD_CHARACTERS))
        self.items += chat_items(message, len(self.items))


def read_transcript(evidence: Path, ending: Ending | None) -> Transcript:
    """What the driver said, out of the folder `evidence`; `ending` is None where it was cut off."""
    agents: dict[int, _Agent] = {0: _Agent()}
    result: dict[str, Any] | None = None
    compactions = unreadable = 0
    for event in json_lines(evidence / STDOUT):
        number = event.get("agent", 0) if event else None
        if event is None or not isinstance(number, int):
            unreadable += 1
        elif event.get("type") == "message":
            agent = agents.setdefault(number, _Agent())
            agent.session = agent.session or str(event.get("session") or "")
            agent.take(an_object(event.get("message")))
        elif event.get("type") == "compaction":
            compactions += 1
        elif event.get("type") == "result":
            result = event
        else:
            unreadable += 1
    main, *others = (agents[number] for number in sorted(agents))
    observations: dict[str, Any] = {
        "session": main.session,
        **{key: result[key] for key in _KEPT if result and result.get(key) is not None},
    }
    if main.told[1:]:
        observations["told"] = main.told[1:]
    if others:
        observations["subagents"] = [{"session": other.session, "told": other.told, "output": other.items} for other in others]
    counts = {"compactions": compactions, "unreadable_lines": unreadable}
    transcript = Transcript(main.items, observations=observations | {key: count for key, count in counts.items() if count})
    _judge(transcript, result, ending)
    return transcript


def _judge(transcript: Transcript, result: dict[str, Any] | None, ending: Ending | None) -> None:
    if ending is None or ending.stopped:
        transcript.outcome, transcript.reason = "incomplete", "agent_closed" if ending is None else str(ending.stopped)
    elif result is None:
        said = ending.stderr.strip()[-500:] or "it said nothing"
        transcript.outcome, transcript.reason = "failed", f"broke off with exit code {ending.return_code}: {said}"
    elif own := next(_ends(result), None):
        transcript.outcome, transcript.reason = "incomplete", own
    elif result.get("failed") or not result.get("completed") or str(result.get("turn_exit_reason")).startswith(_BROKE):
        why = str(result.get("error") or result.get("turn_exit_reason") or "no reason given")
        transcript.outcome, transcript.reason = "failed", f"ended with {bounded_reason(why, 500)}"
        transcript.terminal = bool(_REFUSED.match(why)) or result.get("terminal") is True


def _ends(result: dict[str, Any]) -> Iterator[str]:
    """The policy's own ends that this is one of."""
    limits = a_list(result.get("limits"))
    yield from (word for limit, word in _LIMITS.items() if limit in limits)
    for key, ends in (("error", _OWN_ERRORS), ("turn_exit_reason", _OWN_EXITS)):
        yield from (word for sign, word in ends.items() if str(result.get(key)).startswith(sign))
