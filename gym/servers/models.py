"""The base of model servers: one model in three dialects, also below a rollout prefix, where every call is recorded."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import asdict
from typing import Any, ClassVar

from gym.config.schema import Kind, ModelConfig
from gym.models.calls import Dialect
from gym.models.capture.folder import CaptureFolder
from gym.models.capture.recorder import Limits, Recorder
from gym.models.capture.records import Capture
from gym.models.capture.report import NO_RECORDS, Report
from gym.models.tokens import training_of
from gym.protocol import routes
from gym.protocol.base import WireRequest
from gym.protocol.errors import ContractError
from gym.servers.base import RouteSpec, Server
from gym.servers.context import ServerContext
from gym.servers.dialects import DialectRoute
from gym.servers.http import Access, Answer, Call, Handler

_TITLES: dict[Dialect, str] = {"responses": "Responses", "chat_completions": "Chat Completions", "messages": "Messages"}


class OpenCaptureRequest(WireRequest):
    """`POST /v1/capture/open`: `session_id` is the caller's, and makes a repeat harmless."""

    session_id: str


class CloseCaptureRequest(WireRequest):
    """`POST /v1/capture/close`."""

    session_id: str | None = None
    keep: bool = True
    """Leave the lines to be fetched."""
    response: dict[str, Any] | None = None
    """The agent's response: says which call gave the final answer."""


class ModelServer(Server):
    """Subclass this to serve a policy model: override `answer`, or the method of each dialect. What is not overridden answers 501."""

    kind: ClassVar[Kind] = "responses_api_models"
    config: ModelConfig

    def __init__(self, config: ModelConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        folder = CaptureFolder(context.state_dir / "captures" / context.instance)
        limits = Limits(config.max_calls_per_rollout, config.max_tokens_per_rollout, config.max_failed_calls_in_a_row)
        self.recorder = Recorder(context.instance, folder, limits)

    async def responses(self, call: Call) -> Any:
        """`POST /v1/responses`: answer with a Responses object, or with a `Stream`. What the handler knows goes into `call.notes`."""
        return await self.answer(call, "responses")

    async def chat_completions(self, call: Call) -> Any:
        """`POST /v1/chat/completions`."""
        return await self.answer(call, "chat_completions")

    async def messages(self, call: Call) -> Any:
        """`POST /v1/messages`."""
        return await self.answer(call, "messages")

    async def answer(self, call: Call, dialect: Dialect) -> Any:
        """Answer a request of any dialect; its body is an object."""
        raise ContractError(501, f"model server {self.context.instance} does not speak the {_TITLES[dialect]} dialect")

    async def models(self, call: Call) -> Any:
        """`GET /v1/models`."""
        return {"object": "list", "data": []}

    def status(self) -> dict[str, Any]:
        """What its calls amount to, as `--concurrency auto` looks at it."""
        return {"calls": asdict(self.recorder.totals)}

    def rollout_closed(self, capture_key: str, report: Report) -> None:
        """Run once when the record of a rollout is closed: let go of what was held for it. May add to the report."""

    def route_specs(self) -> list[RouteSpec]:
        """The three dialects, and the record. A client that goes away stops its call, so that nobody pays for unread tokens."""

        def post(path: str, dialect: Dialect, handler: Handler) -> RouteSpec:
            broken = f"{self.context.instance}:internal_error"
            route = DialectRoute(dialect, handler, self.recorder, broken, self.config.keep_alive_seconds)
            return RouteSpec(path, route, Access.ROLLOUT, under_rollout=True, leaves_with_client=True, data=True)

        def control(path: str, handler: Handler, method: str = "POST") -> RouteSpec:
            return RouteSpec(path, handler, Access.CONTROL, method, under_rollout=True)

        return [
            post(routes.RESPONSES, "responses", self.responses),
            post(routes.CHAT_COMPLETIONS, "chat_completions", self.chat_completions),
            post(routes.MESSAGES, "messages", self.messages),
            RouteSpec(routes.MODELS, self.models, Access.ROLLOUT, "GET", under_rollout=True, data=True),
            control(routes.OPEN_CAPTURE, self._open_capture),
            control(routes.CLOSE_CAPTURE, self._close_capture),
            control(routes.CAPTURE, self._capture, "GET"),
            control(routes.CAPTURE, self._retire_capture, "DELETE"),
        ]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """As every server, and let go of the files at the end."""
        try:
            async with super().running():
                yield
        finally:
            self.recorder.stop()

    async def _open_capture(self, call: Call) -> dict[str, Any]:
        self.recorder.open(_key(call), call.parse(OpenCaptureRequest).session_id)
        return {}

    async def _close_capture(self, call: Call) -> Answer:
        request = call.parse(CloseCaptureRequest)

        def finish(report: Report, capture: Capture) -> None:
            if call.token_capture:
                whole = all(gap["code"] == NO_RECORDS for gap in report["gaps"])
                training = training_of(capture.calls, request.response, capture_complete=whole)
                report["training"] = {"items": training.items, "report": training.report, "masked_reason": training.masked_reason}
            self.rollout_closed(_key(call), report)

        return Answer(self.recorder.close(_key(call), request.session_id, keep=request.keep, finish=finish, bodies=call.token_capture))

    async def _capture(self, call: Call) -> Answer:
        return Answer(self.recorder.raw(_key(call)))

    async def _retire_capture(self, call: Call) -> dict[str, Any]:
        self.recorder.retire(_key(call))
        return {}


def _key(call: Call) -> str:
    if call.capture_key is None:
        raise ContractError(422, f"{call.path} stands below {routes.ROLLOUT_PREFIX}/<capture key> only")
    return call.capture_key
