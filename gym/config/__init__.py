"""YAML overlays -> `Plan`: composition, origins of every value, types, references, checks.

`load` is the entry. Nothing here starts a process, imports an app or touches the network.
"""

from gym.config.errors import ConfigErrors, Problem, UserError
from gym.config.loading import Examined, Loaded, examine, load
from gym.config.masking import masked

__all__ = ["ConfigErrors", "Examined", "Loaded", "Problem", "UserError", "examine", "load", "masked"]
