"""Kazoo handler: kazoo's threads, sockets and results, adapted to an event loop.

Kazoo leaves these to a handler (kazoo.interfaces.IHandler). Kazoo's own handler has a thread for results and another
for watches, which loses the order between them, and it lets a caller block. This handler has one thread, in which kazoo
runs its connection, and delivers all results to the loop as one sequence, in the order in which the connection received
them. So a watch reaches its owner before the response that shows the change, and a lost connection is detected before
any result of the next one.

Two more rules of `Registry` depend on it. After `retire` no connection can be made and none is waited for: kazoo, which
would begin another session once one has expired, cannot. And no call blocks the loop: kazoo wakes its thread with a
byte in a pipe for each request, and a few hundred requests at once would fill a real one (`Doorbell`).

No other code of Odradek runs in kazoo's thread. With TLS the handshake runs there, too.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kazoo.handlers.threading import KazooTimeoutError

_READ_BYTES: Final = 1 << 16
_READABLE: Final = select.POLLIN
_WRITABLE: Final = select.POLLOUT


class Readable(Protocol):
    """A file that the connection waits for."""

    def fileno(self) -> int: ...

    def pending(self) -> int: ...


class Doorbell:
    """Both ends of the pipe that wakes kazoo's thread: `send` adds a wake-up, `recv` takes one.

    The pipe holds one byte at most, however many wake-ups are pending, so `send` never blocks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings = 0
        self._reader, self._writer = socket.socketpair()

    def fileno(self) -> int:
        """Readable while a wake-up is pending."""
        return self._reader.fileno()

    def pending(self) -> int:
        """The number of pending wake-ups."""
        return self._rings

    def send(self, data: bytes) -> int:
        """Add a wake-up. Raises OSError when it is closed."""
        with self._lock:
            if not self._rings:
                self._writer.send(b"\0")
            self._rings += 1
        return len(data)

    def recv(self, size: int) -> bytes:
        """Take one wake-up, if there is one."""
        with self._lock:
            if self._rings == 1:
                self._reader.recv(1)
            self._rings = max(self._rings - 1, 0)
        return b"\0"

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()


