"""Rows as NeMo-RL reads them from an environment: rollouts whose items carry the three token fields.

That is the form in which they are written already, so a line goes on as it is. What NeMo-RL would
stop at is left out.
"""

from gym.rollouts.export.rollout import Rollout, Unusable
from gym.rollouts.export.turns import turns_wanted


def nemo_rl(rollout: Rollout) -> bytes:
    """The line of a rollout. Raises Unusable."""
    turns_wanted(rollout)
    if rollout.reward is None:
        raise Unusable("no reward")
    return rollout.raw
