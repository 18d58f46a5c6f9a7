"""What every request passes and every response has: a check of the host's name, and headers that restrict the browser.

A page of another site cannot reach the console through a name of its own that resolves to 127.0.0.1 (DNS rebinding):
only known names are served. The content security policy allows scripts and styles of the console's own files, and
nothing of a record: an escaped text that would not be escaped still could not run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
)


class Guard:
    """ASGI middleware around the application."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        """`hosts` are the names, without ports, by which browsers may reach the console."""
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS:
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) != 1 or host_of(given[0].decode("latin-1")) not in self._hosts:
            allowed = ", ".join(sorted(self._hosts))
            text = f"The console does not serve this host name; it serves {allowed}. --allowed-host adds a name.\n"
            await PlainTextResponse(text, 421)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def host_of(text: str) -> str:
    """The name in a Host header, without the port, in small letters."""
    if text.startswith("["):
        return text.partition("]")[0].lower() + "]"
    return text.partition(":")[0].lower()
