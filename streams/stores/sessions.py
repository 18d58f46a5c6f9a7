"""Session stores: a value for each key and session (Kafka: org.apache.kafka.streams.state.SessionStore).

A row's key is key, end (8 bytes), start (8 bytes), big-endian (SessionKeySchema); a session's end decides its expiry.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.records import Window, Windowed
from odradek.streams.stores.interface import Rows, SessionStore
from odradek.streams.stores.segments import FOREVER, Span, upper_bound
from odradek.streams.stores.timed import TimedStore

if TYPE_CHECKING:
    from odradek.streams.stores.builders import StoreBuilder

_END_START: Final = struct.Struct(">qq")
_pack: Final = _END_START.pack
_times: Final = _END_START.unpack_from


def session_end(row: bytes) -> int:
    """The end of a row's session, in ms."""
    end: int = _times(row, len(row) - 16)[0]
    return end


def _place(row: bytes) -> tuple[int, bytes, int]:
    """In memory: by end, then by key, then the latest start first."""
    end, start = _times(row, len(row) - 16)
    return end, row[:-16], -start


class SegmentedSessionStore(TimedStore, SessionStore):
    """A session store of any kind."""

    def __init__(self, spec: StoreBuilder) -> None:
        super().__init__(spec)
        self.at = session_end
        self.order = _place
        self.order_is_own = not spec.persistent

    def windowed(self, row: bytes, key: Any = None) -> Windowed:
        end, start = _times(row, len(row) - 16)
        return Windowed(self._key_serde.deserialize(row[:-16]) if key is None else key, Window(start, end))

    def _row(self, session: Windowed) -> bytes:
        return self._bytes(session.key) + _pack(session.window.end, session.window.start)

    def put(self, session: Windowed, value: Any) -> None:
        self._put(self._row(session), value)

    def remove(self, session: Windowed) -> None:
        row = self._row(session)
        if self._cache is not None:
            self._put(row, None)
            return
        if self.persistent:  # in memory, Java's removal does not advance the stream time
            self._live().observe(session.window.end)
        self._live().remove(session.window.end, row)
        self._log(row, None, None)

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        return self._get(end, self._bytes(key) + _pack(end, start))

    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Rows:
        return self._find_one(key, earliest_end, latest_start, reverse=False)

    def backward_find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> Rows:
        return self._find_one(key, earliest_end, latest_start, reverse=True)

    def _find_one(self, key: Any, earliest_end: int, latest_start: int, reverse: bool) -> Rows:
        raw_key = self._bytes(key)
        size = len(raw_key) + 16  # rows of longer keys may lie between
        earliest_end = max(earliest_end, 0)

        def wanted(row: bytes) -> bool:
            return len(row) == size and row.startswith(raw_key) and _times(row, size - 16)[1] <= latest_start

        low, high = raw_key + _pack(earliest_end, 0), raw_key + _pack(FOREVER, FOREVER)
        return self._windowed_rows(self._one_key(Span(low, high, earliest_end, FOREVER, wanted), reverse))

    def find_sessions_range(self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int) -> Rows:
        return self._windowed_rows(self._find(key_from, key_to, earliest_end, latest_start, reverse=False))

    def backward_find_sessions_range(self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int) -> Rows:
        return self._windowed_rows(self._find(key_from, key_to, earliest_end, latest_start, reverse=True))

    def _find(
        self, key_from: Any, key_to: Any, earliest_end: int, latest_start: int, reverse: bool
    ) -> Iterator[tuple[bytes, Any]]:
        self._live()
        low, last = self._bound(key_from), self._bound(key_to)
        if low is not None and last is not None and low > last:
            return iter(())

        def wanted(row: bytes) -> bool:
            key = row[:-16]
            if (low is not None and key < low) or (last is not None and key > last):
                return False
            end, start = _times(row, len(row) - 16)
            return bool(end >= earliest_end and start <= latest_start)

        high = None if last is None else upper_bound(last, 16)
        return self._many_keys(Span(low, high, max(earliest_end, 0), FOREVER, wanted), reverse)

    def fetch(self, key: Any) -> Rows:
        return self.find_sessions(key, 0, FOREVER)

    def backward_fetch(self, key: Any) -> Rows:
        return self.backward_find_sessions(key, 0, FOREVER)

    def fetch_range(self, key_from: Any, key_to: Any) -> Rows:
        return self.find_sessions_range(key_from, key_to, 0, FOREVER)

    def backward_fetch_range(self, key_from: Any, key_to: Any) -> Rows:
        return self.backward_find_sessions_range(key_from, key_to, 0, FOREVER)
