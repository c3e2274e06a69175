"""The configuration of `scripted_model`, and the form of its scripts."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from gym.config.schema import ModelConfig, MustExist, Section


class Call(Section):
    """One tool call."""

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """A string is sent as it is: for arguments that are not JSON."""


class Step(Section):
    """What one model call does. Exactly one of the ways to answer; `sleep` comes before it, the rest says how the answer goes."""

    say: str | None = None
    """Answer with this text."""
    call: str | None = None
    """Call this tool, with `arguments`."""
    arguments: dict[str, Any] | str = Field(default_factory=dict)
    """A string is sent as it is: for arguments that are not JSON."""
    calls: list[Call] | None = None
    """Call several tools at once."""
    refuse: str | None = None
    """Refuse with this text."""
    think: str | None = None
    """What the model thinks before it says or calls anything."""
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"] | None = None
    """Why it stops, if not as its answer has it."""
    piece: int | None = Field(default=None, ge=1)
    """Characters in each piece of a streamed text; all of it at once without."""
    pace: float = Field(default=0.0, ge=0)
    """Seconds between the events of a streamed answer."""
    breaks: Literal["connection", "error"] | None = None
    """Half-way through the answer its connection breaks, or a stream reports an error (without a stream it is an answer of 500)."""
    sleep: float = Field(default=0.0, ge=0)
    """Seconds before the answer."""
    status: int | None = Field(default=None, ge=400, le=599)
    """Answer with this HTTP error."""
    error: str | None = None
    """The message of an HTTP error, in place of our own."""
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
            self.refuse is not None,
            self.status is not None,
            self.body is not None,
            self.hang,
        ]
        if sum(ways) != 1:
            raise ValueError("a step needs exactly one answer — give one of say, call, calls, refuse, status, body and hang")
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
            raise ValueError(f"when is not a regular expression ({error}) — escape what is meant literally") from error
        return self


class Config(ModelConfig):
    """Where the steps come from: the request's `metadata.script` (JSON), then `rules`, then the rules of the file `script`."""

    script: Annotated[Path | None, MustExist()] = None
    """A YAML file of rules."""
    rules: list[Rule] = Field(default_factory=list)
    """Rules that come before those of the script."""
