"""Requests of the Responses and Messages dialects as Chat Completions requests.

Fields that mean the same under the same name, and fields that nobody here knows (an engine's own,
such as `top_k` or `return_token_ids`), go on as they came. What would change the answer and cannot
be had is refused by name; what only describes the request (stored, cached, billed how) is left out.
`metadata.extra_body` and `metadata.chat_template_kwargs`, JSON text, are merged in last.
"""

from typing import Any, cast

import orjson

from gym.models.dialects.errors import UnsupportedRequest
from gym.models.dialects.histories import Options, items_to_messages, turns_to_messages
from gym.models.dialects.parts import Part, parts_at

Body = dict[str, Any]

_RESPONSES_REFUSED = {
    "previous_response_id": "nothing is stored here: send the whole input",
    "conversation": "nothing is stored here: send the whole input",
    "prompt": "no prompts are stored here: send instructions and input",
    "background": "is not supported",
    "store": "nothing is stored here: send false, or leave it out",
    "context_management": "is not supported: shorten the input yourself",
    "moderation": "is not supported",
}
"""Refused wherever they ask for anything, with the reason."""

_RESPONSES_READ = frozenset(
    {"input", "instructions", "max_output_tokens", "metadata", "text", "reasoning", "tools", "tool_choice", "stream", "top_logprobs"}
)
"""Fields that are translated below."""

_RESPONSES_LEFT_OUT = frozenset(
    {
        "include",  # outputs of built-in tools, of which there are none; logprobs are asked for below
        "max_tool_calls",  # counts built-in tools
        "truncation",  # the reply says that nothing is truncated, and an overflow is an error
        "stream_options",
        "prompt_cache_options",
    }
)

_MESSAGES_REFUSED = {"container": "is not supported", "mcp_servers": "are not supported"}

_MESSAGES_READ = frozenset(
    {"messages", "system", "max_tokens", "stop_sequences", "metadata", "thinking", "output_config", "tools", "tool_choice", "stream"}
)

_MESSAGES_LEFT_OUT = frozenset(
    {
        "cache_control",
        "context_management",  # without it the model sees more of its history, never less
        "diagnostics",
        "inference_geo",
        "service_tier",
        "speed",
        "user_profile_id",
        "workspace_id",
    }
)


def responses_to_chat(body: Body, options: Options) -> Body:
    """A `POST /v1/responses` body as one of `/v1/chat/completions`. Raises UnsupportedRequest (422)."""
    _refuse(body, _RESPONSES_REFUSED)
    given: Any = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(body.get("instructions"), str | None):
        raise UnsupportedRequest("instructions", "must be text")
    chat = _passed_on(body, _RESPONSES_READ | _RESPONSES_LEFT_OUT | _RESPONSES_REFUSED.keys())
    chat["messages"] = items_to_messages(items, options, instructions=body.get("instructions"))
    if body.get("max_output_tokens") is not None:
        chat[options.max_tokens_field] = body["max_output_tokens"]
    _add_text(chat, _object(body, "text"))
    _add_reasoning(chat, _object(body, "reasoning"))
    if body.get("top_logprobs") is not None or "message.output_text.logprobs" in (body.get("include") or []):
        chat["logprobs"] = True
        chat["top_logprobs"] = body.get("top_logprobs") or 0
    tools = [_function_of(tool, f"tools[{index}]") for index, tool in enumerate(parts_at(body.get("tools") or [], "tools"))]
    choice, tools = _responses_choice(body.get("tool_choice"), tools)
    return _finished(chat, body, tools, choice)


