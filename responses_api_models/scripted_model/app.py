"""A model that plays written steps, in every dialect: deterministic, without a key, without a network.

Which step comes next is read off the request alone (how often the model has spoken in its history),
so that the server keeps no state and a retried call gets the same answer.
"""

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from gym.config.roots import search_roots
from gym.models.calls import Dialect
from gym.models.dialects.errors import error_events
from gym.models.dialects.from_chat import anthropic_to_items, chat_to_reply, messages_to_items
from gym.models.dialects.whole import stream_of, wants_usage
from gym.protocol.errors import ContractError
from gym.protocol.responses import Item, ResponseCreateParams, message_text
from gym.servers import ModelServer, ServerContext
from gym.servers.event_stream import EventStream
from gym.servers.http import Answer, Call, Send, Stream, to_json
from responses_api_models.scripted_model.config import Config, Rule, Step
from responses_api_models.scripted_model.steps import Groups, completion_of

_STEPS = TypeAdapter(list[Step])
_RULES = TypeAdapter(list[Rule])


class HistoryParams(BaseModel):
    """The body of a Chat Completions or a Messages request, as far as it is looked into."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    messages: list[Item]
    system: str | list[Item] | None = None
    metadata: dict[str, Any] | None = None
    n: int | None = Field(default=None, ge=1, le=128)


class ScriptedModel(ModelServer):
    """The embedded default model."""

    config: Config

    def __init__(self, config: Config, context: ServerContext) -> None:
        super().__init__(config, context)
        rules = [*config.rules, *(_read_rules(config.script) if config.script else [])]
        self._rules = [(re.compile(rule.when, re.IGNORECASE), rule.steps) for rule in rules]

    async def responses(self, call: Call) -> Any:
        """Play the step that the request has come to."""
        params = call.parse(ResponseCreateParams)
        return await self._answer(call, "responses", params.input_items(), params.metadata)

    async def chat_completions(self, call: Call) -> Any:
        """Play the step that the request has come to, `n` times."""
        params = call.parse(HistoryParams)
        return await self._answer(call, "chat_completions", messages_to_items(params.messages), params.metadata, choices=params.n or 1)

    async def messages(self, call: Call) -> Any:
        """Play the step that the request has come to."""
        params = call.parse(HistoryParams)
        return await self._answer(call, "messages", anthropic_to_items(params.messages, params.system), params.metadata)

    async def models(self, call: Call) -> Any:
        """The one model there is."""
        return {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "gym"}]}

    async def _answer(self, call: Call, dialect: Dialect, items: list[Item], metadata: dict[str, Any] | None, *, choices: int = 1) -> Any:
        steps, groups = self._script(metadata or {}, items)
        turn = turns_taken(items)
        step = steps[turn] if turn < len(steps) else Step(say="The script has ended.")
        if step.sleep:
            await asyncio.sleep(step.sleep)
        if step.hang:
            await asyncio.get_running_loop().create_future()
        if step.status is not None:
            kind = "scripted_model:credentials_refused" if step.status in (401, 403) else "agent_request_failed"
            raise ContractError(step.status, step.error or f"the script answers {step.status}", kind=kind, retry_after=step.retry_after)
        if step.body is not None:
            return Answer(step.body.encode())
        request = call.json()
        reply = chat_to_reply(dialect, completion_of(step, groups, prompt_bytes=len(call.body), choices=choices), request)
        if request.get("stream"):
            return Stream(partial(_write_stream, dialect, reply, step, wants_usage(request)))
        if step.breaks == "error":
            raise ContractError(500, _BROKEN, kind="agent_request_failed")
        return Stream(partial(_write_half, reply)) if step.breaks else reply

    def _script(self, metadata: dict[str, Any], items: list[Item]) -> tuple[list[Step], Groups]:
        written = metadata.get("script")
        if written is not None:
            try:
                return _STEPS.validate_json(written), {}
            except ValidationError as error:
                raise ContractError(422, f"metadata.script is not a list of steps: {_first(error)}") from error
        text = next((message_text(item) for item in reversed(items) if item.get("role") == "user"), "")
        for pattern, steps in self._rules:
            match = pattern.search(text)
            if match:
                return steps, {key: value or "" for key, value in match.groupdict().items()}
        raise ContractError(422, f"scripted_model has no script for {text[:80]!r}: add a rule, or 'script' to the row's metadata")


def turns_taken(items: list[Item]) -> int:
    """How often the model has spoken: the runs of items that only a model makes."""
    turns, speaking = 0, False
    for item in items:
        own = item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant"
        turns += own and not speaking
        speaking = own
    return turns


_BROKEN = "the script breaks off here"


async def _write_stream(dialect: Dialect, reply: dict[str, Any], step: Step, usage: bool, send: Send) -> int:
    """Send the events of a reply at the step's pace; half of them, if it breaks."""
    out, events = EventStream(send), list(stream_of(dialect, reply, piece=step.piece, include_usage=usage))
    for number, event in enumerate(events[: len(events) // 2] if step.breaks else events):
        if number and step.pace:
            await asyncio.sleep(step.pace)
        await out.events([event])
    if step.breaks == "connection":
        raise _broken_off()
    if step.breaks == "error":
        await out.events(error_events(dialect, 500, _BROKEN, "server_error", sequence_number=len(events) // 2))
    await out.end()
    return 200


async def _write_half(reply: dict[str, Any], send: Send) -> int:
    """Send half of a reply's bytes."""
    body = to_json(reply)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
    raise _broken_off()


def _broken_off() -> ContractError:
    return ContractError(502, _BROKEN, kind="transport_peer_drop")


def _read_rules(script: Path) -> list[Rule]:
    """The rules in a YAML file, looked for as every path of a config is. Raises ValueError naming the file."""
    found = next((path for path in (root / script for root in search_roots()) if path.is_file()), None)
    if found is None:
        raise ValueError(f"script file {script} was not found")
    try:
        return _RULES.validate_python(yaml.safe_load(found.read_text()))
    except (ValidationError, yaml.YAMLError) as error:
        reason = _first(error) if isinstance(error, ValidationError) else error
        raise ValueError(f"script file {found}: {reason}") from error


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'value'}: {first['msg'].lower()}"
