"""HTTP server of an application's pages: its metrics for Prometheus, and its topology for a console (`document.py`)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from odradek.streams.topology_view.document import PATH

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client import CollectorRegistry


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request: one that waits for its client does not delay the others."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Logs no request."""

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def serve_pages(registry: CollectorRegistry, document: Callable[[], str | None], host: str, port: int) -> Iterator[int]:
    """Serve the metrics of a registry, and the document at /topology, until the end of the block, in threads of its
    own. Yields the port; 0 selects a free one.

    `document` returns None as long as there is no document. Raises OSError where the address is not available.
    """
    metrics = make_wsgi_app(registry)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            page: Iterable[bytes] = metrics(environ, start_response)
            return page
        text = document()
        if text is None:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"The topology is not known yet.\n"]
        start_response("200 OK", [("Content-Type", "application/json")])
        return [text.encode()]

    server = make_server(host, port, answer, _Server6 if ":" in host else _Server, _Handler)
    thread = threading.Thread(target=server.serve_forever, name="pages", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
