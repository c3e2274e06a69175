"""Asking a judge model whether two answers mean the same.

Both orders are asked, since judges prefer a place: equal are answers that both times are called so, and one "different" is enough.
A judge that cannot be asked, or does not say one of the two labels as it was told to, has given no verdict.
"""

from typing import Any

import orjson

from gym.client import CallError, Peer
from gym.protocol import routes
from gym.protocol.failures import bounded_reason
from gym.protocol.responses import Response, output_text
from gym.tasks.prompts import PromptTemplate

EQUAL, DIFFERENT = "[[A=B]]", "[[A!=B]]"
NAMES = ("question", "first", "second")
"""What the prompt may use."""


class JudgeFailed(Exception):
    """There is no verdict: of which failure kind, and why. `evaluations` are those that were made before."""

    def __init__(self, kind: str, reason: str, evaluations: list[dict[str, Any]]) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.evaluations = kind, bounded_reason(reason), evaluations


class Judge:
    """One judge model with one prompt. `seconds` bounds each question."""

    def __init__(self, peer: Peer, prompt: PromptTemplate, params: dict[str, Any], seconds: float) -> None:
        self._peer, self._prompt, self._params, self._seconds = peer, prompt, params, seconds

    async def evaluations(self, question: str, expected: str, answer: str) -> list[dict[str, Any]]:
        """What the judge said, one entry for each order that was asked; all are equal, or the last is not. Raises JudgeFailed."""
        made: list[dict[str, Any]] = []
        for order, first, second in (("expected_first", expected, answer), ("answer_first", answer, expected)):
            text = await self._ask({"question": question, "first": first, "second": second}, made)
            label = label_of(text)
            made.append({"order": order, "verdict_label": label, "text": text})
            if label is None:
                raise JudgeFailed("judge_unparseable", f"the judge's last line is not {EQUAL} or {DIFFERENT}: {text[-200:]!r}", made)
            if label == DIFFERENT:
                break
        return made

    async def _ask(self, values: dict[str, str], made: list[dict[str, Any]]) -> str:
        body = {**self._params, "input": [{"role": "user", "content": self._prompt.fill(values)}]}
        try:
            reply = await self._peer.post(routes.RESPONSES, body, timeout=self._seconds)
        except CallError as error:
            # A refused key stops the run, as that of the policy does: no other rollout can do better.
            kind = error.kind if error.kind.endswith(":credentials_refused") else "judge_failed"
            raise JudgeFailed(kind, f"the judge could not be asked: {error.message}", made) from error
        try:
            answer = Response.model_validate(orjson.loads(reply.body))
        except ValueError as error:
            piece = reply.body[:120].decode(errors="replace")
            raise JudgeFailed(
                "judge_failed", f"{self._peer.name} answered with something that is no Responses object: {piece!r}", made
            ) from error
        if answer.status in ("failed", "cancelled"):
            said = (answer.error or {}).get("message") or "no reason given"
            raise JudgeFailed("judge_failed", f"{self._peer.name} answered with a response that {answer.status}: {said}", made)
        return output_text(answer.output)


def label_of(text: str) -> str | None:
    """The label in the last line that has any text; None if that line says anything else."""
    lines = [line.strip().strip("*`. ") for line in text.splitlines() if line.strip()]
    return lines[-1] if lines and lines[-1] in (EQUAL, DIFFERENT) else None
