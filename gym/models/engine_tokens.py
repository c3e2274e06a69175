"""Reading an engine's token ids out of Chat Completions replies, and leaving them out for clients that did not ask.

vLLM gives `prompt_token_ids` beside, and `token_ids` within, the one choice, and log probabilities in
`logprobs.content`; a stream gives the prompt's with its first chunk and the others piece by piece. Invariant: ids are
believed only if they are all there: as many as there are log probabilities, and as the usage counts.
"""

from collections.abc import Mapping
from typing import Any

from gym.models.calls import TokenIds
from gym.models.dialects.fields import fields_of, list_of

ASKED = {"return_token_ids": True, "logprobs": True}
"""What a Chat Completions request has to say."""


class EngineTokens:
    """The token ids of one call, read as its reply comes."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """`request` is the client's own; what it asked for stays in the reply."""
        self._keep_ids = bool(request.get("return_token_ids"))
        self._keep_log_probs = bool(request.get("logprobs"))
        self._prompt: list[int] | None = None
        self._generation: list[int] = []
        self._log_probs: list[float] = []
        self._counted: int | None = None
        self._ended = False

    def read(self, part: dict[str, Any]) -> None:
        """Take what a whole completion, or one chunk of a stream, has; what the client did not ask for is removed from it."""
        self._prompt = self._prompt or part.get("prompt_token_ids")
        self._counted = fields_of(part.get("usage")).get("completion_tokens", self._counted)
        if not self._keep_ids:
            part.pop("prompt_token_ids", None)
            part.pop("prompt_text", None)
        for choice in map(fields_of, list_of(part.get("choices"))):
            self._generation += list_of(choice.get("token_ids"))
            self._log_probs += [entry["logprob"] for entry in list_of(fields_of(choice.get("logprobs")).get("content"))]
            self._ended = self._ended or choice.get("finish_reason") is not None
            if not self._keep_ids:
                choice.pop("token_ids", None)
            if not self._keep_log_probs:
                choice.pop("logprobs", None)

    def found(self) -> TokenIds | None:
        """The ids, once the reply has ended; None if any is missing."""
        whole = len(self._generation) == len(self._log_probs) and self._counted in (None, len(self._generation))
        return TokenIds(self._prompt, self._generation, self._log_probs) if self._prompt and self._ended and whole else None
