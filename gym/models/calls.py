"""What is known of one model call: the vocabulary that capture, token ids and model servers share.

A handler of a model server fills a `CallNotes` in while it works; the recorder adds what it saw of
request and reply, and the whole becomes a `ModelCall`, one per call that was begun. Token ids are
the engine's own or absent: nothing here is ever computed from text.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

Dialect = Literal["responses", "chat_completions", "messages"]


PROMPT, GENERATION, LOG_PROBS = TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""The fields of an output item, or a message, that carry the tokens of its call."""


@dataclass(frozen=True, slots=True)
class TokenIds:
    """The tokens of one call as the engine gave them. Raises ValueError if ids and log probabilities do not pair up."""

    prompt: list[int]
    generation: list[int]
    log_probs: list[float]
    """The natural logarithm of each generated token's probability; as long as `generation`."""

    def __post_init__(self) -> None:
        if len(self.generation) != len(self.log_probs):
            raise ValueError(f"{len(self.generation)} generated tokens have {len(self.log_probs)} log probabilities")

    @property
    def fields(self) -> dict[str, list[int] | list[float]]:
        """The tokens as an item carries them."""
        return {PROMPT: self.prompt, GENERATION: self.generation, LOG_PROBS: self.log_probs}


@dataclass(slots=True)
class CallNotes:
    """What only the handler of a call knows; it writes here, and leaves what it does not know."""

    upstream_status: int | None = None
    """The endpoint's last HTTP status; None if it was not asked, or did not answer."""
    upstream_attempts: int = 0
    """How often the endpoint was asked."""
    upstream: str | None = None
    """The base URL that answered, or was last tried."""
    tokens: TokenIds | None = None


@dataclass(slots=True)
class CallTotals:
    """The calls of a model server that were answered well at the first try, summed up: how busy the model is."""

    calls: int = 0
    seconds: float = 0.0
    output_tokens: int = 0

    def add(self, call: "ModelCall") -> None:
        """Count a call that has ended, if it is one of these."""
        if call.error_category is None and call.latency_ms is not None and call.notes.upstream_attempts <= 1:
            self.calls += 1
            self.seconds += call.latency_ms / 1000
            self.output_tokens += call.output_tokens or 0


@dataclass(slots=True)
class ModelCall:
    """One call as it was recorded. Times: `started_at` in seconds since the epoch, the rest in milliseconds."""

    call_id: str
    index: int
    """Counts the calls of a rollout in the order in which they began, from 0."""
    dialect: Dialect
    streamed: bool
    request: dict[str, Any]
    """The body as the client sent it."""
    response: dict[str, Any] | None = None
    """The body that the client got; of a streamed reply what it amounts to. None if there was none that can be read."""
    status: int | None = None
    """The HTTP status that the client got; None for a call that was begun and of which nothing more is known."""
    complete: bool = False
    """Whether the reply was sent to its end."""
    finish_reason: str | None = None
    """In Chat Completions' words: stop, length, tool_calls, content_filter."""
    error_category: str | None = None
    error: str | None = None
    started_at: float = 0.0
    latency_ms: float | None = None
    first_token_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    notes: CallNotes = field(default_factory=CallNotes)

    def drop_bodies(self) -> None:
        """Keep what the call says of itself, and of its bodies nothing but who answered."""
        self.request = {}
        if self.response is not None:
            self.response = {name: self.response.get(name) for name in ("id", "model")}
