"""Cluster control: `odradek cluster restart` and `kill` send requests to the `odradek cluster up` of the brokers.

The connection is a Unix socket, with a line in each direction:

    restart 2
    {"ok": "broker 2 at 127.0.0.1:9093, process 4711, data in DIR/2"}
    {"error": "there is no broker 7; there are 1, 2, 3"}

The socket is in a separate folder that only its user can open, since the path of a socket may be no longer than 107
bytes; the file DIR/control contains its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

CONTROL_FILE: Final = "control"
_REQUEST_BYTES: Final = 256
Action = Callable[[int], Awaitable[str]]


class ControlError(Exception):
    """The request was rejected, or no process serves it; the message contains the reason."""


class ControlServer:
    """Serves the requests, in the process that owns the brokers."""

    def __init__(self, folder: Path, actions: Mapping[str, Action]) -> None:
        """An action, by its word, gets a broker id and returns a line; the text of its errors is a response, too."""
        self._file = folder / CONTROL_FILE
        self._actions = actions
        self._socket_folder: str | None = None
        self._server: asyncio.Server | None = None
        self._requests: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Accept requests from now on. Raises OSError."""
        self._socket_folder = tempfile.mkdtemp(prefix="odradek-")
        path = f"{self._socket_folder}/{CONTROL_FILE}"
        self._server = await asyncio.start_unix_server(self._serve, path, limit=_REQUEST_BYTES)
        self._file.write_text(path)

    async def close(self) -> None:
        """Accept no more requests, and end those in progress without a response."""
        if self._server is not None:
            self._server.close()
            self._file.unlink(missing_ok=True)
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = asyncio.current_task()
        assert request is not None
        self._requests.add(request)
        try:
            await self._serve_request(reader, writer)
        finally:
            self._requests.discard(request)
            writer.close()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            word, _, broker_id = (await reader.readline()).decode("ascii", "replace").strip().partition(" ")
            answer = await self._answer(word, broker_id)
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()

    async def _answer(self, word: str, broker_id: str) -> dict[str, str]:
        action = self._actions.get(word)
        if action is None or not broker_id.isdecimal():
            return {"error": f"unknown request {word} {broker_id}"}
        try:
            return {"ok": await action(int(broker_id))}
        except Exception as error:
            return {"error": str(error)}


def ask_cluster(folder: Path, action: str, broker_id: int) -> str:
    """Request an action on a broker from the `cluster up` over `folder`; returns its line. Raises ControlError."""
    try:
        path = (folder / CONTROL_FILE).read_text()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(f"{action} {broker_id}\n".encode())
            answer = connection.makefile("rb").readline()
    except (FileNotFoundError, ConnectionRefusedError):
        raise ControlError(
            f"no cluster runs in {folder}; name the folder of its `odradek cluster up` with --data"
        ) from None
    except OSError as error:
        raise ControlError(f"cannot reach the cluster in {folder}: {error.strerror or error}") from error
    if not answer:
        raise ControlError(f"the cluster in {folder} has ended before it answered")
    found = json.loads(answer)
    if "ok" not in found:
        raise ControlError(str(found["error"]))
    return str(found["ok"])
