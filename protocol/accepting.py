"""Accepts connections for a listener, and leaves them in the backlog at a limit (Kafka: SocketServer's Acceptor).

This module accepts connections in place of the event loop's own server, which cannot leave them waiting: Kafka leaves
new connections in the backlog of the socket while the broker has its `max.connections` (SocketServer's
ConnectionQuotas), and a process without a free file descriptor has to do the same. A waiting connection is accepted
when another one ends.

Some descriptors are kept back. A log that cannot open its next segment rejects writes, so a crowd of connections must
not take the last descriptors. Operating systems assign the lowest free number to the next descriptor, and so the number
of a fresh descriptor shows how many are in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections.abc import Callable
from typing import Any, Final

AT_ONCE: Final = 16
"""The default of `Acceptor.at_once`."""
KEPT_BACK_SHARE: Final = 8
MOST_KEPT_BACK: Final = 512
LOOK_AGAIN_S: Final = 0.25
TRY_AGAIN: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ECONNABORTED})
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """The listening sockets of one listener."""

    def __init__(
        self,
        take: Callable[[socket.socket, Any], None],
        full: Callable[[], str | None],
        report: Callable[[str, str], None],
    ) -> None:
        """`take` gets each connection and its peer's address. `full` returns why none can be accepted, else None.

        `report(kind, text)` is called when a connection has to wait, with the reason.
        """
        self._take = take
        self._full = full
        self._report = report
        self._sockets: list[socket.socket] = []
        self._accepting = False
        self._notified = False
        self._look_again: asyncio.TimerHandle | None = None
        self.at_once = AT_ONCE
        """How many connections are accepted before others are served again."""

    async def bind(self, host: str | None, port: int) -> int:
        """Bind the address, of both families where there is no host; returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                try:
                    sock = socket.socket(family, kind, protocol)
                except OSError:
                    continue  # this machine does not support that family
                self._sockets.append(sock)
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    sock.bind((address[0], port, *address[2:]) if len(address) > 2 else (address[0], port))
                except OSError as error:
                    if error.errno == errno.EADDRNOTAVAIL and len(found) > 1 and sock is not self._sockets[0]:
                        self._sockets.pop().close()
                        continue
                    raise OSError(error.errno, f"cannot listen at {address[:2]}: {error.strerror}") from None
                port = port or sock.getsockname()[1]
        except OSError:
            self.close()
            raise
        if not self._sockets:
            raise OSError(errno.EADDRNOTAVAIL, f"no address of {host!r} can be listened at")
        return int(self._sockets[0].getsockname()[1])

    def start(self, backlog: int) -> None:
        """Listen, and accept. Raises OSError when another process listens at the address."""
        for sock in self._sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # connections inherit it, as Kafka's have it
            sock.listen(backlog)
        self._accepting = True
        self._watch()

    def set_buffers(self, send_bytes: int | None, receive_bytes: int | None) -> None:
        """Set the sizes of the system's buffers for new connections, which inherit them from the listening socket."""
        for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            if size is not None:
                for sock in self._sockets:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)

    def resume(self) -> None:
        """Accept again if possible: a connection has ended, or the limits have changed."""
        if not self._accepting and self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None
            self._accepting = True
            self._watch()

    def close(self) -> None:
        """Release the addresses."""
        if self._accepting:
            self._accepting = False
            self._unwatch()
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.add_reader(sock, self._accept, sock)

    def _unwatch(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            loop.remove_reader(sock)

    def _accept(self, sock: socket.socket) -> None:
        """Accept from a socket that has connections in its backlog."""
        for _ in range(self.at_once):
            try:
                full = self._full()
                if full is not None:
                    self._wait("connection limit", full)
                    return
                if no_descriptor := _no_descriptor(sock):
                    self._wait("file descriptors", no_descriptor)
                    return
                taken, peer = sock.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._wait("file descriptors", str(error))
                elif error.errno not in TRY_AGAIN:
                    self._report("accept", f"a connection could not be accepted: {error}")
                return
            taken.setblocking(False)
            with contextlib.suppress(OSError):
                taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._notified = False
            self._take(taken, peer)

    def _wait(self, kind: str, why: str) -> None:
        if not self._notified:  # one report until the next connection is accepted
            self._notified = True
            self._report(kind, f"new connections wait: {why}")
        self._accepting = False
        self._unwatch()
        self._look_again = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self.resume)


def _no_descriptor(sock: socket.socket) -> str | None:
    """The reason why no descriptor can be used for a connection, else None. Raises OSError when none is free at all."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return None
    fresh = os.dup(sock.fileno())
    os.close(fresh)
    most = limit - min(MOST_KEPT_BACK, limit // KEPT_BACK_SHARE)
    if fresh < most:
        return None
    return f"{fresh} of {limit} file descriptors are in use, and the rest is kept for logs (ulimit -n, LimitNOFILE)"
