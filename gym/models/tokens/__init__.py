"""From token ids of single calls to a row that can be trained on.

Everything here is pure. What an engine did not give is not made up: it is left out, masked and counted.
"""

from gym.models.calls import TOKEN_FIELDS
from gym.models.tokens.contiguity import check_contiguous
from gym.models.tokens.forest import Forest, Node, build_forest
from gym.models.tokens.training import MaskedReason, Training, training_of

__all__ = ["TOKEN_FIELDS", "Forest", "MaskedReason", "Node", "Training", "build_forest", "check_contiguous", "training_of"]
