"""The one shape of an error body, and the exception that a server answers with it.

`{"error": {"message": …, "type": <failure kind>, "terminal": bool}}`; the first two keys are the
ones that OpenAI clients read too.
"""

import re
from typing import Any

from gym.protocol.failures import bounded_reason, retryable_status


class ContractError(Exception):
    """A request that a server refuses, with the HTTP status and the failure kind to say so."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "protocol_violation",
        terminal: bool | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        """`code` and `param` are for the typed errors of a dialect's clients: what went wrong, and with which field."""
        super().__init__(message)
        self.status = status
        self.message = bounded_reason(message)
        self.kind = kind
        self.terminal = not retryable_status(status) if terminal is None else terminal
        self.retry_after = retry_after
        self.code, self.param = code, param

    def body(self) -> dict[str, Any]:
        """The JSON body of the answer."""
        return {"error": {"message": self.message, "type": self.kind, "terminal": self.terminal}}


_SECRETS = re.compile(
    r"(?i)(?P<name>bearer\s+|(?:api[-_ ]?key|authorization|token|password|secret)[\"']?\s*[:=]\s*[\"']?(?:bearer\s+|basic\s+)?)"
    r"(?P<value>[^\s\"',;}]{6,})"
    r"|\bsk-[A-Za-z0-9_-]{8,}"
)


def redacted(text: str) -> str:
    """`text` with what looks like a credential blotted out, so that it can stand in a log or a row."""
    return _SECRETS.sub(lambda match: f"{match['name'] or ''}[redacted]", text)
