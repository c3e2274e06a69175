"""From a worker's records to Responses output items, to a trajectory, and to how the activation ended.

Invariant: nothing here can fail on what a sandbox wrote; what a record lacks is left out. The output has what the policy said and
got back; what its Python did, and which tools of the task it called by it, stands apart in the observations.
"""

from collections.abc import Iterable
from typing import Any

from gym.harness.adapter import Ending, Transcript
from gym.harness.evidence import a_list, an_object
from gym.protocol.failures import bounded_reason
from gym.protocol.responses import Item, assistant_message, function_call_output, message_text

_RETURN = "return_result"
_KEPT = {
    "python": ("execution", "call_id", "stdout", "stderr", "value", "error", "seconds"),
    "resource_call": ("name", "arguments", "status", "output", "seconds", "execution"),
    "generation": ("generation", "method", "error", "seconds"),
}
_LISTED = {"python": "python_executions", "resource_call": "resource_calls", "generation": "generations"}


class _Reader:
    """What was read so far."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.lists: dict[str, list[dict[str, Any]]] = {name: [] for name in _LISTED.values()}
        self.turns: list[dict[str, Any]] = []
        self.running: dict[str, dict[str, Any]] = {}
        """Python that was begun, by execution."""
        self.cookies: dict[str, str] | None = None
        self.end: dict[str, Any] | None = None
        self.unreadable = 0
        self._calls: set[str] = set()
        """Calls of the policy."""
        self._open: list[str] = []
        """Calls of `return_result` that were not answered yet."""

    def take(self, event: dict[str, Any] | None) -> None:
        """The next record."""
        kind = event.get("type") if event else None
        if event is None or not isinstance(kind, str):
            self.unreadable += 1
        elif kind == "model_call":
            self._model_call(event)
        elif kind == "python_begins":
            self.running[str(event.get("execution"))] = event
        elif kind == "returned":
            if self._open:
                self.items.append(function_call_output(self._open.pop(0), str(event.get("error") or "returned")))
        elif kind == "cookies":
            self.cookies = {str(name): str(value) for name, value in an_object(event.get("cookies")).items()}
        elif kind == "end":
            self.end = event
        elif kind in _LISTED:
            self._listed(kind, event)

    def _model_call(self, event: dict[str, Any]) -> None:
        output = [an_object(item) for item in a_list(event.get("output"))]
        output = [item for item in output if isinstance(item.get("type"), str)]
        self.items += output
        self._calls |= {str(item.get("call_id")) for item in output if item["type"] == "function_call"}
        calls = [item for item in output if item["type"] == "function_call" and item.get("name") == _RETURN]
        self._open += [str(item.get("call_id") or "") for item in calls]
        call = {key: event.get(key) for key in ("id", "usage", "seconds")}
        self.turns.append({"model_calls": [call], "output": output, "python": [], "resource_calls": []})

    def _listed(self, kind: str, event: dict[str, Any]) -> None:
        said = {key: event[key] for key in _KEPT[kind] if event.get(key) is not None}
        if kind == "python":
            begun = self.running.pop(str(event.get("execution")), {})
            said = {"code": begun.get("code"), **said}
            if event.get("call_id") in self._calls:  # else it is NOOA's own, such as the one before the first model call
                self.items.append(function_call_output(str(event["call_id"]), _shown(event)))
        self.lists[_LISTED[kind]].append(said)
        if self.turns and kind != "generation":
            self.turns[-1]["python" if kind == "python" else "resource_calls"].append(said)


def transcript_of(records: Iterable[dict[str, Any] | None], ending: Ending | None) -> Transcript:
    """All of an activation; `ending` is None where it was cut off by the close."""
    reader = _Reader()
    for event in records:
        reader.take(event)
    end = reader.end
    observations: dict[str, Any] = {name: found for name, found in reader.lists.items() if found}
    if reader.running:
        observations["python_cut_short"] = [str(begun.get("code") or "") for begun in reader.running.values()]
    if end is not None:
        observations |= {key: end[key] for key in ("detail", "value") if end.get(key) is not None}
    if reader.unreadable:
        observations["unreadable_lines"] = reader.unreadable
    transcript = Transcript(reader.items, observations=observations, cookies=reader.cookies)
    transcript.trajectory = {"source": "nooa", "turns": reader.turns}
    _judge(transcript, end, ending)
    text = end.get("text") if end is not None else None
    if isinstance(text, str) and text and (not reader.items or message_text(reader.items[-1]) != text):
        transcript.items.append(assistant_message(text))
    return transcript


def _judge(transcript: Transcript, end: dict[str, Any] | None, ending: Ending | None) -> None:
    if end is not None and end.get("outcome") in ("completed", "incomplete", "failed"):
        reason = str(end.get("reason") or "")
        transcript.outcome, transcript.reason = end["outcome"], reason
        if end["outcome"] == "failed":
            transcript.reason = f"ended with {bounded_reason(reason or 'no reason given', 500)}"
            transcript.kind, transcript.terminal = str(end.get("kind") or transcript.kind), end.get("terminal") is True
    elif ending is None or ending.stopped:
        transcript.outcome, transcript.reason = "incomplete", "agent_closed" if ending is None else str(ending.stopped)
    else:
        said = ending.stderr.strip()[-500:] or "it said nothing"
        transcript.outcome, transcript.reason = "failed", f"broke off with exit code {ending.return_code}: {said}"


def _shown(event: dict[str, Any]) -> str:
    parts = [event.get(key) for key in ("stdout", "stderr", "value", "error")]
    return "\n".join(str(part).rstrip("\n") for part in parts if part)
