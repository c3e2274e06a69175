"""A rollout's tokens as one sequence with a mask: prompt, then what was generated and what the environment added."""

from dataclasses import dataclass

from gym.rollouts.export.rollout import Turn


@dataclass(frozen=True, slots=True)
class Sequence:
    """Everything behind the first prompt; the three lists are equally long."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    """1 for a token that the model generated, 0 for one that was given to it."""
    log_probs: list[float]
    """0.0 where the mask is 0: such a token has none."""


def sequence_of(turns: list[Turn]) -> Sequence:
    """The tokens of at least one turn."""
    made = Sequence(turns[0].added, [], [], [])
    for number, turn in enumerate(turns):
        given = turn.added if number else []
        made.response.extend([*given, *turn.generation])
        made.mask.extend([0] * len(given) + [1] * len(turn.generation))
        made.log_probs.extend([0.0] * len(given) + turn.log_probs)
    return made