class ReadAheadSocket:
    """A connected socket that saves system calls. At each call the thread releases the interpreter, and beside a busy
    loop it waits for milliseconds to get it back. A read takes all that has arrived (kazoo reads a frame in two small
    pieces), and a write waits for room only when there is none.
    """

    def __init__(self, connected: socket.socket, wait_for_room: Callable[[socket.socket], None]) -> None:
        """`wait_for_room` blocks until the socket can be written to. Raises OSError."""
        self._socket = connected
        self._wait_for_room = wait_for_room
        self._buffer = b""
        self._position = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self._socket.setblocking(flag)

    def pending(self) -> int:
        """How many bytes can be read without a system call."""
        return len(self._buffer) - self._position

    def recv(self, size: int) -> bytes:
        """At most `size` bytes; none at the end of the stream. Raises OSError."""
        if not self.pending():
            if size >= _READ_BYTES:
                return self._socket.recv(size)
            self._buffer, self._position = self._socket.recv(_READ_BYTES), 0
        start = self._position
        self._position = min(start + size, len(self._buffer))
        return self._buffer[start : self._position]

    def send(self, data: bytes) -> int:
        """Write some of `data` and return how many bytes. Raises OSError."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            self._wait_for_room(self._socket)
            return self._socket.send(data)

    def close(self) -> None:
        self._socket.close()


class AsyncResult:
    """The result of a request (kazoo.interfaces.IAsyncResult, as far as kazoo uses it without waiting).

    It may be set in any thread; its links are called on the loop.
    """

    __slots__ = ("_deliver", "_links", "_notified", "exception", "value")

    def __init__(self, deliver: Callable[[Callable[[], None]], None]) -> None:
        self._deliver = deliver
        self._links: list[Callable[[AsyncResult], None]] = []
        self._notified = False
        self.value: Any = None
        self.exception: Exception | None = None

    def set(self, value: Any = None) -> None:
        """Set the value of a request that succeeded."""
        self.value = value
        self._deliver(self._call_links)

    def set_exception(self, exception: Exception) -> None:
        """Set the exception of a request that failed."""
        self.exception = exception
        self._deliver(self._call_links)

    def get(self) -> Any:
        """The value; raises the exception instead if there is one. Only for links, after the answer was set."""
        if self.exception is not None:
            raise self.exception
        return self.value

    def rawlink(self, link: Callable[[AsyncResult], None]) -> None:
        """Call `link` with this once it is set. On the loop only."""
        self._links.append(link)
        if self._notified:
            self._call_links()

    def _call_links(self) -> None:
        self._notified = True
        links, self._links = self._links, []
        for link in links:
            link(self)


class LoopHandler:
    """Kazoo's handler for the running loop."""

    name = "event_loop_handler"
    timeout_exception = KazooTimeoutError
    sleep_func = staticmethod(time.sleep)
    running = True

    def __init__(self, connect_timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        """A server that has not accepted a connection after `connect_timeout_s` is skipped for the next one.

        `tls` is the context of connections that are encrypted.
        """
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._inbox: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._retired = False
        self._end_reader, self._end_writer = socket.socketpair()
        self.last_trouble = ""
        """Why the last connection failed, for error messages."""

    def retire(self) -> None:
        """Prevent kazoo from making a connection or waiting for one from now on. From any thread."""
        if not self._retired:
            self._retired = True
            self._end_writer.send(b"\0")

    def close(self) -> None:
        """Close all files, once kazoo has stopped."""
        self._end_reader.close()
        self._end_writer.close()

    # To the loop

    def deliver(self, call: Callable[[], None]) -> None:
        """Run `call` on the loop after all earlier calls; at once if this is the loop's thread."""
        if threading.get_ident() == self._loop_thread:
            call()
            return
        self._inbox.append(call)
        # Without a lock: _drain clears the flag before it reads, so a call is either taken or schedules another drain.
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                return  # the loop is closed, and no caller waits

    def _drain(self) -> None:
        self._scheduled = False
        while self._inbox:
            try:
                self._inbox.popleft()()
            except Exception as error:
                self._loop.call_exception_handler({"message": "a ZooKeeper answer was not handled", "exception": error})

    # Called by kazoo

    def start(self) -> None:
        """There are no worker threads."""

    def stop(self) -> None:
        """There are no worker threads."""

    def dispatch_callback(self, callback: Any) -> None:
        """Deliver a watch that fired."""
        self.deliver(lambda: callback.func(*callback.args))

    def async_result(self) -> AsyncResult:
        return AsyncResult(self.deliver)

    def spawn(self, function: Callable[..., None], *arguments: Any, **options: Any) -> threading.Thread:
        thread = threading.Thread(target=function, args=arguments, kwargs=options, name="zookeeper", daemon=True)
        thread.start()
        return thread

    def event_object(self) -> threading.Event:
        return threading.Event()

    def lock_object(self) -> threading.Lock:
        return threading.Lock()

    def create_socket_pair(self) -> tuple[Doorbell, Doorbell]:
        bell = Doorbell()
        return bell, bell

    def create_connection(self, address: tuple[str, int], hostname: str = "", **_options: Any) -> ReadAheadSocket:
        """Connect to a numeric address, that of `hostname`. Raises OSError, also where the TLS handshake fails."""
        if self._retired:
            raise ConnectionAbortedError("the session has ended")
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect_ex(address)  # SO_ERROR below has the result
            self._wait_for_room(connection)
            failure = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failure:
                raise OSError(failure, os.strerror(failure))
            if self._tls is not None:
                connection = self._shake_hands(self._tls, connection, hostname or address[0])
        except OSError as error:
            self.last_trouble = f"{address[0]}:{address[1]}: {error.strerror or error}"
            connection.close()
            raise
        return ReadAheadSocket(connection, self._wait_for_room)

    def _shake_hands(self, tls: ssl.SSLContext, connection: socket.socket, host: str) -> ssl.SSLSocket:
        encrypted = tls.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False)
        try:
            while True:
                try:
                    encrypted.do_handshake()
                except ssl.SSLWantReadError:
                    self._wait_for(encrypted, _READABLE)
                except ssl.SSLWantWriteError:
                    self._wait_for(encrypted, _WRITABLE)
                else:
                    return encrypted
        except OSError:
            encrypted.close()
            raise

    def select(
        self, readers: Sequence[Readable], writers: Sequence[Any], _exceptional: Sequence[Any], timeout_s: float | None
    ) -> tuple[list[Readable], list[Any], list[Any]]:
        """Wait for one of `readers`, as select(2) does, but for any number of open files; `writers` wait in `send`.

        Raises ConnectionAbortedError once the session is retired.
        """
        if not readers:
            return [], list(writers), []
        if any(reader.pending() for reader in readers):
            timeout_s = 0  # one reader has data, but the others are polled as well
        ready = self._poll({reader.fileno(): select.POLLIN for reader in readers}, timeout_s)
        return [reader for reader in readers if reader.pending() or reader.fileno() in ready], [], []

    def _wait_for_room(self, connection: socket.socket) -> None:
        self._wait_for(connection, _WRITABLE)

    def _wait_for(self, connection: socket.socket, event: int) -> None:
        if not self._poll({connection.fileno(): event}, self._connect_timeout_s):
            raise TimeoutError(f"no answer in {self._connect_timeout_s:g} s")

    def _poll(self, files: dict[int, int], timeout_s: float | None) -> set[int]:
        poller = select.poll()
        for file, events in files.items():
            poller.register(file, events)
        poller.register(self._end_reader.fileno(), select.POLLIN)
        ready = {file for file, _ in poller.poll(None if timeout_s is None else timeout_s * 1000)}
        if self._end_reader.fileno() in ready:
            raise ConnectionAbortedError("the session has ended")
        return ready
