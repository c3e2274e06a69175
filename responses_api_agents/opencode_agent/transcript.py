"""From the events that `opencode run --format json` prints, and the parts that it stores, to Responses output items, and to how it ended.

Invariant: nothing here can fail on what the sandbox wrote. A line that is no event is counted, and what an event lacks is left out.
An exit code of 0 alone is no success: the last step must have ended with `stop`, with no error reported.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gym.harness.adapter import STDOUT, Ending, Transcript
from gym.harness.evidence import an_object, json_lines
from gym.models.dialects.items import reasoning_item
from gym.protocol.failures import bounded_reason
from gym.protocol.responses import Item, assistant_message, function_call_output
from responses_api_agents.opencode_agent.store import stored_sessions

_POLICY_ERRORS = {"ContextOverflowError": "context_overflow", "MessageOutputLengthError": "max_output_tokens"}
"""Errors that are the policy's own: what stands is graded."""
_FINISHES = {"length": "max_output_tokens", "content-filter": "content_filter"}
_REFUSED = (401, 403)
_REJECTED = "rejected permission"


@dataclass
class _Reader:
    """What was read so far. Outputs of tools wait until their step is over, so that parallel calls stand together."""

    items: list[Item] = field(default_factory=list[Item])
    calls: list[Item] = field(default_factory=list[Item])
    outputs: list[Item] = field(default_factory=list[Item])
    errors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    mended: int = 0
    """How many of the errors it worked on after, such as an overflow that it compacted its history for."""
    session: str = ""
    steps: int = 0
    finish: str = ""
    rejected: bool = False
    unreadable: int = 0
    tokens: dict[str, int] = field(default_factory=dict[str, int])

    def take(self, event: dict[str, Any]) -> None:
        """The next event."""
        self.session = self.session or str(event.get("sessionID") or "")
        if event.get("type") == "error":
            self.errors.append(an_object(event.get("error")))
        else:
            self.part(an_object(event.get("part")))

    def part(self, part: dict[str, Any]) -> None:
        """The next part of what the agent did."""
        kind = part.get("type")
        if kind == "text" and part.get("text"):  # what a broken reply left behind has none
            self.items.append({**assistant_message(str(part.get("text") or "")), "id": f"msg_{part.get('id')}"})
        elif kind == "reasoning" and part.get("text"):
            self.items.append(reasoning_item(f"rs_{part.get('id')}", str(part.get("text") or "")))
        elif kind == "tool":
            self._tool(part)
        elif kind == "step-finish":
            self._finish(part)

    def _tool(self, part: dict[str, Any]) -> None:
        state = an_object(part.get("state"))
        call_id = str(part.get("callID") or part.get("id") or "")
        arguments = orjson.dumps(state.get("input") if state.get("input") is not None else {}).decode()
        self.calls.append(
            {
                "type": "function_call",
                "id": f"fc_{part.get('id')}",
                "call_id": call_id,
                "name": str(part.get("tool") or ""),
                "arguments": arguments,
                "status": "completed",
            }
        )
        failed = state.get("status") == "error"
        said = str((state.get("error") if failed else state.get("output")) or "")
        self.rejected = self.rejected or (failed and _REJECTED in said)
        self.outputs.append(function_call_output(call_id, said))

    def _finish(self, part: dict[str, Any]) -> None:
        self.flush()
        self.steps += 1
        self.mended = len(self.errors)
        self.finish = str(part.get("reason") or "")
        for name, value in an_object(part.get("tokens")).items():
            if isinstance(value, int):
                self.tokens[name] = self.tokens.get(name, 0) + value

    def flush(self) -> None:
        """Lay down the calls of a step, then their outputs."""
        self.items += self.calls + self.outputs
        self.calls, self.outputs = [], []


def read_transcript(evidence: Path, ending: Ending | None) -> Transcript:
    """What OpenCode printed and stored, out of the folder `evidence`; `ending` is None where it was cut off."""
    reader = _Reader()
    for event in json_lines(evidence / STDOUT):
        if event is None:
            reader.unreadable += 1
        else:
            reader.take(event)
    reader.flush()
    observations: dict[str, Any] = {"session": reader.session, "steps": reader.steps, "finish": reader.finish, "tokens": reader.tokens}
    if reader.errors:
        observations["errors"] = [_said(error) for error in reader.errors]
    if reader.unreadable:
        observations["unreadable_lines"] = reader.unreadable
    items = reader.items
    for session in stored_sessions(evidence):
        stored = _Reader()
        for part in session.parts:
            stored.part(part)
        stored.flush()
        if session.compactions:
            observations["compactions"] = observations.get("compactions", 0) + session.compactions
        if session.parent is None:
            printed = [item for item in items if str(item.get("id")).removeprefix("msg_") not in session.told]
            items = max(printed, stored.items, key=len)  # what it had not printed yet when it was cut off
        else:
            child = {"session": session.id, "parent": session.parent, "title": session.title, "output": stored.items}
            observations.setdefault("subagents", []).append({**child, "steps": stored.steps, "tokens": stored.tokens})
    transcript = Transcript(items, observations=observations)
    _judge(transcript, reader, ending)
    return transcript


def _judge(transcript: Transcript, reader: _Reader, ending: Ending | None) -> None:
    if ending is None or ending.stopped:
        transcript.outcome, transcript.reason = "incomplete", "agent_closed" if ending is None else str(ending.stopped)
    elif len(reader.errors) > reader.mended:
        error = reader.errors[-1]
        own = _POLICY_ERRORS.get(str(error.get("name")))
        transcript.outcome, transcript.reason = ("incomplete", own) if own else ("failed", f"ended with {_said(error)}")
        transcript.terminal = an_object(error.get("data")).get("statusCode") in _REFUSED
    elif ending.return_code != 0 and not reader.errors:  # of errors it mended, its exit code tells too
        said = ending.stderr.strip()[-500:] or "it said nothing"
        transcript.outcome, transcript.reason = "failed", f"ended with exit code {ending.return_code}: {said}"
    elif reader.finish in _FINISHES:
        transcript.outcome, transcript.reason = "incomplete", _FINISHES[reader.finish]
    elif reader.rejected and reader.finish != "stop":
        transcript.outcome, transcript.reason = "incomplete", "permission_rejected"
    elif reader.finish != "stop":
        transcript.outcome, transcript.reason = "failed", f"ended in the midst of its work (last step: {reader.finish or 'none'})"


def _said(error: dict[str, Any]) -> str:
    data = an_object(error.get("data"))
    code = data.get("statusCode")
    message = str(data.get("message") or "no reason given")
    return bounded_reason(f"{error.get('name') or 'an error'}{f' {code}' if code else ''}: {message}", 500)
