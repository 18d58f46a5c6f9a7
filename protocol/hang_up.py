"""Hang-up watch: notices that a client has closed its connection while the connection is not read.

An event loop finds the end of a connection by reading it, but a connection that waits for a response to a large request
is not read. The watch has an epoll instance of its own for the sockets of such connections, which reports nothing but
the end (EPOLLRDHUP); the loop watches this instance. Where the system has no epoll, the watch does nothing, and the end
is noticed when the connection is read again.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable
from typing import Any, Protocol

RESET = getattr(select, "EPOLLHUP", 0) | getattr(select, "EPOLLERR", 0)


class ReaderLoop(Protocol):
    """The part of an event loop that the watch uses."""

    def add_reader(self, fd: int, callback: Callable[[], Any], /) -> Any: ...

    def remove_reader(self, fd: int, /) -> Any: ...


class HangUpWatch:
    """The sockets of connections that are not read."""

    __slots__ = ("_callbacks", "_epoll", "_loop")

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[bool], None]] = {}
        self._epoll: Any = None
        self._loop: ReaderLoop | None = None

    def __len__(self) -> int:
        return len(self._callbacks)

    def start(self, loop: ReaderLoop, descriptor: int, callback: Callable[[bool], None]) -> None:
        """Call `callback` once when the peer of this socket closes; its argument is whether nothing can be sent either.

        Raises OSError.
        """
        if not hasattr(select, "epoll"):
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop = loop
            loop.add_reader(self._epoll.fileno(), self._check)
        self._epoll.register(descriptor, select.EPOLLRDHUP)
        self._callbacks[descriptor] = callback

    def stop(self, descriptor: int) -> None:
        """Watch this socket no more; call it before the socket is closed. Does nothing for others."""
        if self._callbacks.pop(descriptor, None) is not None and self._epoll is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Watch no socket; `start` may follow."""
        self._callbacks.clear()
        if self._epoll is not None and self._loop is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = self._loop = None

    def _check(self) -> None:
        for descriptor, events in self._epoll.poll(0):
            callback = self._callbacks.get(descriptor)
            self.stop(descriptor)
            if callback is not None:
                callback(bool(events & RESET))


class ConnectionEnd:
    """The watch of one connection."""

    __slots__ = ("_descriptor", "_watch")

    def __init__(self, watch: HangUpWatch) -> None:
        self._watch = watch
        self._descriptor = -1

    def start(
        self, loop: ReaderLoop, sock: socket.socket, closed: Callable[[], None], reset: Callable[[], None]
    ) -> None:
        """Call `closed` when the peer has closed the connection, or `reset` when nothing can be sent either.

        Raises OSError.
        """

        def ended(is_reset: bool) -> None:
            self._descriptor = -1
            (reset if is_reset else closed)()

        descriptor = sock.fileno()
        if descriptor >= 0:
            self._watch.start(loop, descriptor, ended)
            self._descriptor = descriptor

    def stop(self) -> None:
        """Watch no more; before the socket is closed."""
        if self._descriptor >= 0:
            self._watch.stop(self._descriptor)
            self._descriptor = -1
