"""Suppress: holds back changes of a table (Kafka: KTableSuppressProcessor, KIP-328).

With a time limit, the operator emits the latest change of a key when the limit has passed since the first change held
back. Until windows close, it emits one result for each window, when stream time has passed its end and the grace. A
full buffer either emits the entry that is due first, or ends the application.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.streams.errors import StreamsError
from odradek.streams.nodes import NodeContext
from odradek.streams.operators.suppress_buffer import Eviction, Origin, SuppressBuffer
from odradek.streams.operators.table import WithoutPast
from odradek.streams.operators.windowed import Get
from odradek.streams.records import NO_TIMESTAMP, Headers, Process, Stamped

if TYPE_CHECKING:
    from odradek.streams.dsl.suppress import BufferConfig, Suppressed


class SuppressView(WithoutPast):
    """The content of the table after suppress(): the last emitted rows."""

    def __init__(self, store: str, parent: Any) -> None:
        self._store = store
        self._parent = parent
        self.stores = (*parent.stores, store)

    def get(self, node: NodeContext) -> Get:
        """The lookup function of a key."""
        prior_value, of_parent = node.store(self._store).prior_value, self._parent.get(node)

        def look_up(key: Any) -> Stamped | None:
            held = prior_value(key)
            found: Stamped | None = of_parent(key) if held is None else held[0]
            return found

        return look_up


class Suppress:
    """Buffers and emits changes."""

    def __init__(self, store: str, suppressed: Suppressed, wait_ms: int, parent: Any) -> None:
        """`wait_ms` is the time limit, or the grace of the windows upstream without one. `parent` is the table's node
        upstream: its `enable_sending_old_values(force)` and `view()`; the buffer requires old values.
        """
        self.store = store
        self._suppressed = suppressed
        self._wait_ms = wait_ms
        self._parent = parent
        parent.enable_sending_old_values(True)

    def enable_sending_old_values(self, force: bool = True) -> bool:
        """Changes carry the old value, too."""
        return bool(self._parent.enable_sending_old_values(force))

    def view(self) -> SuppressView:
        """For joins and lookups downstream."""
        return SuppressView(self.store, self._parent.view())

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        buffer: SuppressBuffer = node.store(self.store)
        task, forward = node.task, node.forward
        by_window, wait_ms = self._suppressed.wait_ms is None, self._wait_ms
        limits = self._suppressed.buffer
        observed = NO_TIMESTAMP

        def due() -> bool:
            return buffer.earliest <= observed - wait_ms

        def full() -> bool:
            return len(buffer) > limits.most_records or buffer.size_bytes > limits.most_bytes

        def emit(eviction: Eviction) -> None:
            key, change, origin = eviction
            if change.new is None and by_window:
                return  # no result of this window was emitted, so there is none to delete
            before = task.timestamp, task.headers, task.topic, task.partition, task.offset
            task.timestamp, task.headers = origin.timestamp, origin.headers
            task.topic, task.partition, task.offset = origin.topic, origin.partition, origin.offset
            forward(key, change, origin.timestamp, origin.headers)
            task.timestamp, task.headers, task.topic, task.partition, task.offset = before

        refuse = _refuser(node, buffer, limits)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal observed
            task.timestamp, task.headers = timestamp, headers
            observed = max(observed, timestamp)
            origin = Origin(timestamp, task.offset, task.topic or "", task.partition, headers)
            buffer.put(key.window.end if by_window else timestamp, key, value, origin)
            buffer.evict_while(due, emit)
            if full():
                if not limits.emits_when_full:
                    refuse()
                buffer.evict_while(full, emit)

        return process


def _refuser(node: NodeContext, buffer: SuppressBuffer, limits: BufferConfig) -> Callable[[], None]:
    def refuse() -> None:
        raise StreamsError(
            f"{node.name} buffer exceeded its max capacity. Currently [{len(buffer)}/{limits.most_records}] records "
            f"and [{buffer.size_bytes}/{limits.most_bytes}] bytes."
        )

    return refuse
