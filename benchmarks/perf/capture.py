"""Measures what the record of model calls costs: CPU per call, the same route with a rollout's prefix and without.

    python benchmarks/perf/capture.py [--rollouts N] [--calls N] [--folder DIRECTORY]

Conversations of a few short turns go through the route of a dialect to a handler that answers at once, so that the difference
is the record alone: begin line, end line, both written to the operating system, and the events of a stream put together.
The close is measured by itself, per rollout. The least of the rounds counts. Nothing here is a test.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson

from gym.models.calls import Dialect
from gym.models.capture.folder import CaptureFolder
from gym.models.capture.recorder import Limits, Recorder
from gym.models.dialects.streams import stream_of
from gym.models.sse import encode
from gym.servers.dialects import DialectRoute
from gym.servers.http import Answer, Call, Send, Stream
from gym.transports import Message

ROUNDS = 7
TEXT = "The counter stands at four, and I add three to it, which makes seven in all. " * 2
USAGE = {
    "input_tokens": 120,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 40,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 160,
}
REPLY: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1.0,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
        }
    ],
    "tools": [],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "usage": USAGE,
}
DIALECT: Dialect = "responses"


def bodies(calls: int, *, stream: bool) -> list[bytes]:
    """The requests of one conversation: each holds all that was said before it."""
    said: list[dict[str, Any]] = []
    made: list[bytes] = []
    for number in range(calls):
        said.append({"role": "user", "content": f"turn {number}: {TEXT}"})
        made.append(orjson.dumps({"model": "m", "input": said, **({"stream": True} if stream else {})}))
        said.extend(REPLY["output"])
    return made


async def answer(call: Call) -> Answer | Stream:
    """The reply, or its events."""
    return Stream(write) if call.json().get("stream") else Answer(orjson.dumps(REPLY))


EVENTS = [encode(event) for event in stream_of(DIALECT, REPLY)]


async def write(send: Send) -> int:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for event in EVENTS:
        await send({"type": "http.response.body", "body": event, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    return 200


async def discard(message: Message) -> None:
    """Nobody reads it."""


async def asked(route: DialectRoute, requests: list[bytes], key: str | None) -> None:
    """One conversation."""
    for body in requests:
        reply = await route(Call("/v1/responses", body, {}, capture_key=key))
        if isinstance(reply, Stream):
            await reply.write(discard)


async def measured(folder: Path, rollouts: int, requests: list[bytes]) -> dict[str, float]:
    """CPU-microseconds: of a call on record, of one that is not, and of a close."""
    recorder = Recorder("model", CaptureFolder(folder), Limits())
    route = DialectRoute(DIALECT, answer, recorder, "broken", None)
    least = {"without": float("inf"), "with": float("inf"), "close": float("inf")}
    for number in range(ROUNDS):
        keys = [f"{number}-{rollout}" for rollout in range(rollouts)]
        for name, named in (("without", [None] * rollouts), ("with", keys)):
            before = time.process_time()
            for key in named:
                await asked(route, requests, key)
            least[name] = min(least[name], 1e6 * (time.process_time() - before) / rollouts / len(requests))
        before = time.process_time()
        for key in keys:
            recorder.close(key, "session", keep=False, finish=lambda report, capture: None, bodies=False)
        least["close"] = min(least["close"], 1e6 * (time.process_time() - before) / rollouts)
    recorder.stop()
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--calls", type=int, default=0, help="turns of each conversation (default: 2, 10 and 50, one after the other)")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for calls in [options.calls] if options.calls else [2, 10, 50]:
            for stream in (False, True):
                requests = bodies(calls, stream=stream)
                least = asyncio.run(measured(Path(name) / "captures", options.rollouts, requests))
                what = f"{calls} calls a rollout, {'streamed' if stream else 'whole'}, {sum(map(len, requests)) // calls} bytes a request"
                print(f"{what}: {least['with'] - least['without']:.1f} us a call for the record")
                print(f"  a call {least['without']:.1f} us without, {least['with']:.1f} us with; a close {least['close']:.1f} us a rollout")


if __name__ == "__main__":
    main()
