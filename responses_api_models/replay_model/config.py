"""The configuration of `replay_model`."""

from pathlib import Path

from gym.config.schema import ModelConfig


class Config(ModelConfig):
    """What is played back."""

    captures: Path
    """The folder `<output stem>_model_calls` of a run, or one file of it."""
