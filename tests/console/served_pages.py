"""A server with given pages, in place of that of a stream application."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def served(pages: Mapping[str, bytes | str]) -> Iterator[str]:
    """A server with these pages; the value of one that begins with `->` is an address to which it redirects."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = pages.get(self.path)
            if content is None:
                self.send_error(404)
                return
            if isinstance(content, str) and content.startswith("->"):
                self.send_response(302)
                self.send_header("Location", content[2:])
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(content.encode() if isinstance(content, str) else content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
