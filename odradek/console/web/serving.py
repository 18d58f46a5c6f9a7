"""Runs the application in this process until SIGINT or SIGTERM (uvicorn)."""

from __future__ import annotations

import socket

import uvicorn

from odradek.commands.failures import failure_of
from odradek.commands.session import fail
from odradek.console.web.application import application
from odradek.console.web.settings import ConsoleSettings
from odradek.protocol.client.connection import shown
from odradek.protocol.client.errors import SecurityConfigError
from odradek.standard_streams import print_line


def serve(settings: ConsoleSettings) -> None:
    """Listen, print the address, and serve. Raises CommandFailure where the address cannot be used."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=128)
    except OSError as error:
        fail(f"cannot listen on {shown((settings.host, settings.port))}: {error.strerror or error}")
    with listener:
        try:
            app = application(settings)
        except SecurityConfigError as error:
            raise failure_of(error) from error
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=2,
            ws="none",
        )
        address = shown((settings.host, listener.getsockname()[1]))
        mode = "changes allowed" if settings.allow_changes else "read-only"
        print_line(f"odradek console ready: http://{address} for {settings.bootstrap}, {mode}; Ctrl-C stops it")
        uvicorn.Server(config).run(sockets=[listener])
