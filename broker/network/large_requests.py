"""Large requests: bounds the time and the memory that one request takes (Kafka: KafkaRequestHandler, RequestChannel).

A request whose decoded form takes more than AT_ONCE_BYTES is decoded, handled and encoded in turns with the event loop
(`runtime.turns`). Until then its connection is muted, as Kafka mutes a connection for every request: the requests
behind it wait. The same holds for a request of more than SMALL_FRAME_BYTES that arrives when the loop has handled such
requests for BUSY_NS in one iteration. So the requests of many clients together delay the small requests of others no
longer than a large one does.

A request whose decoded form would take more than DECODED_BYTES is rejected: the connection is closed, because the
client has sent what no response could answer in bounded memory. The decoded size counts against
`queued.max.request.bytes` until the request is handled.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterable
from mmap import mmap
from typing import TYPE_CHECKING, Any, Final, TypeVar

from odradek.broker.runtime.freeing import Kept
from odradek.broker.runtime.turns import SlicedList, Turns, busy_clock, each, in_turn, keep
from odradek.broker.runtime.usage import Usage, measured
from odradek.protocol.decoding import ELEMENT_BYTES
from odradek.protocol.errors import ProtocolError
from odradek.protocol.primitives import Bytes
from odradek.protocol.receive import LARGE_REQUEST_BYTES

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

T = TypeVar("T")
log = logging.getLogger(__name__)

SMALL_FRAME_BYTES: Final = 1024
"""Smaller requests cannot contain enough items to hold the loop for long."""
AT_ONCE_BYTES: Final = 64 * 1024
"""The decoded size of a request that is handled at once: about 400 items."""
DECODED_BYTES: Final = 64 * 1024 * 1024
"""The decoded size of the largest request: about 400,000 items."""
NUMBERS_AT_ONCE: Final = 16 * 1024
BUSY_NS: Final = 10_000_000
"""How long the loop handles requests that are not small in one iteration, before it serves other connections."""
WATCH_NS: Final = 1_000_000
"""How often the end of an iteration is watched: a callback for each iteration would cost a microsecond a request."""


class LargeRequestError(Exception):
    """The decoded request takes more memory than its limit."""


class AtOnce:
    """The meter of a request that may be small enough to be handled at once."""

    __slots__ = ("at_once",)

    def __init__(self) -> None:
        self.at_once = AT_ONCE_BYTES

    def begin(self, message: Any, copied: int) -> None:
        """Raises LargeRequestError if the copy takes more than the limit."""
        if copied > self.at_once:
            raise LargeRequestError

    def source(self, buffer: Bytes, pos: int) -> tuple[Bytes, int]:
        """A copy, and the same position."""
        return bytes(buffer), pos

    def charge(self, size: int) -> None:
        """Raises LargeRequestError beyond the limit."""
        self.at_once -= size
        if self.at_once < 0:
            raise LargeRequestError

    def each(self, items: Iterable[T]) -> Iterable[T]:
        """The items."""
        return items

    def array(self) -> list[Any]:
        """A list."""
        return []

    def partitions(self, count: int) -> None:
        """Do nothing: some thousand of them are handled at once."""

    def numbers(self, format_: str, count: int, buffer: Bytes, pos: int) -> list[Any]:
        """The numbers. Raises struct.error."""
        return list(struct.unpack_from(f">{count}{format_}", buffer, pos))


class Metered:
    """The meter of a request that is decoded in a turn."""

    __slots__ = ("_held", "_hold", "_left")

    at_once = 0

    def __init__(self, hold: Callable[[int], None]) -> None:
        """`hold` counts bytes that are held in memory for all connections."""
        self._left = DECODED_BYTES
        self._held = 0
        self._hold = hold

    def hold(self, size: int) -> None:
        """Count bytes until `release`."""
        self._held += size
        self._hold(size)

    def release(self) -> None:
        """Release the held bytes."""
        held, self._held = self._held, 0
        self._hold(-held)

    def begin(self, message: Any, copied: int) -> None:
        """Free the message in parts later, also if it cannot be decoded to its end."""
        keep(message)

    def source(self, buffer: Bytes, pos: int) -> tuple[Any, int]:
        """The memory of a request that has its own (`NetworkReceive`), otherwise the bytes or a copy."""
        memory = buffer.obj if isinstance(buffer, memoryview) else buffer
        if isinstance(memory, mmap):
            return memory, pos + len(memory) - len(buffer)
        return bytes(buffer), pos

    def charge(self, size: int) -> None:
        """Raises LargeRequestError beyond the limit."""
        self._left -= size
        if self._left < 0:
            raise LargeRequestError
        self.hold(size)

    def each(self, items: Iterable[T]) -> Iterable[T]:
        """The items, with interruptions."""
        return each(items)

    def array(self) -> list[Any]:
        """A list whose iteration can be interrupted."""
        return SlicedList()

    def partitions(self, count: int) -> None:
        """Raises LargeRequestError beyond the limit."""
        self.charge(count * ELEMENT_BYTES)

    def numbers(self, format_: str, count: int, buffer: Bytes, pos: int) -> list[Any]:
        """The numbers, read in parts. Raises struct.error."""
        numbers, width = SlicedList(), struct.calcsize(">" + format_)
        for first in each(range(0, count, NUMBERS_AT_ONCE)):
            part = min(NUMBERS_AT_ONCE, count - first)
            numbers.extend(struct.unpack_from(f">{part}{format_}", buffer, pos + first * width))
        return numbers


class LargeRequests:
    """The large requests of one broker."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is a clock that never runs backwards."""
        self._now_ns = now_ns
        self._turns = Turns(now_ns)
        self._begun_ns = 0  # a time in the iteration of the loop whose end is watched
        self._is_watching = False
        self._busy_ns = busy_clock(now_ns)
        self.sliced = 0
        """Requests that were handled in turns."""
        self.rejected = 0
        """Requests whose decoded form was too large."""

    @property
    def interruptions(self) -> int:
        """How often a request was interrupted."""
        return self._turns.interruptions

    def close(self) -> None:
        """Drop the requests that are not handled yet."""
        self._turns.close()

    def meter(self, now_ns: int) -> AtOnce:
        """The meter of a request that is not small. Raises LargeRequestError if the request has to wait for others,
        however few items it has.
        """
        if self._has_to_wait(now_ns):
            raise LargeRequestError
        return AtOnce()

    def _has_to_wait(self, now_ns: int) -> bool:
        """Whether the loop has handled such requests for long enough in this iteration."""
        elapsed_ns = now_ns - self._begun_ns
        if self._is_watching:
            return elapsed_ns > BUSY_NS
        if elapsed_ns > WATCH_NS:
            self._begun_ns = now_ns
            self._is_watching = True
            asyncio.get_running_loop().call_soon(self._end_iteration)
        return False

    def _end_iteration(self) -> None:
        self._is_watching = False

    def run_fairly(self, work: Callable[[], None]) -> None:
        """Run work for a request that is not small: now, or in turns; it has to catch its exceptions."""
        if self._has_to_wait(self._now_ns()):
            self._turns.run(work)
        else:
            work()

    def run(self, work: Callable[[], None], kept: Kept | None = None, /) -> None:
        """Run work in turns, for a request or another part of the broker; it has to catch its exceptions."""
        self._turns.run(work, kept)

    def take(self, call: Call, frame: memoryview, body: int) -> None:
        """Handle a request in turns; `frame` is valid only during this call, and its body begins at byte `body`."""
        self.sliced += 1
        connection = call.connection
        own: Bytes = frame
        copied = len(frame) <= LARGE_REQUEST_BYTES  # a larger one is in a buffer of its own
        if copied:
            own = bytes(frame)
        hold = connection.set_muted(muted=True)
        connection.expect(call)
        meter = Metered(hold)
        meter.hold(len(own) if copied else 0)
        self._turns.run(lambda: self._handle(call, own, body, meter))

    def reply(self, call: Call, response: Any) -> None:
        """Encode and send the response of a large request; on the loop, this begins a turn of its own."""
        if in_turn():
            self._encode(call, keep(response))
        else:
            self._turns.run(lambda: self._encode(call, keep(response)))

    def handle_in_turns(self, call: Call, request: Any) -> None:
        """Handle a small request that works on many items, and answer it; called by its handler, which returns None."""
        connection, route = call.connection, call.route
        connection.set_muted(muted=True)
        size = 0 if call.usage is None else call.usage.request_bytes

        def handle() -> None:
            try:
                if connection.closed:
                    return
                if route.quotas.is_active:
                    call.usage = Usage(self._busy_ns, self._busy_ns(), size)
                    response = measured(call.usage, route.handle, call, request)
                else:
                    response = route.handle(call, request)
                if response is not None:
                    call.reply(keep(response))
                elif call.usage is not None:
                    call.usage.end_step()
            except Exception:
                log.exception(
                    "request failed api=%s version=%d client_id=%r", route.name, route.version, call.client_id
                )
                connection.close()
            finally:
                connection.set_muted(muted=False)

        self._turns.run(handle)

    def reply_in_turns(self, call: Call, make: Callable[[], Any]) -> None:
        """Make the long response of a small request, and send it, in turns with the loop."""

        def respond() -> None:
            if call.closed:
                return
            try:
                response = keep(make())
            except Exception:
                log.exception(
                    "request failed api=%s version=%d client_id=%r", call.api_name, call.version, call.client_id
                )
                call.connection.close()
                return
            self._encode(call, response)

        self._turns.run(respond)

    def _handle(self, call: Call, frame: Bytes, body: int, meter: Metered) -> None:
        connection = call.connection
        if isinstance(frame, memoryview) and isinstance(frame.obj, mmap):
            keep(frame.obj)  # before all others: it is freed after the objects that refer to it
        if call.route.quotas.is_active:
            call.usage = Usage(self._busy_ns, self._busy_ns(), len(frame))
        try:
            if not connection.closed:
                self._answer(call, frame, body, meter)
        finally:
            meter.release()
            connection.set_muted(muted=False)

    def _answer(self, call: Call, frame: Bytes, body: int, meter: Metered) -> None:
        connection, route = call.connection, call.route
        try:
            request, _ = route.decode_metered(frame, body, meter)
        except (ProtocolError, struct.error, IndexError) as error:
            text = f"a request {route.name} v{route.version} of {len(frame)} bytes cannot be decoded: {error}"
            connection.refuse("invalid request", text)
            return
        except LargeRequestError:
            self.rejected += 1
            text = f"a request {route.name} v{route.version} of {len(frame)} bytes takes over {DECODED_BYTES} in memory"
            connection.refuse("large request", text)
            return
        try:
            if call.usage is None:
                response = route.handle(call, request)
            else:
                response = measured(call.usage, route.handle, call, request)
            if response is not None:
                self._encode(call, keep(response))
            elif call.no_reply:
                call.complete()
                route.count(call, None, route.now_ns() - call.started_ns)
            else:
                call.local_ns = route.now_ns() - call.started_ns
                if call.usage is not None:
                    call.usage.end_step()
        except Exception:
            log.exception("request failed api=%s version=%d client_id=%r", route.name, route.version, call.client_id)
            connection.close()

    def _encode(self, call: Call, response: Any) -> None:
        connection, route = call.connection, call.route
        if connection.closed:
            return
        try:
            if route.quotas.is_active:
                route.quotas.throttle(call, response)
            parts = route.encode_sliced(call.correlation_id, response, each)
            if route.quotas.is_active:
                route.quotas.throttle(call, response)  # again, for the time that the encoding took
        except Exception:
            log.exception("cannot encode response api=%s version=%d", route.name, route.version)
            connection.close()
            return
        connection.answer(call, parts)
        route.count_sliced(call, response, route.now_ns() - call.started_ns, each)
