"""The door of a listener: its sockets, and when it takes nobody in.

Connections are accepted here and not by the event loop's own server, since that cannot wait: Kafka leaves new
connections in the backlog of the socket while the broker has its `max.connections` (SocketServer's ConnectionQuotas),
and a process without a free file descriptor has to do the same. Whoever waits is let in when a connection ends.

Some descriptors are kept back. A log that cannot open its next segment refuses writes, so a crowd of connections must
not take the last descriptors. Systems give the lowest free number to what is opened next, and so the number of a fresh
descriptor tells how many are in use.
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

AT_ONCE: Final = 64
"""Connections that are accepted before others are served again."""
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
        """`take` gets each connection and its peer's address. `full` says why nobody can be let in, None when one can.

        `report(kind, text)` hears that somebody has to wait, and why.
        """
        self._take = take
        self._full = full
        self._report = report
        self._sockets: list[socket.socket] = []
        self._accepting = False
        self._notified = False
        self._look_again: asyncio.TimerHandle | None = None

    async def bind(self, host: str | None, port: int) -> int:
        """Take the address, of both families where there is no host; returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                try:
                    sock = socket.socket(family, kind, protocol)
                except OSError:
                    continue  # this machine does not speak that family
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
            sock.listen(backlog)
        self._accepting = True
        self._watch()

    def set_buffers(self, send_bytes: int | None, receive_bytes: int | None) -> None:
        """Sizes of the system's buffers for the connections to come, which have them from the socket that listens."""
        for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            if size is not None:
                for sock in self._sockets:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)

    def resume(self) -> None:
        """A connection has ended, or the limits are others: look whether somebody can be let in."""
        if not self._accepting and self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None
            self._accepting = True
            self._watch()

    def close(self) -> None:
        """Give the addresses back."""
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
        """Somebody waits at the door."""
        for _ in range(AT_ONCE):
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
        if not self._notified:  # once for all who come until one is let in
            self._notified = True
            self._report(kind, f"new connections wait: {why}")
        self._accepting = False
        self._unwatch()
        self._look_again = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self.resume)


def _no_descriptor(sock: socket.socket) -> str | None:
    """Why no descriptor can be spent on a connection; None when one can. Raises OSError when there is none at all."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return None
    fresh = os.dup(sock.fileno())
    os.close(fresh)
    most = limit - min(MOST_KEPT_BACK, limit // KEPT_BACK_SHARE)
    if fresh < most:
        return None
    return f"{fresh} of {limit} file descriptors are in use, and the rest is kept for logs (ulimit -n, LimitNOFILE)"