def messages_to_chat(body: Body, options: Options) -> Body:
    """A `POST /v1/messages` body as one of `/v1/chat/completions`. Raises UnsupportedRequest (422)."""
    _refuse(body, _MESSAGES_REFUSED)
    chat = _passed_on(body, _MESSAGES_READ | _MESSAGES_LEFT_OUT | _MESSAGES_REFUSED.keys())
    chat["messages"] = turns_to_messages(cast(Any, body.get("messages")), options, system=body.get("system"))
    if chat["messages"] and chat["messages"][-1]["role"] == "assistant":
        if not options.continue_final_message:
            raise UnsupportedRequest("messages", "the last turn is the assistant's, and this endpoint cannot go on in it")
        chat |= {"continue_final_message": True, "add_generation_prompt": False}
    if body.get("max_tokens") is not None:
        chat[options.max_tokens_field] = body["max_tokens"]
    if body.get("stop_sequences"):
        chat["stop"] = body["stop_sequences"]
    output = _object(body, "output_config")
    if output.get("effort"):
        chat["reasoning_effort"] = output["effort"]
    elif _object(body, "thinking").get("type") == "disabled" and options.disabled_thinking_effort is not None:
        chat["reasoning_effort"] = options.disabled_thinking_effort
    form = _object(output, "format")
    if form:
        if form.get("type") != "json_schema":
            raise UnsupportedRequest("output_config.format", f"type {form.get('type')!r} is not supported")
        chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "output", "schema": form.get("schema")}}
    tools = [_tool_of(tool, f"tools[{index}]") for index, tool in enumerate(parts_at(body.get("tools") or [], "tools"))]
    choice = _object(body, "tool_choice")
    if choice.get("disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False
    return _finished(chat, body, tools, _messages_choice(choice))


def with_metadata(chat: Body, metadata: Any) -> Body:
    """`chat` with what `metadata.extra_body` and `metadata.chat_template_kwargs` (JSON text) add to it.

    A request's own way to an engine's fields, for clients that let no other field through.
    """
    if not isinstance(metadata, dict):
        return chat
    fields = cast(Body, metadata)
    extra = _json_in(fields, "extra_body")
    for name in ("messages", "stream", "stream_options"):
        if name in extra:
            raise UnsupportedRequest("metadata.extra_body", f"must not set {name!r}")
    kwargs = _json_in(fields, "chat_template_kwargs")
    merged = {**chat, **extra}
    if kwargs:
        merged["chat_template_kwargs"] = {**(merged.get("chat_template_kwargs") or {}), **kwargs}
    return merged


def _json_in(metadata: Body, name: str) -> Body:
    given: Any = metadata.get(name)
    try:
        value: Any = orjson.loads(given) if isinstance(given, str) else given or {}
    except orjson.JSONDecodeError as error:
        raise UnsupportedRequest(f"metadata.{name}", f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnsupportedRequest(f"metadata.{name}", "must be a JSON object")
    return cast(Body, value)


def _finished(chat: Body, body: Body, tools: list[Part], choice: Any) -> Body:
    """`chat` with its tools, its stream and what the metadata adds."""
    if tools:
        chat["tools"] = tools
    else:
        chat.pop("parallel_tool_calls", None)  # endpoints refuse it where there are no tools
    if choice is not None and (tools or choice not in ("auto", "none")):
        chat["tool_choice"] = choice
    if body.get("stream"):
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    chat = with_metadata(chat, body.get("metadata"))
    if chat.get("n") not in (None, 1):
        raise UnsupportedRequest("n", "this dialect has one answer: leave it out, or use Chat Completions")
    return chat


def _refuse(body: Body, refused: dict[str, str]) -> None:
    for name, reason in refused.items():
        if body.get(name):
            raise UnsupportedRequest(name, reason)


def _passed_on(body: Body, kept_back: frozenset[str]) -> Body:
    """What goes on as it came; null says the same as leaving a field out, and not every endpoint takes it."""
    return {name: value for name, value in body.items() if name not in kept_back and value is not None}


def _object(body: Body, name: str) -> Body:
    value: Any = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise UnsupportedRequest(name, "must be an object")
    return cast(Body, value or {})


def _add_text(chat: Body, text: Body) -> None:
    form = _object(text, "format")
    kind = form.get("type", "text")
    if kind == "json_schema":
        chat["response_format"] = {
            "type": kind,
            kind: {name: value for name, value in form.items() if name != "type" and value is not None},
        }
    elif kind == "json_object":
        chat["response_format"] = {"type": kind}
    elif kind != "text":
        raise UnsupportedRequest("text.format", f"type {kind!r} is not supported")
    if text.get("verbosity"):
        chat["verbosity"] = text["verbosity"]


def _add_reasoning(chat: Body, reasoning: Body) -> None:
    """The effort. Summaries are not made here: what the model thought is given as it is."""
    for name, value in reasoning.items():
        if name not in ("effort", "summary", "generate_summary") and value not in (None, "auto", "standard"):
            raise UnsupportedRequest(f"reasoning.{name}", f"{value!r} is not supported")
    if reasoning.get("effort"):
        chat["reasoning_effort"] = reasoning["effort"]


def _function_of(tool: Part, where: str) -> Part:
    if tool.get("type") != "function":
        raise UnsupportedRequest(where, f"a tool of type {tool.get('type')!r} is not supported: only functions are")
    function = {name: tool[name] for name in ("name", "description", "parameters", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _tool_of(tool: Part, where: str) -> Part:
    if tool.get("type") not in (None, "custom"):
        raise UnsupportedRequest(where, f"a tool of type {tool['type']!r} is not supported: only tools with an input_schema are")
    names = {"name": "name", "description": "description", "input_schema": "parameters", "strict": "strict"}
    return {"type": "function", "function": {chat: tool[name] for name, chat in names.items() if tool.get(name) is not None}}


def _responses_choice(choice: Any, tools: list[Part]) -> tuple[Any, list[Part]]:
    """The tool choice, and the tools that it leaves; few endpoints know `allowed_tools`, so only those are offered."""
    if choice is None or choice in ("none", "auto", "required"):
        return choice, tools
    fields = cast(Body, choice) if isinstance(choice, dict) else {"type": choice}
    kind = fields.get("type")
    if kind == "function":
        return {"type": "function", "function": {"name": fields.get("name")}}, tools
    if kind == "allowed_tools":
        allowed = parts_at(fields.get("tools"), "tool_choice.tools")
        if any(tool.get("type") != "function" for tool in allowed):
            raise UnsupportedRequest("tool_choice.tools", "only functions are supported")
        names = {tool.get("name") for tool in allowed}
        return fields.get("mode") or "auto", [tool for tool in tools if tool["function"].get("name") in names]
    raise UnsupportedRequest("tool_choice", f"{kind!r} is not supported")


def _messages_choice(choice: Body) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if kind not in (None, "auto", "any", "none"):
        raise UnsupportedRequest("tool_choice", f"{kind!r} is not supported")
    return "required" if kind == "any" else kind


__all__ = ["Options", "messages_to_chat", "responses_to_chat", "with_metadata"]
