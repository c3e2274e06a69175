"""A stand-in for an OpenAI-compatible endpoint, for pages that want a model of the reader's own: it says "done" to everything."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MESSAGE = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
_TEXT = {"type": "output_text", "text": "done", "annotations": []}
_RESPONSE: dict[str, Any] = {"id": "r", "object": "response", "status": "completed", "output": [{**_MESSAGE, "content": [_TEXT]}]}
_CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}
_COMPLETION: dict[str, Any] = {"id": "c", "object": "chat.completion", "created": 0, "model": "my-model", "choices": [_CHOICE]}
_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "my-model", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer({**_COMPLETION, "usage": _USAGE} if self.path.endswith("/chat/completions") else _RESPONSE)

    def _answer(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def endpoint() -> Iterator[str]:
    """Its base URL, for `policy_base_url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
