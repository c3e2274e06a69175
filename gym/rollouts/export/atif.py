"""Trajectories in ATIF v1.7, one document a rollout.

One agent step for each call of the model: with token ids a call ends at the item that carries them,
else where something follows that is not the model's. Results stand with the calls that they answer.
"""

from typing import Any, cast

import orjson

import gym
from gym.models.dialects.arguments import input_of
from gym.models.dialects.fields import fields_of
from gym.models.tokens.conversation import is_own, objects
from gym.protocol import rollouts as keys
from gym.protocol.responses import Item
from gym.rollouts.export.chat import conversation_of
from gym.rollouts.export.rollout import Rollout, Turn
from gym.rollouts.export.turns import turns_of

VERSION = "ATIF-v1.7"


def atif(rollout: Rollout) -> bytes:
    """The document of a rollout. Raises Unusable."""
    told = conversation_of(rollout)  # refuses what is not text
    steps = _Steps()
    if rollout.params.get("instructions"):
        steps.say("system", str(rollout.params["instructions"]))
    for item in rollout.input_items:
        steps.add(item, copied=True)
    steps.end_turn()
    ends = {turn.item: turn for turn in turns_of(rollout)}
    prompt: list[int] = []
    for number, item in enumerate(rollout.output):
        steps.add(item)
        if (turn := ends.get(number)) is not None:
            prompt = prompt + turn.added
            steps.end_call(prompt, turn)
            prompt = prompt + turn.generation
    agent = {"name": rollout.agent or "unknown", "version": gym.__version__, "model_name": rollout.response.get("model") or None}
    document = {
        "schema_version": VERSION,
        "session_id": rollout.row.get(keys.RUN_ID),
        "trajectory_id": rollout.id,
        "agent": {**agent, "tool_definitions": told.tools or None},
        "steps": steps.steps,
        "final_metrics": {**_usage(rollout.response.get("usage")), "total_steps": len(steps.steps)},
        "extra": {
            "reward": rollout.reward,
            "masked": rollout.masked,
            "task_id": rollout.row.get(keys.TASK_ID),
            "status": rollout.response.get("status"),
        },
    }
    return orjson.dumps(_without_none(document))


class _Steps:
    """Steps as they are made."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self._turn: dict[str, Any] | None = None
        """The agent's step that the next item of the model belongs to."""
        self._calls: dict[str, dict[str, Any]] = {}
        """The step of each tool call."""

    def add(self, item: Item, *, copied: bool = False) -> None:
        """One item; `copied` marks what an earlier conversation holds."""
        if not is_own(item):
            self.end_turn()
            if item.get("type") == "function_call_output":
                self._result(item)
            else:
                self.say("user" if item.get("role") == "user" else "system", _text(item.get("content")))
            return
        step = self._turn
        if step is None:
            step = self._turn = self.say("agent", "")
            if copied:
                step["is_copied_context"] = True
        match item.get("type"):
            case "reasoning":
                _append(step, "reasoning_content", _text(item.get("content") or item.get("summary")))
            case "function_call":
                self._call(step, item)
            case _:
                _append(step, "message", _text(item.get("content")))

    def say(self, source: str, message: str) -> dict[str, Any]:
        """A new step."""
        step: dict[str, Any] = {"step_id": len(self.steps) + 1, "source": source, "message": message}
        self.steps.append(step)
        return step

    def end_turn(self) -> None:
        """What the model says next is another step."""
        self._turn = None

    def end_call(self, prompt: list[int], turn: Turn) -> None:
        """The model's step is one call, with these tokens."""
        step = self._turn or self.say("agent", "")
        step["llm_call_count"] = 1
        step["metrics"] = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(turn.generation),
            "prompt_token_ids": prompt,
            "completion_token_ids": turn.generation,
            "logprobs": turn.log_probs,
        }
        self.end_turn()

    def _call(self, step: dict[str, Any], item: Item) -> None:
        self._calls[item["call_id"]] = step
        given: Any = item.get("arguments") or ""
        arguments: Any = input_of(given) if isinstance(given, str) else given
        call = {"tool_call_id": item["call_id"], "function_name": str(item.get("name")), "arguments": arguments}
        step.setdefault("tool_calls", []).append(call)

    def _result(self, item: Item) -> None:
        result: dict[str, Any] = {"content": _text(item.get("output"))}
        step = self._calls.get(item["call_id"])
        if step is None:
            step = self.say("system", "")
        else:
            result["source_call_id"] = item["call_id"]
        step.setdefault("observation", {"results": []})["results"].append(result)


def _append(step: dict[str, Any], name: str, text: str) -> None:
    step[name] = f"{step[name]}\n{text}" if step.get(name) else text


def _text(content: Any) -> str:
    """The text of content that has been found to be nothing else."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in objects(content))


def _usage(usage: Any) -> dict[str, Any]:
    counts = fields_of(usage)
    return {
        "total_prompt_tokens": counts.get("input_tokens"),
        "total_completion_tokens": counts.get("output_tokens"),
        "total_cached_tokens": fields_of(counts.get("input_tokens_details")).get("cached_tokens"),
    }


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    """An object, and those in it, without the fields that nothing is known of."""
    return {
        name: _without_none(cast(dict[str, Any], value)) if isinstance(value, dict) else value
        for name, value in fields.items()
        if value is not None
    }
