"""A stand-in for a model's endpoint, as a process that can be killed: asks for the weather of places with an odd number, and of no others.

    python -m tests.integration.model_stand_in [--port N] [--seconds S]

So rewards differ by row and are known before: 1 for an odd number, 0 for an even one. Prints its port.
"""

import argparse
import http.server
import json
import re
import time
from typing import Any

_PLACE = re.compile(r"place number (\d+)")


def truth(place: int) -> float:
    """The reward of the row about this place."""
    return float(place % 2)


def row(place: int) -> dict[str, Any]:
    """A row of the single-tool example about this place."""
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
    said = [{"role": "user", "content": f"What is the weather in place number {place}?"}]
    return {"task_id": f"place-{place}", "responses_create_params": {"input": said, "tools": [tool]}}


class _StandIn(http.server.BaseHTTPRequestHandler):
    seconds = 0.0

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        time.sleep(self.seconds)
        place = int(_PLACE.search(json.dumps(asked["input"]))[1])  # type: ignore[index]
        if truth(place) and asked["input"][-1].get("type") != "function_call_output":
            item = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": json.dumps({"city": str(place)})}
        else:
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Cold.", "annotations": []}]}
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        body = json.dumps({"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="how long each answer takes")
    options = parser.parse_args()
    _StandIn.seconds = options.seconds
    server = _Server(("127.0.0.1", options.port), _StandIn)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
