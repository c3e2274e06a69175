"""A tool call's arguments: text in Chat Completions and Responses, an object in Messages.

A model may write text that is no JSON object. The harness must get to see that, and the model must
later read what it had written, so such text travels through Messages under one key, unchanged.
"""

import json
from typing import Any, cast

import orjson

NOT_AN_OBJECT = "_arguments_text"
"""The one key of an `input` whose arguments were no JSON object; it holds them as they were."""


def input_of(arguments: str) -> dict[str, Any]:
    """Arguments as the `input` of a `tool_use` block; none at all are an empty object."""
    if not arguments.strip():
        return {}
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        value = None
    return cast(dict[str, Any], value) if isinstance(value, dict) else {NOT_AN_OBJECT: arguments}


def arguments_of(given: Any) -> str:
    """The arguments that an `input` stands for, spaced as models write JSON and chat templates render it."""
    if isinstance(given, dict):
        fields = cast(dict[str, Any], given)
        if len(fields) == 1 and isinstance(fields.get(NOT_AN_OBJECT), str):
            return fields[NOT_AN_OBJECT]
    return json.dumps(given, ensure_ascii=False)
