"""suppress(): its options and its node (Kafka: KTableImpl.suppress, KIP-328).

table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
table.suppress(Suppressed.until_time_limit(timedelta(seconds=5), BufferConfig.max_records(1000)))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from odradek.streams.dsl.graph import validated
from odradek.streams.dsl.ktable import KTable
from odradek.streams.errors import TopologyError
from odradek.streams.operators.suppress import Suppress
from odradek.streams.operators.suppress_buffer import SuppressBufferBuilder
from odradek.streams.topology import Topology
from odradek.streams.windows import Duration, to_ms

SUPPRESS = "KTABLE-SUPPRESS-"
UNBOUNDED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BufferConfig:
    """The limits of the buffer, and the action when it is full."""

    most_records: int = UNBOUNDED
    most_bytes: int = UNBOUNDED
    emits_when_full: bool = False
    logging: bool = True
    log_config: tuple[tuple[str, str], ...] = ()

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """A buffer without limits."""
        return cls()

    @classmethod
    def max_records(cls, count: int) -> BufferConfig:
        """At most `count` keys; beyond the limit the buffer emits the entry that is due first."""
        return cls(most_records=count, emits_when_full=True)

    @classmethod
    def max_bytes(cls, count: int) -> BufferConfig:
        """At most `count` bytes, by Kafka's estimate; beyond the limit the buffer emits the entry that is due first."""
        return cls(most_bytes=count, emits_when_full=True)

    def with_max_records(self, count: int) -> BufferConfig:
        """The same with another limit on keys."""
        return replace(self, most_records=count)

    def with_max_bytes(self, count: int) -> BufferConfig:
        """The same with another limit on bytes."""
        return replace(self, most_bytes=count)

    def with_no_bound(self) -> BufferConfig:
        """The same without limits."""
        return replace(self, most_records=UNBOUNDED, most_bytes=UNBOUNDED, emits_when_full=False)

    def shut_down_when_full(self) -> BufferConfig:
        """The same, shutting down the application beyond the limits."""
        return replace(self, emits_when_full=False)

    def emit_early_when_full(self) -> BufferConfig:
        """The same, emitting the entry that is due first beyond the limits."""
        return replace(self, emits_when_full=True)

    def with_logging_disabled(self) -> BufferConfig:
        """The same without a changelog: buffered changes are lost with the task."""
        return replace(self, logging=False)

    def with_logging_enabled(self, config: dict[str, str] | None = None) -> BufferConfig:
        """The same with a changelog, whose topic gets these configs."""
        return replace(self, logging=True, log_config=tuple((config or {}).items()))


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The changes to hold back, and for how long. `until_window_closes` or `until_time_limit` create it."""

    buffer: BufferConfig
    wait_ms: int | None
    """None: until windows close, with the grace of the windows upstream."""
    name: str | None = None

    @classmethod
    def until_window_closes(cls, buffer: BufferConfig) -> Suppressed:
        """One final result for each window. The buffer must not emit early. Raises ValueError."""
        if buffer.emits_when_full:
            raise ValueError("a buffer that emits early cannot hold back until windows close: shut_down_when_full()")
        return cls(buffer, None)

    @classmethod
    def until_time_limit(cls, wait: Duration, buffer: BufferConfig) -> Suppressed:
        """At most one change for each key in this time, by stream time."""
        return cls(buffer, to_ms(wait, "time to wait"))

    def with_name(self, name: str) -> Suppressed:
        """The same with a name for its node and its store."""
        return replace(self, name=name)


def suppress_table(table: KTable[Any, Any], suppressed: Suppressed) -> KTable[Any, Any]:
    """The table after suppress(). Raises TopologyError where no window upstream can close."""
    graph = table.graph
    if suppressed.name is None:
        node, store = graph.new_name(SUPPRESS), graph.store_name(SUPPRESS)
    else:  # here Kafka takes no number for a given name
        node, store = validated(suppressed.name), f"{suppressed.name}-store"
    wait_ms = suppressed.wait_ms if suppressed.wait_ms is not None else graph.grace_of(table.node)
    if wait_ms is None:
        raise TopologyError(f"{table.node} has no windows that could close: use Suppressed.until_time_limit()")
    supplier = Suppress(store, suppressed, wait_ms, table)
    buffer = suppressed.buffer
    builder = SuppressBufferBuilder(store, table.key, table.value, buffer.logging, dict(buffer.log_config))
    parent = table.node

    def write(topology: Topology) -> None:
        topology.add_processor(node, supplier, parent)
        topology.add_state_store(builder, node)

    graph.add(write, parents=(parent,), provides=node)
    return KTable(graph, node, table.key, table.value, table.sources, supplier, None)
