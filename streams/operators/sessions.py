"""Aggregations by sessions (Kafka: KStreamSessionWindowAggregate).

A record is a session of its own, merged with all sessions that it touches: those that end at most the gap before it, or
begin at most the gap after it. The operator removes merged sessions, and forwards their deletions before the new
session. A session's record downstream has the session's end as its timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from odradek.streams.nodes import NodeContext
from odradek.streams.operators.emission import Closed, LateRecords, final_results, without_key
from odradek.streams.operators.table import View, WithoutPast
from odradek.streams.operators.windowed import Aggregator, Get, Initializer, WindowedTable
from odradek.streams.records import NO_TIMESTAMP, Change, Headers, Process, Stamped, Window, Windowed
from odradek.streams.windows import EmitStrategy, SessionWindows

Merger = Callable[[Any, Any, Any], Any]
"""A function of key and two aggregates."""


class SessionView(WithoutPast):
    """The view of the session store for operators downstream, by windowed key."""

    def __init__(self, store: str) -> None:
        self.stores = (store,)

    def get(self, node: NodeContext) -> Get:
        """The lookup function of a session; its timestamp is its end."""
        fetch = node.store(self.stores[0]).fetch_session

        def look_up(windowed: Windowed) -> Stamped | None:
            start, end = windowed.window
            value = fetch(windowed.key, start, end)
            return None if value is None else (value, end)

        return look_up


class SessionAggregate(WindowedTable):
    """count, reduce and aggregate by sessions."""

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: Merger,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> None:
        super().__init__(store, emit)
        self._windows = windows
        self._initializer = initializer
        self._aggregator = aggregator
        self._merger = merger

    def view(self) -> View:
        """For joins and lookups downstream."""
        return SessionView(self.store)

    def time_of(self, key: Windowed, timestamp: int) -> int:
        """The session's end."""
        return key.window.end

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        gap, wait = self._windows.inactivity_gap_ms, self._windows.grace_ms + self._windows.inactivity_gap_ms
        initializer, aggregator, merger = self._initializer, self._aggregator, self._merger
        store, task, forward = node.store(self.store), node.task, node.forward
        forwards, send_old = not self.caches(node) and not self.final, self.send_old
        emit = final_results(node, self.store, self._closed(node)) if self.final else None
        late = LateRecords(node, self.late, end_inside=True)
        observed = NO_TIMESTAMP

        def update(session: Windowed, new: Any, old: Any) -> None:
            if forwards:  # without headers, as Java forwards uncached results
                forward(session, Change(new, old if send_old else None), session.window.end, None)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            if key is None:
                without_key(node)
                return
            task.timestamp, task.headers = timestamp, headers
            observed = max(observed, timestamp)
            close_time = observed - wait
            start = end = timestamp
            aggregate = initializer()
            touched = list(store.find_sessions(key, timestamp - gap, timestamp + gap))
            for session, value_of_session in touched:
                aggregate = merger(key, aggregate, value_of_session)
                start, end = min(start, session.window.start), max(end, session.window.end)
            if end < close_time:
                late.drop(Windowed(key, Window(start, end)), value, timestamp, headers, close_time, observed)
            else:
                if start != end or start != timestamp:
                    for session, value_of_session in touched:
                        store.remove(session)
                        update(session, None, value_of_session)
                        task.timestamp, task.headers = timestamp, headers
                aggregate = aggregator(key, value, aggregate)
                merged = Windowed(key, Window(start, end))
                store.put(merged, aggregate)
                update(merged, aggregate, None)
            if emit is not None:
                emit(close_time, headers)

        return process

    def _closed(self, node: NodeContext) -> Closed:
        store = node.store(self.store)

        def closed(last: int, now: int) -> Iterable[tuple[Windowed, Any, int]] | None:
            lower, upper = (0 if last == NO_TIMESTAMP else max(0, last)), now - 1
            if upper < 0:
                return None
            with store.find_sessions_range(None, None, lower, upper) as rows:
                ended = [row for row in rows if row[0].window.end <= upper]
            ended.sort(key=lambda row: (row[0].window.end, row[0].window.start))
            return [(session, value, session.window.end) for session, value in ended]

        return closed
