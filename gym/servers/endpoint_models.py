"""The base of model servers that stand before OpenAI-compatible endpoints.

A dialect that the endpoint speaks itself is passed on to its route, a streamed answer byte by byte; any
other goes by way of Chat Completions, a streamed answer event by event. Where token ids are to be
captured every dialect goes that way, since engines give ids there. Invariant: a prompt that is too long is
told from other refusals by the endpoint's own words for it, never by the text of a message.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import partial
from typing import Any, cast

import orjson

from gym.models.calls import CallNotes, Dialect, TokenIds
from gym.models.config import EndpointConfig
from gym.models.dialects.errors import CONTEXT_OVERFLOW
from gym.models.dialects.fields import fields_of, list_of
from gym.models.dialects.from_chat import chat_to_reply
from gym.models.dialects.histories import Options
from gym.models.dialects.to_chat import messages_to_chat, responses_to_chat
from gym.models.dialects.whole import stream_of, wants_usage
from gym.models.endpoints import Endpoints
from gym.models.engine_tokens import ASKED, EngineTokens
from gym.models.sse import SSEEvent, SSEParser
from gym.models.upstream import Upstream, UpstreamError
from gym.protocol.errors import ContractError
from gym.servers.context import ServerContext
from gym.servers.endpoint_streams import events_of, without_usage
from gym.servers.event_stream import EventStream
from gym.servers.http import Answer, Call, Send, Stream
from gym.servers.models import ModelServer

_PATHS: dict[Dialect, str] = {"responses": "/responses", "chat_completions": "/chat/completions", "messages": "/messages"}


class EndpointModel(ModelServer):
    """Subclass this for a kind of endpoint; what may differ are the methods without an underscore."""

    config: EndpointConfig
    native: frozenset[Dialect] = frozenset({"chat_completions"})
    """The dialects that the endpoint speaks itself; Chat Completions among them, unless nothing is converted."""
    options: Options = Options()
    gives_tokens: bool = False
    """Whether whole replies carry the token ids that `wants_tokens` had the engine give."""

    def __init__(self, config: EndpointConfig, context: ServerContext) -> None:
        super().__init__(config, context)
        self.endpoints = Endpoints(
            [
                Upstream(
                    name=context.instance,
                    base_url=url,
                    api_key=config.api_key,
                    timeout=config.timeout_seconds,
                    max_concurrency=config.max_concurrency,
                    extra_headers=config.extra_headers,
                )
                for url in config.base_urls
            ],
            max_retries=config.max_retries,
        )

    async def start(self) -> None:
        """Open the connection pools."""
        await self.endpoints.start()

    async def stop(self) -> None:
        """Close the connection pools."""
        await self.endpoints.aclose()

    def status(self) -> dict[str, Any]:
        """As of every model server, and how often the endpoint said that it is too much."""
        status = super().status()
        limits = {"limited": self.endpoints.limited, "wait_seconds": round(self.endpoints.wait_seconds, 3)}
        return {**status, "calls": {**status["calls"], **limits}}

    async def models(self, call: Call) -> Any:
        """The endpoint's own list."""
        return Answer(await self.endpoints.get("/models"))

    def wants_tokens(self, call: Call) -> bool:
        """Whether the engine is asked for token ids."""
        return False

    def shape(self, body: dict[str, Any]) -> dict[str, Any]:
        """What is sent of a request that was made ready otherwise."""
        return {**self.config.extra_body, **body, **self.config.sampling_overrides, "model": self.config.model}

    async def overflowed(self, error: UpstreamError, chat: Mapping[str, Any], notes: CallNotes) -> bool:
        """Whether a refusal says that the prompt is too long."""
        return error.code == CONTEXT_OVERFLOW

    async def answer(self, call: Call, dialect: Dialect) -> Any:
        """Pass the request on, or ask by way of Chat Completions."""
        body: dict[str, Any] = call.json()
        tokens = EngineTokens(body) if self.wants_tokens(call) else None
        if dialect in self.native and tokens is None:
            return await self._pass_on(call, dialect, self.shape(body))
        return await self._by_way_of_chat(call, dialect, body, tokens)

    async def _pass_on(self, call: Call, dialect: Dialect, body: dict[str, Any]) -> Any:
        if body.get("stream"):
            return Stream(partial(self._write_through, call, dialect, body))
        try:
            raw = await self.endpoints.post(_PATHS[dialect], orjson.dumps(body), rollout=call.capture_key, notes=call.notes)
        except UpstreamError as error:
            return chat_to_reply(dialect, await self._nothing(error, body, call.notes), body)
        self._object(raw)
        return Answer(raw)

    async def _write_through(self, call: Call, dialect: Dialect, body: dict[str, Any], send: Send) -> int:
        """Send a streamed answer on as it comes, but for usage that only we asked for."""
        hidden = dialect == "chat_completions" and not wants_usage(body)
        if hidden:
            body = {**body, "stream_options": {**fields_of(body.get("stream_options")), "include_usage": True}}
        out = EventStream(send)
        try:
            async with self._stream(dialect, body, call) as chunks:
                await out.begin()
                async for chunk in without_usage(chunks) if hidden else chunks:
                    await out.write(chunk)
        except UpstreamError as error:
            empty = await self._nothing(error, body, call.notes)
            await out.events(stream_of(dialect, chat_to_reply(dialect, empty, body), include_usage=not hidden))
        await out.end()
        return 200

    async def _by_way_of_chat(self, call: Call, dialect: Dialect, body: dict[str, Any], tokens: EngineTokens | None) -> Any:
        chat = self.shape(_to_chat(dialect, body, self.options))
        if tokens is not None:
            if (chat.get("n") or 1) > 1:
                raise ContractError(422, "token ids are captured of one choice: leave 'n' out")
            chat |= ASKED
        if body.get("stream"):
            return Stream(partial(self._write_converted, call, dialect, body, chat, tokens))
        try:
            path = _PATHS["chat_completions"]
            completion = self._object(await self.endpoints.post(path, orjson.dumps(chat), rollout=call.capture_key, notes=call.notes))
        except UpstreamError as error:
            completion = await self._nothing(error, chat, call.notes)
        if tokens is not None:
            tokens.read(completion)
            call.notes.tokens = call.notes.tokens or tokens.found()
        reply = chat_to_reply(dialect, completion, body)
        if self.gives_tokens and call.notes.tokens is not None:
            _put_tokens(dialect, reply, call.notes.tokens)
        return reply

    async def _write_converted(
        self, call: Call, dialect: Dialect, body: dict[str, Any], chat: dict[str, Any], tokens: EngineTokens | None, send: Send
    ) -> int:
        """Send a streamed answer on, each chunk as the events that it is in the client's dialect."""
        asked = wants_usage(body)
        chat = {**chat, "stream": True, "stream_options": {"include_usage": True}}
        events = events_of(dialect, body, usage=asked)
        out, ended = EventStream(send), False
        try:
            async with self._stream("chat_completions", chat, call) as chunks:
                await out.begin()
                parser = SSEParser()
                async for data in chunks:
                    made: list[SSEEvent] = []
                    for event in parser.feed(data):
                        if event.data == "[DONE]":
                            continue
                        chunk = self._object(event.data.encode())
                        if "error" in chunk:
                            raise self._broke(fields_of(chunk["error"]).get("message", chunk["error"]))
                        if tokens is not None:
                            tokens.read(chunk)
                        made += events.add(chunk)
                        ended = ended or any(fields_of(choice).get("finish_reason") for choice in list_of(chunk.get("choices")))
                    await out.events(made)
            if not ended:
                raise self._broke("its stream ended before the answer did")
            if tokens is not None:
                call.notes.tokens = tokens.found()
            await out.events(events.finish())
        except UpstreamError as error:
            empty = await self._nothing(error, chat, call.notes)
            await out.events(stream_of(dialect, chat_to_reply(dialect, empty, body), include_usage=asked))
        except ContractError as error:
            if not out.begun:
                raise
            await out.events(events.fail(error.message, "server_error"))
            raise
        await out.end()
        return 200

    @contextlib.asynccontextmanager
    async def _stream(self, dialect: Dialect, body: dict[str, Any], call: Call) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The bytes of a streamed answer. Raises UpstreamError, or ContractError, before the first of them or while they come."""
        async with self.endpoints.stream(_PATHS[dialect], orjson.dumps(body), rollout=call.capture_key, notes=call.notes) as answer:
            if not answer.content_type.startswith("text/event-stream"):
                reason = f"{self.context.instance}: the endpoint was asked for a stream and answered with {answer.content_type}"
                raise ContractError(502, reason, kind="agent_request_failed")
            yield answer.chunks

    async def _nothing(self, error: UpstreamError, chat: Mapping[str, Any], notes: CallNotes) -> dict[str, Any]:
        """The completion of a prompt that was too long: nothing, which ended as `length`. Raises `error` if it was refused otherwise."""
        if error.status not in (400, 413, 422) or not await self.overflowed(error, chat, notes):
            raise error
        error.code = CONTEXT_OVERFLOW
        if self.config.context_overflow == "error":
            raise error
        prompt = len(notes.tokens.prompt) if notes.tokens else 0
        return {
            "id": "chatcmpl-context-overflow",
            "object": "chat.completion",
            "created": 0,
            "model": self.config.model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "length"}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": 0, "total_tokens": prompt},
        }

    def _object(self, raw: bytes) -> dict[str, Any]:
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            piece = raw[:120].decode(errors="replace")
            reason = f"{self.context.instance}: the endpoint answered with something that is no JSON object: {piece!r}"
            raise ContractError(502, reason, kind="agent_request_failed")
        return cast(dict[str, Any], value)

    def _broke(self, said: Any) -> ContractError:
        return ContractError(502, f"{self.context.instance}: the endpoint broke off: {said}", kind="transport_peer_drop", terminal=False)


def _to_chat(dialect: Dialect, body: dict[str, Any], options: Options) -> dict[str, Any]:
    if dialect == "responses":
        return responses_to_chat(body, options)
    return messages_to_chat(body, options) if dialect == "messages" else dict(body)


def _put_tokens(dialect: Dialect, reply: dict[str, Any], tokens: TokenIds) -> None:
    """Add the ids where trainers read them: at the last output item, or at the message."""
    places = {"responses": reply.get("output"), "chat_completions": [choice["message"] for choice in list_of(reply.get("choices"))]}
    if place := list_of(places.get(dialect)):
        place[-1] |= tokens.fields
