"""TRL's data sets: prompt and completion as messages, or the token ids themselves.

With token ids a record is what TRL's SFT trainer takes for tokenized already: it trains on exactly
these ids, and by `labels` on those alone that the model generated. A `completion_mask` would say the
same, but to a trainer whose data is tokenized only where `completion_only_loss` is set.
"""

from typing import Any

import orjson

from gym.models.dialects.arguments import input_of
from gym.models.dialects.histories import Message
from gym.rollouts.export.chat import conversation_of
from gym.rollouts.export.rollout import Rollout
from gym.rollouts.export.sequence import sequence_of
from gym.rollouts.export.turns import turns_wanted

_IGNORED = -100
"""The label of a token that nothing is learnt from."""


def trl(rollout: Rollout) -> bytes:
    """The record of a rollout as messages. Raises Unusable."""
    told = conversation_of(rollout)
    record: dict[str, Any] = {"prompt": _messages(told.prompt), "completion": _messages(told.completion)}
    # As text, since every tool has parameters of its own; TRL reads it.
    return _record(rollout, record, tools=orjson.dumps(told.tools).decode())


def trl_token_ids(rollout: Rollout) -> bytes:
    """The record of a rollout as token ids. Raises Unusable."""
    tokens = sequence_of(turns_wanted(rollout))
    ids, mask = tokens.prompt + tokens.response, [0] * len(tokens.prompt) + tokens.mask
    record = {"input_ids": ids, "labels": [token if generated else _IGNORED for token, generated in zip(ids, mask, strict=True)]}
    return _record(rollout, record)


def _record(rollout: Rollout, record: dict[str, Any], **more: Any) -> bytes:
    about = {"reward": rollout.reward, "rollout_id": rollout.id, "task_id": rollout.task_id, "masked": rollout.masked is not None}
    return orjson.dumps({**record, **more, **about})


def _messages(messages: list[Message]) -> list[Message]:
    """Messages with arguments as objects, which chat templates write out as JSON."""
    return [
        {**message, "tool_calls": [_call(call) for call in message["tool_calls"]]} if "tool_calls" in message else message
        for message in messages
    ]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return {**call, "function": {**call["function"], "arguments": input_of(call["function"]["arguments"])}}
