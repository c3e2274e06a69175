"""Conversations that a very small model goes on with: worked examples of the counter's tools, and one more to do."""

import json
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": properties}, "strict": False}
    for name, properties in (("increment_counter", {"count": {"type": "integer"}}), ("get_counter_value", {}))
]
CHAT_TOOLS = [{"type": "function", "function": {key: tool[key] for key in ("name", "parameters")}} for tool in TOOLS]


def responses_input(first: int, second: int) -> list[dict[str, Any]]:
    """The examples as items of the Responses dialect."""
    items: list[dict[str, Any]] = []
    for number, (one, two, begun) in enumerate(((3, 5, 0), (2, 8, 1), (4, 2, 3), (6, 3, 2), (1, 7, 0))):
        items.append({"role": "user", "content": f"add {one} then add {two} then get the count"})
        for name, arguments, output in (
            ("increment_counter", {"count": one}, {"success": True}),
            ("increment_counter", {"count": two}, {"success": True}),
            ("get_counter_value", {}, {"count": one + two + begun}),
        ):
            call_id = f"c{number}{len(items)}"
            items.append({"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)})
            items.append({"type": "function_call_output", "call_id": call_id, "output": json.dumps(output, separators=(",", ":"))})
        items.append({"role": "assistant", "content": f"The count is {one + two + begun}."})
    return [*items, {"role": "user", "content": f"add {first} then add {second} then get the count"}]


def row(first: int, second: int) -> dict[str, Any]:
    """A row of example_session_state_mgmt."""
    params = {"input": responses_input(first, second), "tools": TOOLS, "temperature": 0, "max_output_tokens": 60}
    return {"task_id": f"{first}+{second}", "responses_create_params": params, "initial_count": 0, "expected_count": first + second}
