"""An HTTP server in a thread of the test: pages with a cursor, a document with an ETag, and what clients post."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class State:
    """What the server serves, and what it has received."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        """The items of /pages."""
        self.page_items = 3
        self.document, self.etag = b"", '"0"'
        """Those of /document."""
        self.statuses: list[int] = []
        """The statuses of the next requests, before the server serves again."""
        self.rejects: Any = lambda element: False
        """Which elements of a batch get status 422."""
        self.posts: list[tuple[str, list[Any]]] = []
        """Idempotency-Key and elements of each accepted batch."""
        self.requests: list[str] = []
        self.url = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def do_GET(self) -> None:
        state, parts = self.state, urlsplit(self.path)
        state.requests.append(self.path)
        if self._fails():
            return
        if parts.path == "/document":
            known = self.headers["If-None-Match"]
            self._answer(304 if known == state.etag else 200, b"" if known == state.etag else state.document)
            return
        start = int(parse_qs(parts.query).get("after", ["0"])[0])
        end = start + state.page_items
        page: dict[str, Any] = {"items": state.items[start:end]}
        if end <= len(state.items):
            page["next"] = str(end)
        self._answer(200, json.dumps(page).encode())

    def do_POST(self) -> None:
        elements = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._fails():
            return
        if any(map(self.state.rejects, elements)):
            self._answer(422, b"wrong")
            return
        self.state.posts.append((self.headers["Idempotency-Key"], elements))
        self._answer(200, b"")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing to stderr."""

    def _fails(self) -> bool:
        status = self.state.statuses.pop(0) if self.state.statuses else 200
        if status != 200:
            self._answer(status, b"not now")
        return status != 200

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", self.state.etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[State]:
    """A server at `State.url`."""
    state = State()
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
