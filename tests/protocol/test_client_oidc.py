"""Tokens of an OpenID provider for connections to brokers: kept for most of their lifetime, then requested again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from odradek.protocol.client import oidc
from odradek.protocol.client.oidc import token_source

NOW_S = 1_000_000.0


class Provider:
    """A token endpoint that numbers its tokens."""

    def __init__(self, response: dict[str, Any] | None) -> None:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.requests.append((self.headers["Authorization"], form))
                answer = response if response is None else {"access_token": f"t{len(provider.requests)}", **response}
                body = b"no JSON" if answer is None else json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self.requests: list[tuple[str, str]] = []
        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def properties(self) -> dict[str, Any]:
        return {
            oidc.METHOD: "oidc",
            oidc.ENDPOINT: f"http://127.0.0.1:{self._server.server_port}/token",
            oidc.CLIENT_ID: "me",
            oidc.CLIENT_SECRET: "hidden",
            oidc.SCOPE: "kafka",
            oidc.EXTENSIONS: "logicalCluster=lkc-1, pool=2",
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider({"expires_in": 100})
    yield made
    made.close()


def test_a_token_is_kept_for_most_of_its_lifetime(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    source = token_source(provider.properties())
    assert source is not None
    extensions = {"logicalCluster": "lkc-1", "pool": "2"}
    for after_s, token, expires_s in ((0, "t1", 100), (79, "t1", 100), (80, "t2", 180), (159, "t2", 180)):
        monkeypatch.setattr("time.time", lambda after_s=after_s: NOW_S + after_s)
        assert source("") == (token, NOW_S + expires_s, "", extensions)
    assert provider.requests == [("Basic bWU6aGlkZGVu", "grant_type=client_credentials&scope=kafka")] * 2


@pytest.mark.parametrize(("response", "reason"), [(None, "is not JSON"), ({"access_token": None}, "no access_token")])
def test_a_response_without_a_token_is_an_error(response: dict[str, Any] | None, reason: str) -> None:
    provider = Provider(response)
    try:
        source = token_source(provider.properties())
        assert source is not None
        with pytest.raises(ConnectionError, match=reason):
            source("")
    finally:
        provider.close()


def test_the_method_by_default_is_a_function_of_the_application() -> None:
    assert token_source({}) is None
    assert token_source({oidc.METHOD: "default"}) is None
