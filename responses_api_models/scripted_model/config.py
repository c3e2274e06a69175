"""The configuration of `scripted_model`, and the form of its scripts."""

import re
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from gym.config.schema import ModelConfig, Section


class Call(Section):
    """One tool call."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Step(Section):
    """What one model call does. Exactly one of the ways to answer; `sleep` comes before it."""

    say: str | None = None
    """Answer with this text."""
    call: str | None = None
    """Call this tool, with `arguments`."""
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """A string is sent as it is: for arguments that are not JSON."""
    calls: list[Call] | None = None
    """Call several tools at once."""
    sleep: float = Field(default=0.0, ge=0)
    """Seconds before the answer."""
    status: int | None = Field(default=None, ge=400, le=599)
    """Answer with this HTTP error."""
    retry_after: float | None = None
    """Seconds, sent with an error."""
    body: str | None = None
    """Answer with these bytes, whatever they are."""
    hang: bool = False
    """Never answer."""

    @model_validator(mode="after")
    def _answers_once(self) -> Self:
        ways = [
            self.say is not None,
            self.call is not None,
            self.calls is not None,
            self.status is not None,
            self.body is not None,
            self.hang,
        ]
        if sum(ways) != 1:
            raise ValueError("a step needs exactly one of say, call, calls, status, body and hang")
        return self


class Rule(Section):
    """Steps for every task whose last user message matches `when`; `{group}` in a step is what the pattern's group matched."""

    when: str
    steps: list[Step] = Field(min_length=1)

    @model_validator(mode="after")
    def _pattern_compiles(self) -> Self:
        try:
            re.compile(self.when)
        except re.error as error:
            raise ValueError(f"'when' is not a regular expression: {error}") from error
        return self


class Config(ModelConfig):
    """Where the steps come from: the request's `metadata.script` (JSON), then `rules`, then the rules of the file `script`."""

    script: Path | None = None
    rules: list[Rule] = Field(default_factory=list)
