"""A model that plays written steps: deterministic, without a key, without a network.

Which step comes next is read off the request alone (how often the model has spoken in its input),
so that the server keeps no state and a retried call gets the same answer.
"""

import asyncio
import re
import uuid
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import TypeAdapter, ValidationError

from gym.config.roots import search_roots
from gym.protocol.errors import ContractError
from gym.protocol.responses import Item, ResponseCreateParams, assistant_message, message_text
from gym.servers import ModelServer, ServerContext
from gym.servers.http import Answer, Call
from responses_api_models.scripted_model.config import Config, Rule, Step

_STEPS = TypeAdapter(list[Step])
_RULES = TypeAdapter(list[Rule])


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
        if params.stream:
            raise ContractError(422, "scripted_model does not stream: leave 'stream' out or false")
        items = params.input_items()
        steps, groups = self._script(params, items)
        turn = turns_taken(items)
        step = steps[turn] if turn < len(steps) else Step(say="The script has ended.")
        return await self._play(step, groups, params, len(call.body))

    async def models(self, call: Call) -> Any:
        """The one model there is."""
        return {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "gym"}]}

    def _script(self, params: ResponseCreateParams, items: list[Item]) -> tuple[list[Step], dict[str, str]]:
        written = (params.metadata or {}).get("script")
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

    async def _play(self, step: Step, groups: dict[str, str], params: ResponseCreateParams, size: int) -> Any:
        if step.sleep:
            await asyncio.sleep(step.sleep)
        if step.hang:
            await asyncio.get_running_loop().create_future()
        if step.status is not None:
            kind = "scripted_model:credentials_refused" if step.status in (401, 403) else "agent_request_failed"
            raise ContractError(step.status, f"the script answers {step.status}", kind=kind, retry_after=step.retry_after)
        if step.body is not None:
            return Answer(step.body.encode())
        if step.say is not None:
            output = [assistant_message(_fill(step.say, groups))]
        elif step.calls is not None:
            output = [_call(call.name, _fill(call.arguments, groups)) for call in step.calls]
        else:
            output = [_call(str(step.call), _fill(step.arguments, groups))]
        written = len(orjson.dumps(output))
        return {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": 0.0,
            "model": "scripted",
            "status": "completed",
            "output": output,
            "tools": params.tools or [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            # Four bytes a token: an estimate, since nothing is tokenised here.
            "usage": {
                "input_tokens": size // 4,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": written // 4,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": size // 4 + written // 4,
            },
        }


def turns_taken(items: list[Item]) -> int:
    """How often the model has spoken: the runs of items that only a model makes."""
    turns, speaking = 0, False
    for item in items:
        own = item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant"
        turns += own and not speaking
        speaking = own
    return turns


def _fill(value: Any, groups: dict[str, str]) -> Any:
    """`value` with each `{group}` filled in; a string that is one whole number afterwards, and was one group before, becomes it."""
    if isinstance(value, dict):
        return {key: _fill(item, groups) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, groups) for item in value]
    if not isinstance(value, str):
        return value
    filled = re.sub(r"\{(\w+)\}", lambda match: groups.get(match[1], match[0]), value)
    whole = re.fullmatch(r"\{\w+\}", value) and re.fullmatch(r"-?\d+", filled)
    return int(filled) if whole else filled


def _call(name: str, arguments: Any) -> Item:
    written = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    unique = uuid.uuid4().hex
    return {
        "type": "function_call",
        "id": f"fc_{unique}",
        "call_id": f"call_{unique}",
        "name": name,
        "arguments": written,
        "status": "completed",
    }


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
