"""From what the driver said to Responses output items, and to how the conversation ended.

Invariant: nothing here can fail on what the sandbox wrote. A line that is no event is counted, and what an event lacks is left out.
Success is what the driver's result says: a run without one broke, whatever its exit code.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gym.harness.adapter import STDOUT, Ending, Transcript
from gym.harness.evidence import a_list, an_object, json_lines
from gym.models.dialects.items import call_item, reasoning_item
from gym.protocol.failures import bounded_reason
from gym.protocol.responses import Item, assistant_message, function_call_output

_OWN = (
    # What Hermes says of a run that ended by the policy's doing, in `error` or `turn_exit_reason`, and our word for it.
    ("max_iterations_reached", "max_turns"),
    ("error_near_max_iterations", "max_turns"),
    ("content_policy_blocked", "content_filter"),
    ("Response truncated due to output length", "max_output_tokens"),
    ("Response remained truncated", "max_output_tokens"),
    ("First response truncated", "max_output_tokens"),
    ("output tokens on reasoning", "max_output_tokens"),
    ("empty_response_exhausted", "empty_response"),
    ("REASONING_SCRATCHPAD", "invalid_answers"),
    ("invalid tool call", "invalid_answers"),
    ("Invalid JSON", "invalid_answers"),
)
_LIMITS = {"compression_exhausted": "context_overflow", "compaction_disabled": "context_overflow", "guardrail": "guardrail"}
_REFUSED = re.compile(r"\bHTTP 40[13]\b")
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
        role, text = message.get("role"), _text(message.get("content"))
        if role == "tool":
            self.items.append(function_call_output(str(message.get("tool_call_id") or ""), text))
        elif role == "assistant":
            self.items += _answer(message, text, len(self.items))
        elif role == "user":
            self.told.append(bounded_reason(text, _TOLD_CHARACTERS))


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
    elif result.get("failed") or not result.get("completed"):
        why = str(result.get("error") or result.get("turn_exit_reason") or "no reason given")
        transcript.outcome, transcript.reason = "failed", f"ended with {bounded_reason(why, 500)}"
        transcript.terminal = bool(_REFUSED.search(why))


def _ends(result: dict[str, Any]) -> Iterator[str]:
    """The policy's own ends that this is one of."""
    limits = a_list(result.get("limits"))
    yield from (word for limit, word in _LIMITS.items() if limit in limits)
    said = f"{result.get('error') or ''} {result.get('turn_exit_reason') or ''}"
    yield from (word for sign, word in _OWN if sign in said)


def _answer(message: dict[str, Any], text: str, place: int) -> Iterator[Item]:
    thought = message.get("reasoning") or message.get("reasoning_content")
    if isinstance(thought, str) and thought.strip():
        yield reasoning_item(f"rs_{place}", thought)
    calls = a_list(message.get("tool_calls"))
    if text or not calls:
        yield assistant_message(text)
    for number, given in enumerate(calls):
        call = an_object(given)
        function = an_object(call.get("function"))
        arguments = function.get("arguments")
        told = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
        yield call_item(f"fc_{place}_{number}", str(call.get("id") or ""), str(function.get("name") or ""), told)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(str(an_object(part).get("text") or "") for part in a_list(content))
