"""Messages of the Chat Completions dialect as Responses items: many harnesses keep their history as such messages.

Invariant: nothing here can fail on what the sandbox wrote; what a message lacks is left out.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from gym.harness.evidence import a_list, an_object
from gym.models.dialects.items import call_item, reasoning_item
from gym.protocol.responses import Item, assistant_message, function_call_output


def chat_items(message: dict[str, Any], place: int) -> Iterator[Item]:
    """What the agent said, called or got back; nothing for what it was told. `place` makes the items' ids: how many came before."""
    if message.get("role") == "tool":
        yield function_call_output(str(message.get("tool_call_id") or ""), chat_text(message))
    if message.get("role") != "assistant":
        return
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and thought.strip():
        yield reasoning_item(f"rs_{place}", thought)
    calls, text = a_list(message.get("tool_calls")), chat_text(message)
    if text or not calls:
        yield assistant_message(text)
    for number, given in enumerate(calls):
        call = an_object(given)
        function = an_object(call.get("function"))
        arguments = function.get("arguments")
        told = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
        yield call_item(f"fc_{place}_{number}", str(call.get("id") or ""), str(function.get("name") or ""), told)


def chat_text(message: dict[str, Any]) -> str:
    """The text of a message, whether it is one or comes in parts."""
    content = message.get("content")
    return content if isinstance(content, str) else "".join(str(an_object(part).get("text") or "") for part in a_list(content))
