"""What an environment server makes of its peers' replies: objects and verdicts, or the failure that a broken one is.

Invariant: a peer that breaks the contract ends the episode for good, since asking again would bring the same.
"""

from typing import Any, TypeVar, cast

import orjson
from pydantic import BaseModel, ValidationError

from gym.client import Reply
from gym.protocol.errors import ContractError

Model = TypeVar("Model", bound=BaseModel)


def broken(reason: str, kind: str = "protocol_violation") -> ContractError:
    """The failure that a peer's broken reply is."""
    return ContractError(502, reason, kind=kind, terminal=True)


def object_of(reply: Reply, name: str) -> dict[str, Any]:
    """The JSON object that the peer `name` answered with. Raises ContractError for anything else."""
    try:
        value: object = orjson.loads(reply.body)
    except orjson.JSONDecodeError as error:
        raise broken(f"{name} answered with something that is not JSON: {reply.body[:80]!r}") from error
    if not isinstance(value, dict):
        raise broken(f"{name} answered with a {type(value).__name__} in place of an object")
    return cast("dict[str, Any]", value)


def parsed(model: type[Model], reply: Reply, name: str) -> Model:
    """The reply of the peer `name` as `model`. Raises ContractError."""
    try:
        return model.model_validate(object_of(reply, name))
    except ValidationError as error:
        raise broken(f"{name} answered with an invalid {model.__name__}: {error.errors(include_url=False)[0]['msg'].lower()}") from error


def check_verdict(name: str, result: dict[str, Any]) -> None:
    """A reward that is no finite number is a broken verifier, not a row. Raises ContractError."""
    reward = result.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        raise broken(f"{name} verified with the reward {reward!r}, which is no number", kind="verifier_error")
