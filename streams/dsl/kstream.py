"""KStream: a stream of independent records (Kafka: org.apache.kafka.streams.kstream.KStream).

Every operator takes its name when it is called, adds its node to the graph, and returns the resulting stream
(KStreamImpl). The record functions are in operators/.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from odradek.streams.dsl.graph import Graph
from odradek.streams.dsl.materialization import materialization
from odradek.streams.dsl.options import (
    Branched,
    Consumed,
    Grouped,
    Joined,
    Materialized,
    Printed,
    Produced,
    Repartitioned,
)
from odradek.streams.dsl.options import StreamJoined as StreamJoinedOptions
from odradek.streams.functions import OF_RECORD
from odradek.streams.java_names import JavaNames
from odradek.streams.operators import stateless
from odradek.streams.operators.repartition import RepartitionNode, WindowedKeyPartitioner, repartition_node
from odradek.streams.operators.table import TableSource
from odradek.streams.processor import Processor, ProcessorSupplier
from odradek.streams.records import RecordMetadata
from odradek.streams.serdes import Serde, WindowedSerde
from odradek.streams.timestamps import fail_on_invalid_timestamp
from odradek.streams.topology import Operator, Topology

if TYPE_CHECKING:
    from odradek.streams.dsl.grouped import KGroupedStream
    from odradek.streams.dsl.ktable import GlobalKTable, KTable
    from odradek.streams.windows import JoinWindows

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")
GK = TypeVar("GK")
GV = TypeVar("GV")

SINK = "KSTREAM-SINK-"
FILTER = "KSTREAM-FILTER-"
TO_TABLE = "KSTREAM-TOTABLE-"


class KStream(JavaNames, Generic[K, V]):
    """A stream of records. StreamsBuilder.stream() and operators create it."""

    def __init__(
        self,
        graph: Graph,
        node: str,
        key: Serde[K] | None,
        value: Serde[V] | None,
        sources: frozenset[str],
        repartition_required: bool = False,
    ) -> None:
        """`node` is the parent of the next operators; `sources` are the source nodes upstream, by name.

        `repartition_required` is set after keys have changed, since equal keys may be in different partitions then.
        """
        self.graph = graph
        self.node = node
        self.key = key
        self.value = value
        self.sources = sources
        self.repartition_required = repartition_required
        self.join_repartition: RepartitionNode | None = None
        """The repartition that joins of this stream share, after the first one."""

    # ---- stateless operators

    @overload
    def filter(self, predicate: Callable[[V], bool], *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def filter(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KStream[K, V]: ...

    def filter(self, predicate: Callable[..., bool], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which `predicate` holds, a function of (value) or of (key, value)."""
        return self._same(self._of_function(name, FILTER, stateless.Filter(predicate), "predicate"))

    @overload
    def filter_not(self, predicate: Callable[[V], bool], *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def filter_not(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KStream[K, V]: ...

    def filter_not(self, predicate: Callable[..., bool], *, name: str | None = None) -> KStream[K, V]:
        """Drop the records for which `predicate` holds."""
        return self._same(self._of_function(name, FILTER, stateless.Filter(predicate, negate=True), "predicate"))

    @overload
    def select_key(self, selector: Callable[[V], K2], *, name: str | None = None) -> KStream[K2, V]: ...

    @overload
    def select_key(self, selector: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...

    def select_key(self, selector: Callable[..., K2], *, name: str | None = None) -> KStream[K2, V]:
        """Set the key of each record to the result of `selector`, of (value) or of (key, value)."""
        node = self._of_function(name, "KSTREAM-KEY-SELECT-", stateless.SelectKey(selector), "selector")
        return KStream(self.graph, node, None, self.value, self.sources, True)

    @overload
    def map(self, mapper: Callable[[V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]: ...

    @overload
    def map(self, mapper: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]: ...

    def map(self, mapper: Callable[..., tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """Map each record: `mapper`, of (value) or of (key, value), returns the new key and value."""
        node = self._of_function(name, "KSTREAM-MAP-", stateless.Map(mapper), "mapper")
        return KStream(self.graph, node, None, None, self.sources, True)

    @overload
    def map_values(self, mapper: Callable[[V], V2], *, name: str | None = None) -> KStream[K, V2]: ...

    @overload
    def map_values(self, mapper: Callable[[K, V], V2], *, name: str | None = None) -> KStream[K, V2]: ...

    def map_values(self, mapper: Callable[..., V2], *, name: str | None = None) -> KStream[K, V2]:
        """Map the value of each record; the key stays. `mapper` is of (value) or of (key, value)."""
        node = self._of_function(name, "KSTREAM-MAPVALUES-", stateless.MapValues(mapper), "mapper")
        return KStream(self.graph, node, self.key, None, self.sources, self.repartition_required)

    @overload
    def flat_map(
        self, mapper: Callable[[V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...

    @overload
    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...

    def flat_map(self, mapper: Callable[..., Iterable[tuple[K2, V2]]], *, name: str | None = None) -> KStream[K2, V2]:
        """Map each record to any number of records, pairs of key and value."""
        node = self._of_function(name, "KSTREAM-FLATMAP-", stateless.FlatMap(mapper), "mapper")
        return KStream(self.graph, node, None, None, self.sources, True)

    @overload
    def flat_map_values(self, mapper: Callable[[V], Iterable[V2]], *, name: str | None = None) -> KStream[K, V2]: ...

    @overload
    def flat_map_values(self, mapper: Callable[[K, V], Iterable[V2]], *, name: str | None = None) -> KStream[K, V2]: ...

    def flat_map_values(self, mapper: Callable[..., Iterable[V2]], *, name: str | None = None) -> KStream[K, V2]:
        """Map the value of each record to any number of values; the key stays."""
        node = self._of_function(name, "KSTREAM-FLATMAPVALUES-", stateless.FlatMapValues(mapper), "mapper")
        return KStream(self.graph, node, self.key, None, self.sources, self.repartition_required)

    @overload
    def peek(self, action: Callable[[V], object], *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]: ...

    def peek(self, action: Callable[..., Any], *, name: str | None = None) -> KStream[K, V]:
        """Call a function with each record and forward it unchanged."""
        return self._same(self._of_function(name, "KSTREAM-PEEK-", stateless.Peek(action), "action"))

    @overload
    def foreach(self, action: Callable[[V], object], *, name: str | None = None) -> None: ...

    @overload
    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None: ...

    def foreach(self, action: Callable[..., Any], *, name: str | None = None) -> None:
        """Call a function with each record; the branch ends here."""
        self._of_function(name, "KSTREAM-FOREACH-", stateless.Foreach(action), "action")

    def print(self, printed: Printed | None = None) -> None:
        """Write "[label]: key, value" for each record, to stdout or to a file. The label is this stream's node."""
        store_settings = printed or Printed()
        node = self._processor(store_settings.name, "KSTREAM-PRINTER-", stateless.Print(store_settings, self.node))
        if store_settings.mapper is not None:
            self.graph.check(node, "mapper", store_settings.mapper, (("key", "value"),))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Send each record to the first of several branches whose predicate holds."""
        return BranchedKStream(self, name)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams. The order between them is not defined."""
        node = self.graph.name(name, "KSTREAM-MERGE-")
        self._write(node, stateless.PassThrough(), self.node, other.node)
        sources = self.sources | other.sources
        return KStream(self.graph, node, None, None, sources, self.repartition_required or other.repartition_required)

    # ---- topics

    def to(
        self, topic: str | Callable[[K, V, RecordMetadata | None], str], produced: Produced[K, V] | None = None
    ) -> None:
        """Write to a topic, or to the topic that `topic`, a function of (key, value, RecordMetadata), returns."""
        store_settings = produced or Produced()
        name = self.graph.name(store_settings.name, SINK)
        key, value, partitioner = (
            store_settings.key or self.key,
            store_settings.value or self.value,
            store_settings.partitioner,
        )
        if partitioner is None and isinstance(key, WindowedSerde):
            partitioner = WindowedKeyPartitioner(key)
        parent = self.node

        def write(topology: Topology) -> None:
            topology.add_sink(name, topic, parent, key=key, value=value, partitioner=partitioner)

        self.graph.add(write, parents=(parent,), provides=name)

    def through(self, topic: str, produced: Produced[K, V] | None = None) -> KStream[K, V]:
        """Write to a topic and read it again. Deprecated as in Kafka Streams: use `repartition`, or `to` and `stream`.

        The topic is the user's and has to exist; `repartition` manages its topic itself.
        """
        warnings.warn(
            "KStream.through is deprecated (KIP-221): use repartition(), or to() and StreamsBuilder.stream()",
            DeprecationWarning,
            stacklevel=2,
        )
        store_settings = produced or Produced()
        key, value = store_settings.key or self.key, store_settings.value or self.value
        self.to(topic, replace(store_settings, key=key, value=value))
        node = self.graph.source((topic,), Consumed(key, value, fail_on_invalid_timestamp))
        return KStream(self.graph, node, key, value, frozenset((node,)))

    def repartition(self, repartitioned: Repartitioned[K, V] | None = None) -> KStream[K, V]:
        """Write to an internal topic and read it: equal keys are in one partition again."""
        store_settings = repartitioned or Repartitioned()
        prefix = store_settings.name if store_settings.name is not None else self.graph.new_name("KSTREAM-REPARTITION-")
        key, value = store_settings.key or self.key, store_settings.value or self.value
        node = repartition_node(self.graph, prefix, key, value, partitioner=store_settings.partitioner)
        node.partitions = store_settings.partitions
        node.add(self.graph, self.node)
        return KStream(self.graph, node.source, key, value, frozenset((node.source,)))

    def to_table(
        self, materialized: Materialized[K, V] | str | None = None, *, name: str | None = None
    ) -> KTable[K, V]:
        """Convert each record into an update of a table; a null value deletes (KIP-523)."""
        from odradek.streams.dsl.ktable import KTable

        node = self.graph.name(name, TO_TABLE)
        store_settings = materialization(materialized, self.graph, TO_TABLE).with_default_serdes(self.key, self.value)
        parent, sources = self.node, self.sources
        if self.repartition_required:
            repartition = repartition_node(self.graph, node, store_settings.key, store_settings.value)
            repartition.add(self.graph, parent)
            parent, sources = repartition.source, frozenset((repartition.source,))
        source = TableSource(store_settings)

        def write(topology: Topology) -> None:
            topology.add_processor(node, source, parent)
            if source.materialized:
                topology.add_state_store(store_settings.key_value_store(), node)

        self.graph.add(write, parents=(parent,), provides=node)
        table: KTable[K, V] = KTable(
            self.graph, node, store_settings.key, store_settings.value, sources, source, store_settings.queryable_name
        )
        return table

    # ---- user-defined processors

    def process(
        self, supplier: Callable[[], Processor[K, V, K2, V2]], *stores: str, name: str | None = None
    ) -> KStream[K2, V2]:
        """Process the records with a user's processor, connected to these stores (Processor API, KIP-820)."""
        node = name if name is not None else self.graph.new_name("KSTREAM-PROCESSOR-")
        self._by_hand(node, supplier, stores)
        return KStream(self.graph, node, None, None, self.sources, True)

    def process_values(
        self, supplier: Callable[[], Processor[K, V, K, V2]], *stores: str, name: str | None = None
    ) -> KStream[K, V2]:
        """The same with a FixedKeyProcessor, which does not change keys."""
        node = name if name is not None else self.graph.new_name("KSTREAM-PROCESSVALUES-")
        self._by_hand(node, supplier, stores)
        return KStream(self.graph, node, self.key, None, self.sources, self.repartition_required)

    # ---- groups

    @overload
    def group_by(self, selector: Callable[[V], K2], grouped: Grouped[K2, V] | None = None) -> KGroupedStream[K2, V]: ...

    @overload
    def group_by(
        self, selector: Callable[[K, V], K2], grouped: Grouped[K2, V] | None = None
    ) -> KGroupedStream[K2, V]: ...

    def group_by(self, selector: Callable[..., K2], grouped: Grouped[K2, V] | None = None) -> KGroupedStream[K2, V]:
        """Group by the result of `selector`, of (value) or of (key, value).

        Serdes are those of `grouped`; without it the value's is this stream's.
        """
        from odradek.streams.dsl.grouped import KGroupedStream

        store_settings: Grouped[K2, V] = grouped or Grouped(value=self.value)
        node = self._of_function(store_settings.name, "KSTREAM-KEY-SELECT-", stateless.SelectKey(selector), "selector")
        return KGroupedStream(self.graph, node, store_settings, self.sources, True)

    def group_by_key(self, grouped: Grouped[K, V] | None = None) -> KGroupedStream[K, V]:
        """Group by the present key. Serdes are those of `grouped`; without it this stream's."""
        from odradek.streams.dsl.grouped import KGroupedStream

        store_settings = grouped or Grouped(self.key, self.value)
        return KGroupedStream(self.graph, self.node, store_settings, self.sources, self.repartition_required)

    # ---- internals

    def _same(self, node: str) -> KStream[K, V]:
        return KStream(self.graph, node, self.key, self.value, self.sources, self.repartition_required)

    def _of_function(self, name: str | None, prefix: str, operator: stateless.OfFunction, role: str) -> str:
        """Add an operator with one function of the user's. Returns its name."""
        node = self._processor(name, prefix, operator)
        self.graph.check(node, role, operator.function, OF_RECORD)
        return node

    def _processor(self, name: str | None, prefix: str, operator: Operator) -> str:
        """Add an operator after this stream. Returns its name."""
        node = self.graph.name(name, prefix)
        self._write(node, operator, self.node)
        return node

    def _write(self, node: str, operator: Operator, *parents: str) -> None:
        def write(topology: Topology) -> None:
            topology.add_processor(node, operator, *parents)

        self.graph.add(write, parents=parents, provides=node)

    def _by_hand(self, node: str, supplier: ProcessorSupplier, stores: Sequence[str]) -> None:
        parent = self.node

        def write(topology: Topology) -> None:
            topology.add_processor(node, supplier, parent)
            topology.connect_processor_and_state_stores(node, *stores)

        self.graph.add(write, parents=(parent,), provides=node)

    # ---- joins: see joins.py; the joiner is of (left, right) or of (key, left, right)

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], V2],
        windows: None = None,
        joined: Joined[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO], V2],
        windows: None = None,
        joined: Joined[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[V, VO], V2],
        *,
        key_selector: Callable[[V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[V, VO], V2],
        *,
        key_selector: Callable[[K, V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        key_selector: Callable[[V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[K, V, VO], V2],
        *,
        key_selector: Callable[[K, V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    def join(
        self,
        other: KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows | None = None,
        joined: StreamJoinedOptions[K, V, VO] | Joined[K, V, VO] | None = None,
        *,
        key_selector: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Join with the records of a stream within `windows`, or with the current row of a table, by key.

        For a GlobalKTable `key_selector`, of (key, value), returns the table's key.
        """
        from odradek.streams.dsl.joins import join_stream

        return join_stream(self, other, joiner, "inner", windows, joined, key_selector, name)

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], V2],
        windows: None = None,
        joined: Joined[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        windows: None = None,
        joined: Joined[K, V, VO] | None = None,
        *,
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        key_selector: Callable[[V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[V, VO | None], V2],
        *,
        key_selector: Callable[[K, V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        key_selector: Callable[[V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VO],
        joiner: Callable[[K, V, VO | None], V2],
        *,
        key_selector: Callable[[K, V], GK],
        name: str | None = None,
    ) -> KStream[K, V2]: ...

    def left_join(
        self,
        other: KStream[K, VO] | KTable[K, VO] | GlobalKTable[Any, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows | None = None,
        joined: StreamJoinedOptions[K, V, VO] | Joined[K, V, VO] | None = None,
        *,
        key_selector: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """The same, and this stream's records without a counterpart, with None in its place."""
        from odradek.streams.dsl.joins import join_stream

        return join_stream(self, other, joiner, "left", windows, joined, key_selector, name)

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
    ) -> KStream[K, V2]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
    ) -> KStream[K, V2]: ...

    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., V2],
        windows: JoinWindows,
        joined: StreamJoinedOptions[K, V, VO] | None = None,
    ) -> KStream[K, V2]:
        """The same of two streams, and the records of either without a counterpart."""
        from odradek.streams.dsl.joins import join_stream

        return join_stream(self, other, joiner, "outer", windows, joined, None, None)


class BranchedKStream(JavaNames, Generic[K, V]):
    """A stream that is being split. Predicates are evaluated in the order in which branches were added (KIP-418)."""

    def __init__(self, source: KStream[K, V], name: str | None) -> None:
        self._source = source
        self._name = source.graph.name(name, "KSTREAM-BRANCH-")
        self._predicates: list[Callable[..., bool]] = []
        self._children: list[str] = []
        self._branches: dict[str, KStream[Any, Any]] = {}
        source._write(self._name, stateless.Branch(self._predicates, self._children), source.node)

    @overload
    def branch(
        self, predicate: Callable[[V], bool], branched: Branched[K, V] | None = None
    ) -> BranchedKStream[K, V]: ...

    @overload
    def branch(
        self, predicate: Callable[[K, V], bool], branched: Branched[K, V] | None = None
    ) -> BranchedKStream[K, V]: ...

    def branch(self, predicate: Callable[..., bool], branched: Branched[K, V] | None = None) -> BranchedKStream[K, V]:
        """A branch for the records for which `predicate`, of (value) or of (key, value), is the first to hold."""
        self._source.graph.check(self._name, f"predicate {len(self._predicates) + 1}", predicate, OF_RECORD)
        self._predicates.append(predicate)
        self._add(branched or Branched(), len(self._predicates))
        return self

    def default_branch(self, branched: Branched[K, V] | None = None) -> Mapping[str, KStream[K, V]]:
        """A branch for records that match no predicate. Returns the branches by name: the split's, then theirs or a
        number.
        """
        self._add(branched or Branched(), 0)
        return self._branches

    def no_default_branch(self) -> Mapping[str, KStream[K, V]]:
        """Drop records that match no predicate. Returns the branches by name."""
        return self._branches

    def _add(self, branched: Branched[K, V], index: int) -> None:
        source = self._source
        name = self._name + (str(index) if branched.name is None else branched.name)
        self._children.append(name)
        source.graph.new_name(name)
        source._write(name, stateless.PassThrough(), self._name)
        branch = KStream(source.graph, name, source.key, source.value, source.sources, source.repartition_required)
        if branched.function is not None:
            made = branched.function(branch)
            if made is not None:
                self._branches[name] = made
        elif branched.consumer is not None:
            branched.consumer(branch)
        else:
            self._branches[name] = branch
