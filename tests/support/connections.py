"""Connections of tests: opens them, and closes at the end of a test those that the test left open.

Without it the garbage collector closes the client of a test that fails or that has no reason to close it. The
ResourceWarning of the collector then fails another test: the one that runs at that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextvars import ContextVar

_opened: ContextVar[list[asyncio.StreamWriter] | None] = ContextVar("opened", default=None)


async def open_connection(
    host: str, port: int, *, limit: int = 1 << 16
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection, which the surrounding `closing_connections` closes if the caller does not.

    `limit`: bytes that the reader buffers, as in `asyncio.open_connection`.
    """
    reader, writer = await asyncio.open_connection(host, port, limit=limit)
    opened = _opened.get()
    if opened is not None:
        opened.append(writer)
    return reader, writer


@contextlib.asynccontextmanager
async def closing_connections() -> AsyncIterator[None]:
    """Close the connections that the block opens; data not sent yet is lost. Each asynchronous test is such a block."""
    outer = _opened.get()
    opened: list[asyncio.StreamWriter] = []
    _opened.set(opened)
    try:
        yield
    finally:
        _opened.set(outer)
        for writer in opened:
            writer.transport.abort()
        for writer in opened:
            with contextlib.suppress(OSError):
                await writer.wait_closed()
