"""Measures what a streamed answer costs, chunk by chunk.

    python benchmarks/perf/streams.py [--tokens N]

One answer of N tokens, each in a chunk of its own as vLLM writes them (with and without token ids and log
probabilities), goes through what a converting model server does with it: bytes to events, JSON, conversion,
bytes. CPU-microseconds per chunk, and how many streams of 20 tokens a second one core carries; the least of the rounds counts.
"""

import argparse
import time
from collections.abc import Callable

import orjson

from gym.models.dialects.assemble import assembler
from gym.models.dialects.streams import ChatToMessages, ChatToResponses
from gym.models.sse import SSEEvent, SSEParser, encode

ROUNDS = 5
TOKENS_PER_SECOND = 20


def sent(tokens: int, *, ids: bool) -> list[bytes]:
    """The chunks of an answer that thinks for a quarter, then speaks, then calls a tool for the last quarter."""
    chunks: list[bytes] = []
    for number in range(tokens):
        delta: dict[str, object] = {"reasoning_content": " hm"} if number < tokens // 4 else {"content": " word"}
        if number >= tokens * 3 // 4:
            head = {"id": "call_1", "type": "function"} if number == tokens * 3 // 4 else {}
            delta = {"tool_calls": [{**head, "index": 0, "function": {"arguments": "1", **({"name": "run"} if head else {})}}]}
        choice: dict[str, object] = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}
        if ids:
            token = {"token": " word", "logprob": -0.5, "bytes": [32, 119, 111, 114, 100], "top_logprobs": []}
            choice |= {"token_ids": [number], "logprobs": {"content": [token]}}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        chunks.append(encode(SSEEvent(None, orjson.dumps(chunk).decode())))
    return chunks


def parsed(chunks: list[bytes]) -> list[SSEEvent]:
    parser = SSEParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def converted(make: Callable[[], ChatToResponses | ChatToMessages], chunks: list[bytes]) -> int:
    """The whole way: how many bytes came out."""
    parser, converter, size = SSEParser(), make(), 0
    for data in chunks:
        for event in parser.feed(data):
            size += len(b"".join(map(encode, converter.add(orjson.loads(event.data)))))
    return size + len(b"".join(map(encode, converter.finish())))


def added(make: Callable[[], ChatToResponses | ChatToMessages], chunks: list[dict[str, object]]) -> None:
    """The conversion alone."""
    converter = make()
    for chunk in chunks:
        converter.add(chunk)
    converter.finish()


def assembled(events: list[SSEEvent]) -> None:
    """What the record of a call does with a stream."""
    reader = assembler("chat_completions")
    for event in events:
        reader.add(event)
    reader.result()


def microseconds(run: Callable[[], object], tokens: int) -> float:
    """The least CPU time per chunk."""
    least = float("inf")
    for _ in range(ROUNDS):
        before = time.process_time()
        run()
        least = min(least, time.process_time() - before)
    return 1e6 * least / tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=20_000)
    tokens = parser.parse_args().tokens
    tools = {"tools": [{"name": "run", "eager_input_streaming": True}]}
    for ids in (False, True):
        chunks = sent(tokens, ids=ids)
        events = parsed(chunks)
        print(f"{tokens} chunks {'with ids and log probabilities' if ids else 'without ids'}, {sum(map(len, chunks)) // tokens} bytes each")
        measured = {
            "bytes to events": microseconds(lambda chunks=chunks: parsed(chunks), tokens),
            "assembly of the record": microseconds(lambda events=events: assembled(events), tokens),
        }
        for name, make in (("Responses", lambda: ChatToResponses({})), ("Messages", lambda: ChatToMessages(tools))):
            objects = [orjson.loads(event.data) for event in events]
            measured[f"add() to {name}"] = microseconds(lambda make=make, objects=objects: added(make, objects), tokens)
            measured[f"the whole way to {name}"] = microseconds(lambda make=make, chunks=chunks: converted(make, chunks), tokens)
        for name, cost in measured.items():
            print(f"  {name:28} {cost:6.2f} us a chunk, {1e6 / cost / TOKENS_PER_SECOND:8,.0f} streams on a core")


if __name__ == "__main__":
    main()
