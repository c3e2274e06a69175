"""Who may call what: the run's bearer token, per-rollout tokens and signed session cookies.

One secret, made fresh for each run and handed to our own processes by file, is the root of all
three. What runs in a sandbox gets a rollout token, which opens the model routes of its own
rollout and nothing else; it can be recomputed from the secret, so nobody has to store it.
"""

import hmac
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import ClassVar
from urllib.parse import quote, unquote

from itsdangerous import BadSignature, Signer
from itsdangerous.signer import SigningAlgorithm


@dataclass(frozen=True)
class Credentials:
    """The run's token and secret. `token` is None where authentication is switched off (`auth: off`)."""

    token: str | None
    secret: str
    needed: ClassVar[str] = "this run's bearer token ('gym env status --json' shows where it is)"
    """What a refused caller lacks, for the error."""

    def headers(self) -> dict[str, str]:
        """What our own processes send with every call."""
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}

    def allows_control(self, authorization: str | None) -> bool:
        """Whether a request with this `Authorization` header may use the control routes."""
        return self.token is None or _same_bearer(authorization, self.token)

    def allows_rollout(self, authorization: str | None, capture_key: str) -> bool:
        """Whether a request may use the model routes of one rollout."""
        return self.allows_control(authorization) or _same_bearer(authorization, self.rollout_token(capture_key))

    def rollout_token(self, capture_key: str) -> str:
        """The token that a sandbox of this rollout gets."""
        return blake2b(capture_key.encode(), key=self._key, digest_size=24, person=b"gym-rollout").hexdigest()

    @cached_property
    def _key(self) -> bytes:
        return blake2b(self.secret.encode(), digest_size=32).digest()

    def for_sandboxes(self) -> "Credentials":
        """The same, as they count on sockets that code in a sandbox can reach."""
        return _SandboxCredentials(self.token, self.secret)


class _SandboxCredentials(Credentials):
    """The run's token opens nothing, and neither does `auth: off`: only a rollout's own token counts."""

    needed = "the bearer token of its own rollout"

    def allows_control(self, authorization: str | None) -> bool:
        return False


def _same_bearer(authorization: str | None, token: str) -> bool:
    if authorization is None or authorization[:7].lower() != "bearer ":
        return False
    return hmac.compare_digest(authorization[7:].encode(), token.encode())


class _KeyedDigest(SigningAlgorithm):
    """BLAKE2's own keyed mode: as good as an HMAC, and a third of its time."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        """The signature of `value`."""
        return blake2b(value, key=key, digest_size=20).digest()


class SessionSigner:
    """Signs session ids of one instance, and reads them back.

    A value that was signed for another instance, another run or another purpose does not pass.
    """

    def __init__(self, secret: str, instance: str, purpose: str) -> None:
        key = blake2b(f"gym.{purpose}.{instance}".encode(), key=blake2b(secret.encode()).digest()).digest()
        self._signer = Signer(key, key_derivation="none", algorithm=_KeyedDigest())

    def sign(self, session_id: str) -> str:
        """The value that stands for a session."""
        return self._signer.sign(quote(session_id, safe="")).decode()

    def read(self, value: str | None) -> str | None:
        """The session id in a value, or None if there is none or it was not signed by us."""
        if value is None:
            return None
        try:
            return unquote(self._signer.unsign(value).decode())
        except (BadSignature, UnicodeDecodeError):
            return None


class CookieSigner(SessionSigner):
    """Session ids as cookies. A cookie's name carries the instance's, so that those of several servers can stand in one jar."""

    def __init__(self, secret: str, instance: str) -> None:
        super().__init__(secret, instance, "session")
        self.name = "gym_" + "".join(c if c.isalnum() else "_" for c in instance)
