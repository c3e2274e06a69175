"""A policy model behind any OpenAI-compatible endpoint: each dialect is passed on to its own route.

The request goes on as it came, but for `model`; a streamed answer is passed through byte by byte.
"""

from functools import partial
from typing import Any

import orjson

from gym.models.upstream import Upstream
from gym.protocol.errors import ContractError
from gym.servers import ModelServer, ServerContext
from gym.servers.http import Answer, Call, Send, Stream
from responses_api_models.openai_model.config import Config


class OpenAIModel(ModelServer):
    """The policy model of most runs."""

    config: Config

    def __init__(self, config: Config, context: ServerContext) -> None:
        super().__init__(config, context)
        self._upstream = Upstream(
            name="openai_model",
            base_url=config.base_url,
            api_key=config.api_key,
            timeout=config.timeout_seconds,
            max_retries=config.max_retries,
            max_concurrency=config.max_concurrency,
            extra_headers=config.extra_headers,
        )

    async def start(self) -> None:
        """Open the connection pool."""
        await self._upstream.start()

    async def stop(self) -> None:
        """Close the connection pool."""
        await self._upstream.aclose()

    async def responses(self, call: Call) -> Any:
        """Pass a Responses request on."""
        return await self._forward(call, "/responses")

    async def chat_completions(self, call: Call) -> Any:
        """Pass a Chat Completions request on."""
        return await self._forward(call, "/chat/completions")

    async def messages(self, call: Call) -> Any:
        """Pass a Messages request on."""
        return await self._forward(call, "/messages")

    async def models(self, call: Call) -> Any:
        """The endpoint's own list."""
        return Answer(await self._upstream.get("/models"))

    async def _forward(self, call: Call, path: str) -> Any:
        body = call.json()
        if not isinstance(body, dict):
            raise ContractError(422, f"the body of {call.path} must be an object")
        body["model"] = self.config.model
        if body.get("stream"):
            return Stream(partial(self._pass_on, path, orjson.dumps(body)))
        answer = await self._upstream.post(path, orjson.dumps(body))
        if not answer.lstrip().startswith(b"{"):
            piece = answer[:120].decode(errors="replace")
            reason = f"openai_model: {self.config.base_url} answered with something that is no JSON object: {piece!r}"
            raise ContractError(502, reason, kind="agent_request_failed")
        return Answer(answer)

    async def _pass_on(self, path: str, body: bytes, send: Send) -> int:
        """Send a streamed answer on as it comes; returns its status."""
        async with self._upstream.stream(path, body) as answer:
            headers = [(b"content-type", answer.content_type.encode()), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for chunk in answer.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return answer.status
