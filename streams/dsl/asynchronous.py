"""Asynchronous operators of a stream: functions that await other systems, many at a time.

Kafka Streams has none (see operators/asynchronous.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from odradek.streams.dsl.stream_base import K, StreamBase, V
from odradek.streams.errors import ArgumentError
from odradek.streams.functions import place_of_call
from odradek.streams.windows import Duration, to_ms

if TYPE_CHECKING:
    from odradek.streams.dsl.kstream import KStream
    from odradek.streams.operators.asynchronous import MapAsync

K2 = TypeVar("K2")
V2 = TypeVar("V2")

CONCURRENCY: Final = 100
TIMEOUT: Final = timedelta(seconds=5)


class AsynchronousOperators(StreamBase[K, V]):
    """The operators of KStream whose functions are coroutine functions."""

    @overload
    def map_async(
        self,
        mapper: Callable[[V], Awaitable[tuple[K2, V2]]],
        *,
        concurrency: int = CONCURRENCY,
        timeout: Duration = TIMEOUT,
        name: str | None = None,
    ) -> KStream[K2, V2]: ...

    @overload
    def map_async(
        self,
        mapper: Callable[[K, V], Awaitable[tuple[K2, V2]]],
        *,
        concurrency: int = CONCURRENCY,
        timeout: Duration = TIMEOUT,
        name: str | None = None,
    ) -> KStream[K2, V2]: ...

    def map_async(
        self,
        mapper: Callable[..., Awaitable[tuple[K2, V2]]],
        *,
        concurrency: int = CONCURRENCY,
        timeout: Duration = TIMEOUT,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Map each record by a coroutine function of (value) or of (key, value), which returns the new key and value.

        Up to `concurrency` records of each task are in progress at a time, on the event loop of the process; results
        are forwarded in the order of the input. A commit covers only records whose results were forwarded. An exception
        of the function, and a call that takes longer than `timeout` (ms or a timedelta), go to
        `processing.exception.handler`. Calls in progress are canceled when their task closes without a commit, and made
        again by the next owner of the task: what a function does in other systems may happen twice.

        Raises ArgumentError for a concurrency or a timeout below 1. Kafka Streams has no such operator; see KIP-408.
        """
        from odradek.streams.operators.asynchronous import MapAsync

        return self._stream(self._awaiting(MapAsync, mapper, concurrency, timeout, name), None, None, True)

    @overload
    def map_values_async(
        self,
        mapper: Callable[[V], Awaitable[V2]],
        *,
        concurrency: int = CONCURRENCY,
        timeout: Duration = TIMEOUT,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def map_values_async(
        self,
        mapper: Callable[[K, V], Awaitable[V2]],
        *,
        concurrency: int = CONCURRENCY,
        timeout: Duration = TIMEOUT,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    def map_values_async(
        self,
        mapper: Callable[..., Awaitable[V2]],
        *,
        concurrency: int = CONCURRENCY,
        timeout: Duration = TIMEOUT,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Map the value of each record by a coroutine function of (value) or of (key, value); the key stays. See
        `map_async`.
        """
        from odradek.streams.operators.asynchronous import MapValuesAsync

        return self._stream(self._awaiting(MapValuesAsync, mapper, concurrency, timeout, name), self.key, None)

    def _awaiting(
        self, kind: type[MapAsync], mapper: Callable[..., Any], concurrency: int, timeout: Duration, name: str | None
    ) -> str:
        """Add an operator of this kind. Returns its name."""
        timeout_ms = to_ms(timeout, "timeout")
        if concurrency < 1 or timeout_ms < 1:
            raise ArgumentError(
                f"concurrency={concurrency!r} and timeout={timeout!r} at {place_of_call()}: both have to be 1 or more "
                "(timeout in ms)"
            )
        return self._of_function(name, kind.prefix, kind(mapper, concurrency, timeout_ms), "mapper", awaited=True)
