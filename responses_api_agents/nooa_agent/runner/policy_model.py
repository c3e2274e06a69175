"""The policy as NOOA's model client: each call is one `POST /v1/responses` below the rollout's prefix.

What NOOA keeps as chat messages goes out as Responses items, reasoning included, and comes back as NOOA wants it. A context that
is full is an ordinary exception, which NOOA meets by archiving its history; everything else that fails ends the run.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
from nooa.unifiedllm import LLMResponse, Tool, ToolCall, UnifiedLLM, extract_and_parse_json
from pydantic import BaseModel

from responses_api_agents.nooa_agent.runner.http import error_of, refusal, unreachable
from responses_api_agents.nooa_agent.runner.rollout import InfrastructureFailure, Rollout

_OF_THE_AGENT = ("input", "instructions", "tools", "tool_choice", "stream", "text", "store", "previous_response_id", "max_tool_calls")
"""Fields of the task's request that NOOA fills in itself, or that make no sense for each of its calls."""
_FROM_NOOA = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_output_tokens", "tool_choice": "tool_choice"}
_OVERFLOW = ("context_length_exceeded", "maximum context length", "context window", "prompt is too long")


class ContextFull(Exception):
    """The history no longer fits into the model's context; NOOA knows it by these words."""

    def __init__(self, message: str) -> None:
        super().__init__(f"context_length_exceeded: {message}")


class GymResponsesLLM(UnifiedLLM):
    """Calls `url`; `params` is the task's own request, whose sampling goes into every call."""

    def __init__(self, client: httpx.AsyncClient, url: str, rollout: Rollout, params: dict[str, Any], context_window: int) -> None:
        super().__init__(model=str(params.get("model") or "policy"), context_window=context_window)
        self._client, self._url, self._rollout = client, url, rollout
        self._fixed = {key: value for key, value in params.items() if key not in _OF_THE_AGENT and value is not None}

    def count_tokens(self, text: str) -> int:
        """About; NOOA corrects itself by the usage that the model reports."""
        return len(text) // 4 + 1

    def get_model_info(self) -> Any:
        """Nothing beyond what was configured."""
        return None

    def call(self, *args: Any, **kwargs: Any) -> LLMResponse:
        """Not offered: the run has an event loop that must not be blocked."""
        raise InfrastructureFailure("the agent calls its model without await, which is not supported", terminal=True)

    async def acall(
        self,
        messages: list[dict[str, Any]],
        tools: list[Tool] | None = None,
        output_model: type[BaseModel] | None = None,
        **kwargs: Any,
    ) -> LLMResponse:
        """One call of the policy. Raises Stop, or ContextFull."""
        self._rollout.take_call()
        began = time.monotonic()
        answer = await self._post(self._body(messages, tools, output_model, kwargs))
        output = [item for item in answer.get("output") or [] if isinstance(item, dict)]
        usage = answer.get("usage") or {}
        self._rollout.record("model_call", id=answer.get("id"), output=output, usage=usage, seconds=round(time.monotonic() - began, 3))
        calls = [item for item in output if item.get("type") == "function_call"]
        text = "\n".join(filter(None, map(_text, output)))
        reasoning = [item for item in output if item.get("type") == "reasoning"]
        if calls:
            finish = "tool_calls"
        else:
            reason = (answer.get("incomplete_details") or {}).get("reason")
            finish = "length" if reason == "max_output_tokens" else "stop"
        content: str | BaseModel = text
        if output_model is not None and not calls:
            content = output_model.model_validate(extract_and_parse_json(text))
        return LLMResponse(
            raw_response=answer,
            content=content,
            tool_calls=[_tool_call(call) for call in calls],
            finish_reason=finish,
            assistant_message={"role": "assistant", "content": text or None, "reasoning_items": reasoning},
            reasoning="\n".join(filter(None, map(_thought, reasoning))) or None,
            usage={
                "prompt_tokens": usage.get("input_tokens", 0),
                "completion_tokens": usage.get("output_tokens", 0),
                "total_tokens": usage.get("total_tokens", 0),
            },
        )

    def _body(
        self, messages: list[dict[str, Any]], tools: list[Tool] | None, output_model: type[BaseModel] | None, given: dict[str, Any]
    ) -> dict[str, Any]:
        leading = 0
        while leading < len(messages) and messages[leading].get("role") == "system":
            leading += 1
        instructions = "\n\n".join(_plain(message.get("content")) for message in messages[:leading])
        own = {name: given[key] for key, name in _FROM_NOOA.items() if given.get(key) is not None}
        if not tools:
            own.pop("tool_choice", None)
        body: dict[str, Any] = {**own, **self._fixed, "input": [item for message in messages[leading:] for item in _items(message)]}
        if instructions:
            body["instructions"] = instructions
        if tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.get_parameter_schema(),
                    "strict": False,
                }
                for tool in tools
            ]
        if output_model is not None:
            schema = output_model.model_json_schema()
            body["text"] = {"format": {"type": "json_schema", "name": output_model.__name__, "schema": schema}}
        return body

    async def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            reply = await self._client.post(self._url, json=body)
        except httpx.HTTPError as error:
            raise self._rollout.stop(unreachable("the model", error)) from error
        if reply.status_code >= 400:
            error = error_of(reply)
            said = f"{error.get('code')} {error.get('message')}"
            if reply.status_code < 500 and any(sign in said.lower() for sign in _OVERFLOW):
                raise ContextFull(said)
            raise self._rollout.stop(refusal("the model", reply))
        try:
            answer = reply.json()
            if not isinstance(answer, dict) or not isinstance(answer.get("output"), list):
                raise ValueError("no output")
        except ValueError as error:
            said = f"the model answered with something that is no Responses object: {reply.text[:120]!r}"
            raise self._rollout.stop(InfrastructureFailure(said, kind="agent_request_failed")) from error
        if answer.get("status") in ("failed", "cancelled"):
            said = (answer.get("error") or {}).get("message") or "no reason given"
            failure = InfrastructureFailure(f"the model's response {answer['status']}: {said}", kind="agent_request_failed")
            raise self._rollout.stop(failure)
        return answer


