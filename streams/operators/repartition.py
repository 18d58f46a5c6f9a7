"""Repartition topics: records are written with their new keys and read again, so that one task gets all equal keys.

Changes of a table contain new and old value together (KIP-904), with a flag as the last byte:

    old ‖ 0        new ‖ 1        zigzag-varint(length of new) ‖ new ‖ old ‖ 2
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.streams.dsl.graph import Graph
from odradek.streams.errors import SerializationError
from odradek.streams.murmur2 import partition_of
from odradek.streams.operators.stateless import Filter, PassThrough
from odradek.streams.records import Change
from odradek.streams.serdes import Serde, WindowedSerde
from odradek.streams.timestamps import fail_on_invalid_timestamp
from odradek.streams.topology import InternalTopic, Partitioner, Topology

SUFFIX: Final = "-repartition"
_GENERATED: Final = re.compile(r"KSTREAM.*-[0-9]{10}")


@dataclass(slots=True)
class RepartitionNode:
    """A repartition topic with its sink and its source (OptimizableRepartitionNode)."""

    topic: str
    sink: str
    source: str
    key: Serde[Any] | None
    value: Serde[Any] | None
    filter: str = ""
    """The name of the filter for null keys before the topic; empty: no filter."""
    partitioner: Partitioner | None = None
    partitions: int | None = None
    filters_null_keys: bool = True
    """False where an outer join downstream requires null keys (KIP-962)."""

    def add(self, graph: Graph, parent: str) -> None:
        """Add the nodes after the node `parent`."""

        def write(topology: Topology) -> None:
            before = parent
            topology.add_internal_topic(InternalTopic(self.topic, self.partitions))
            if self.filter:
                before = self.filter
                topology.add_processor(before, Filter(has_key) if self.filters_null_keys else PassThrough(), parent)
            topology.add_sink(
                self.sink, self.topic, before, key=self.key, value=self.value, partitioner=self.partitioner
            )
            topology.add_source(
                self.source, self.topic, key=self.key, value=self.value, timestamp_extractor=fail_on_invalid_timestamp
            )

        graph.repartitions[self.source] = self
        graph.add(write, parents=(parent,), provides=self.source)


def repartition_node(
    graph: Graph,
    prefix: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    *,
    partitioner: Partitioner | None = None,
) -> RepartitionNode:
    """A repartition to the topic `prefix`-repartition; it uses three generated numbers (createRepartitionedSource).

    The names of its nodes derive from the topic's name, unless that is a generated name.
    """
    topic = prefix if prefix.endswith(SUFFIX) else prefix + SUFFIX
    sink, null_filter, source = map(graph.new_name, ("KSTREAM-SINK-", "KSTREAM-FILTER-", "KSTREAM-SOURCE-"))
    if _GENERATED.fullmatch(prefix) is None:
        sink, null_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return RepartitionNode(topic, sink, source, key, value, null_filter, partitioner)


def has_key(key: Any, value: Any) -> bool:
    """Whether a record can be partitioned."""
    return key is not None


class WindowedKeyPartitioner:
    """Sends windowed keys to the partition of their bare keys (WindowedStreamPartitioner)."""

    def __init__(self, serde: WindowedSerde) -> None:
        self._serialize = serde.inner.serialize

    def __call__(self, topic: str, key: Any, value: Any, partitions: int) -> int | None:
        """The partition, None for a null key."""
        if key is None:
            return None
        return partition_of(self._serialize(key.key), partitions)


_OLD: Final = b"\0"
_NEW: Final = b"\1"
_BOTH: Final = b"\2"


class ChangeSerde(Serde[Change]):
    """Changes by the serde of their values, None for the application's default (ChangedSerializer)."""

    __slots__ = ("inner",)

    def __init__(self, inner: Serde[Any] | None) -> None:
        super().__init__(self._write, self._read, name=f"change of {inner.name if inner else 'default'}")
        self.inner = inner

    def configured(self, config: Mapping[str, Any]) -> Serde[Change]:
        """The same, with the application's default where no serde was given. Raises SerializationError without one."""
        inner = self.inner if self.inner is not None else config.get("default.value.serde")
        if inner is None:
            raise SerializationError("Please specify a serde, or set one through the configuration default.value.serde")
        return ChangeSerde(inner.configured(config))

    def for_topic(self, topic: str, is_key: bool) -> Serde[Change]:
        """The same with the inner serde for the topic."""
        return ChangeSerde(self.inner and self.inner.for_topic(topic, is_key))

    def _write(self, change: Change) -> bytes:
        assert self.inner is not None
        serialize = self.inner.serialize
        new, old = change
        if new is not None:
            data = serialize(new)
            if old is None:
                return data + _NEW
            return b"".join((_varint(len(data)), data, serialize(old), _BOTH))
        if old is None:
            raise SerializationError("Both old and new values are null in ChangeSerializer, which is not allowed.")
        return serialize(old) + _OLD

    def _read(self, data: bytes) -> Change:
        assert self.inner is not None
        deserialize = self.inner.deserialize
        flag = data[-1:]
        if flag == _NEW:
            return Change(deserialize(data[:-1]), None)
        if flag == _OLD:
            return Change(None, deserialize(data[:-1]))
        if flag != _BOTH:
            raise SerializationError(
                f"Encountered unknown byte value `{flag[0]}` for encodingFlag in ChangedDeserializer."
            )
        length, start = _read_varint(data)
        return Change(deserialize(data[start : start + length]), deserialize(data[start + length : -1]))


def _varint(number: int) -> bytes:
    """A length as zigzag varint (ByteUtils.writeVarint)."""
    number <<= 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes) -> tuple[int, int]:
    """A length, and where it ends."""
    number = shift = 0
    for place, byte in enumerate(data):
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number >> 1, place + 1
        shift += 7
    raise SerializationError("a varint that does not end")
