"""verl's Parquet: the columns that its data sets read, and those of a rollout that has been made.

`data_source`, `prompt`, `ability`, `reward_model` and `extra_info` are what RLHFDataset reads,
`messages` what MultiTurnSFTDataset reads; tools stand as JSON in `tools_json`, since a column has one
type and every tool has parameters of its own. The columns of tokens have the names and the
meaning of the fields of verl's AgentLoopOutput; they are null in a row without token ids.
"""

from typing import Any

import orjson

from gym.protocol import rollouts as keys
from gym.rollouts.export.chat import conversation_of
from gym.rollouts.export.rollout import Rollout, Unusable
from gym.rollouts.export.sequence import sequence_of
from gym.rollouts.export.turns import turns_of

_TRUTHS = ("ground_truth", "expected_answer", "answer")
"""Where rows of common tasks have the answer that a rule compares with."""


def verl(rollout: Rollout) -> dict[str, Any]:
    """The row of a rollout; see `schema`. Raises Unusable."""
    told = conversation_of(rollout)
    if any(message["role"] == "tool" or "tool_calls" in message for message in told.prompt):
        raise Unusable("a prompt with tool calls, for which verl's prompts have no place")
    row: dict[str, Any] = {
        "data_source": rollout.taskset or "unknown",
        "prompt": [{"role": message["role"], "content": message["content"]} for message in told.prompt],
        "ability": rollout.taskset or "unknown",
        "reward_model": {"style": "rule", "ground_truth": _ground_truth(rollout)},
        "extra_info": {
            "index": rollout.row.get(keys.TASK_INDEX),
            "rollout_id": rollout.id,
            "task_id": rollout.task_id,
            "masked": rollout.masked,
        },
        "messages": told.prompt + told.completion,
        "tools_json": orjson.dumps(told.tools).decode(),
        "reward_score": rollout.reward,
        "num_turns": len(told.prompt + told.completion),
    }
    if turns := turns_of(rollout):
        tokens = sequence_of(turns)
        row |= {
            "prompt_ids": tokens.prompt,
            "response_ids": tokens.response,
            "response_mask": tokens.mask,
            "response_logprobs": tokens.log_probs,
        }
    return row


def schema(arrow: Any) -> Any:
    """The columns, as a schema of pyarrow, which is handed in since not every installation has it."""
    text, ids = arrow.string(), arrow.list_(arrow.int32())
    call = arrow.struct({"id": text, "type": text, "function": arrow.struct({"name": text, "arguments": text})})
    said = {"role": text, "content": text, "reasoning_content": text, "tool_calls": arrow.list_(call), "tool_call_id": text}
    return arrow.schema(
        {
            "data_source": text,
            "prompt": arrow.list_(arrow.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": arrow.struct({"style": text, "ground_truth": text}),
            "extra_info": arrow.struct({"index": arrow.int64(), "rollout_id": text, "task_id": text, "masked": text}),
            "messages": arrow.list_(arrow.struct(said)),
            "tools_json": text,
            "reward_score": arrow.float64(),
            "num_turns": arrow.int32(),
            "prompt_ids": ids,
            "response_ids": ids,
            "response_mask": arrow.list_(arrow.int8()),
            "response_logprobs": arrow.list_(arrow.float32()),
        }
    )


def _ground_truth(rollout: Rollout) -> str:
    """The answer to compare with, "" where the row has none: what a sandbox judged has no such thing."""
    found = next((rollout.row[name] for name in _TRUTHS if rollout.row.get(name) is not None), "")
    return found if isinstance(found, str) else orjson.dumps(found).decode()