def _tool_call(item: dict[str, Any]) -> ToolCall:
    call_id = str(item.get("call_id") or item.get("id") or "")
    return ToolCall(id=call_id, name=str(item.get("name")), arguments=str(item.get("arguments") or "{}"))


def _items(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message of NOOA's history as Responses items."""
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        yield {"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": _plain(content)}
        return
    yield from message.get("reasoning_items") or []
    if content or not message.get("tool_calls"):
        yield {"type": "message", "role": role, "content": _parts(content)}
    for call in message.get("tool_calls") or []:
        function = call["function"]
        yield {"type": "function_call", "call_id": call["id"], "name": function["name"], "arguments": function["arguments"]}


def _parts(content: Any) -> Any:
    """Texts and images of a message, as the Responses dialect has them."""
    if not isinstance(content, list):
        return content or ""
    parts: list[dict[str, Any]] = []
    for part in content:
        if part.get("type") == "image_url":
            image = part["image_url"]
            parts.append({"type": "input_image", "image_url": image["url"] if isinstance(image, dict) else image, "detail": "auto"})
        else:
            parts.append({"type": "input_text", "text": str(part.get("text") or "")})
    return parts


def _plain(content: Any) -> str:
    """A message's content as text alone."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content)
    return content if isinstance(content, str) else json.dumps(content)


def _text(item: dict[str, Any]) -> str:
    parts = item.get("content") if item.get("type") == "message" else None
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict)) if isinstance(parts, list) else ""


def _thought(item: dict[str, Any]) -> str:
    parts = [*(item.get("content") or []), *(item.get("summary") or [])]
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
