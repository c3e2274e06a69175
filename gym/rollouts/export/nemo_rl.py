"""Rows as NeMo-RL reads them from an environment: rollouts whose items carry the three token fields.

That is the form in which they are written already, so a line goes on as it is. What NeMo-RL would
stop at is left out.
"""

import orjson

from gym.rollouts.export.rollout import Rollout, Unusable
from gym.rollouts.export.turns import turns_wanted


def nemo_rl(rollout: Rollout) -> bytes:
    """The line of a rollout. Raises Unusable."""
    turns_wanted(rollout)
    if rollout.reward is None:
        raise Unusable("no reward")
    if isinstance(rollout.params["input"], str):
        # A prompt that is bare text would be searched for images letter by letter.
        row = orjson.loads(rollout.raw)
        row["responses_create_params"]["input"] = rollout.input_items
        return orjson.dumps(row)
    return rollout.raw
