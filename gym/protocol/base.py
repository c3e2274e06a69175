"""The two attitudes of a wire model: strict towards requests, tolerant towards replies."""

from pydantic import BaseModel, ConfigDict


class WireRequest(BaseModel):
    """A body that we are asked to act on: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


class WireReply(BaseModel):
    """A body that a peer answered with: unknown fields are dropped."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


class OpenReply(BaseModel):
    """A reply whose unknown fields belong to somebody further down the line, and are kept."""

    model_config = ConfigDict(extra="allow", defer_build=True)
