"""From a step of a script to what the model says: a Chat Completions reply, which every dialect is made of."""

import re
import time
import uuid
from typing import Any

import orjson

from responses_api_models.scripted_model.config import Call, Step

Groups = dict[str, str]


def completion_of(step: Step, groups: Groups, *, prompt_bytes: int, choices: int = 1) -> dict[str, Any]:
    """The reply that a step amounts to, in as many equal choices; `{group}` in it is filled in from `groups`."""
    replies = [_choice(step, groups, index) for index in range(choices)]
    # Four bytes a token: an estimate, since nothing is tokenised here.
    read, written = prompt_bytes // 4, len(orjson.dumps([reply["message"] for reply in replies])) // 4
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "scripted",
        "choices": replies,
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


def _choice(step: Step, groups: Groups, index: int) -> dict[str, Any]:
    calls = step.calls or ([Call(name=step.call, arguments=step.arguments)] if step.call is not None else [])
    message: dict[str, Any] = {"role": "assistant", "content": None if step.say is None else str(filled(step.say, groups))}
    if step.think is not None:
        message["reasoning_content"] = str(filled(step.think, groups))
    if step.refuse is not None:
        message["refusal"] = str(filled(step.refuse, groups))
    if calls:
        message["tool_calls"] = [_call(call, groups) for call in calls]
    return {"index": index, "message": message, "finish_reason": step.finish_reason or ("tool_calls" if calls else "stop")}


def _call(call: Call, groups: Groups) -> dict[str, Any]:
    arguments = filled(call.arguments, groups)
    written = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": {"name": call.name, "arguments": written}}


def filled(value: Any, groups: Groups) -> Any:
    """`value` with each `{group}` filled in; a string that is one whole number afterwards, and was one group before, becomes it."""
    if isinstance(value, dict):
        return {key: filled(item, groups) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, groups) for item in value]
    if not isinstance(value, str):
        return value
    text = re.sub(r"\{(\w+)\}", lambda match: groups.get(match[1], match[0]), value)
    whole = re.fullmatch(r"\{\w+\}", value) and re.fullmatch(r"-?\d+", text)
    return int(text) if whole else text
