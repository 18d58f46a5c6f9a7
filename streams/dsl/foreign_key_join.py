"""Foreign-key join of two tables in the DSL: topics, store and nodes (Kafka: KTableImpl.doJoinOnForeignKey, KIP-213).

The left table sends subscriptions to a topic that is partitioned like the right table; responses come back over a topic
that is partitioned like the left table. The operators of the nodes are in operators/foreign_key.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from odradek.streams.dsl.graph import Graph
from odradek.streams.dsl.ktable import KTable
from odradek.streams.dsl.materialization import materialization
from odradek.streams.dsl.options import Materialized, TableJoined
from odradek.streams.dsl.table_base import TableBase
from odradek.streams.functions import OF_TWO, OF_VALUE
from odradek.streams.operators.foreign_key import (
    KEY_SETTING,
    VALUE_SETTING,
    ForeignKeySerdes,
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from odradek.streams.operators.subscriptions import response_serde, subscription_serde
from odradek.streams.operators.table import TableSource
from odradek.streams.serdes import BYTES, DerivedSerde, Serde
from odradek.streams.stores.builders import timestamped_key_value_store
from odradek.streams.topology import InternalTopic, Partitioner, Topology

FK_JOIN: Final = "KTABLE-FK-JOIN-"
STATE_STORE: Final = f"{FK_JOIN}SUBSCRIPTION-STATE-STORE-"
REGISTRATION: Final = f"{FK_JOIN}SUBSCRIPTION-REGISTRATION-"
RESPONSE: Final = f"{FK_JOIN}SUBSCRIPTION-RESPONSE-"
PROCESSOR: Final = f"{FK_JOIN}SUBSCRIPTION-PROCESSOR-"
RESOLVER: Final = f"{FK_JOIN}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
OUTPUT: Final = f"{FK_JOIN}OUTPUT-"
SINK: Final = "KTABLE-SINK-"
SOURCE: Final = "KTABLE-SOURCE-"
TOPIC_SUFFIX: Final = "-topic"


class _Names:
    """The names of one join, generated in Kafka's order."""

    def __init__(self, graph: Graph, given: str | None) -> None:
        def name(prefix: str, suffix: str) -> str:
            return graph.name(given, prefix, suffix)

        self.registration_topic = name(REGISTRATION, "-subscription-registration") + TOPIC_SUFFIX
        self.send = name(REGISTRATION, "-subscription-registration-processor")
        self.registration_sink = name(SINK, "-subscription-registration-sink")
        self.registration_source = name(SOURCE, "-subscription-registration-source")
        self.store = name(STATE_STORE, "-subscription-store")
        self.receive = name(PROCESSOR, "-subscription-receive")
        self.join = name(PROCESSOR, "-subscription-join-foreign")
        self.foreign = name(PROCESSOR, "-foreign-join-subscription")
        self.response_topic = name(RESPONSE, "-subscription-response") + TOPIC_SUFFIX
        self.response_sink = name(SINK, "-subscription-response-sink")
        self.response_source = name(SOURCE, "-subscription-response-source")
        self.resolver = name(RESOLVER, "-subscription-response-resolver")
        self.result = name(OUTPUT, "-result")


def join_by_foreign_key(
    this: TableBase[Any, Any],
    other: KTable[Any, Any],
    joiner: Callable[[Any, Any], Any],
    foreign_key: Callable[[Any], Any],
    materialized: Materialized[Any, Any] | str | None,
    store_settings: TableJoined,
    *,
    left: bool,
) -> KTable[Any, Any]:
    """Join each row of `this` with the row of `other` whose key is `foreign_key`, a function of the value."""
    graph = this.graph
    other.enable_sending_old_values(True)
    this.enable_sending_old_values(True)
    names = _Names(graph, store_settings.name)
    serdes = ForeignKeySerdes(names.registration_topic, this.key, other.key, this.value)
    graph.check(names.send, "foreign_key", foreign_key, OF_VALUE)
    graph.check(names.resolver, "joiner", joiner, OF_TWO)
    right, own = other.view(), this.view()
    response = DerivedSerde(other.value, VALUE_SETTING, lambda value, config: response_serde(value))

    _add_registration(
        graph,
        names,
        this,
        other,
        store_settings,
        SubscriptionSend(foreign_key, serdes, left=left, versioned=this.versioned),
    )
    _add_processor(
        graph, names.receive, SubscriptionReceive(names.store, serdes), names.registration_source, [names.store]
    )
    _add_processor(graph, names.join, SubscriptionJoin(right), names.receive, right.stores)
    foreign = ForeignTableJoin(names.store, serdes, versioned=other.versioned)
    _add_processor(graph, names.foreign, foreign, other.node, [names.store])
    _add_response(graph, names, this.key, response, store_settings)
    sources = this.sources | {names.response_source}
    graph.add(lambda topology: topology.copartition(sorted(sources)))
    resolver = ResponseJoin(own, joiner, serdes, left=left)
    _add_processor(graph, names.resolver, resolver, names.response_source, own.stores)
    return _add_result(graph, names, this, materialized, frozenset(sources))


def _add_processor(graph: Graph, name: str, operator: Any, parent: str, stores: Iterable[str]) -> None:
    def write(topology: Topology) -> None:
        topology.add_processor(name, operator, parent)
        topology.connect_processor_and_state_stores(name, *stores)

    graph.add(write, parents=(parent,), provides=name)


def _add_registration(
    graph: Graph,
    names: _Names,
    this: TableBase[Any, Any],
    other: KTable[Any, Any],
    store_settings: TableJoined,
    send: SubscriptionSend,
) -> None:
    """The nodes from the left table to the right table's task, and the store of subscriptions."""
    topic, primary_key = names.registration_topic, this.key

    def make(inner: Serde[Any], config: Any) -> Serde[Any]:
        return subscription_serde(inner.for_topic(f"{config['application.id']}-{topic}-pk", True))

    subscription = DerivedSerde(primary_key, KEY_SETTING, make)
    partitioner = _single(store_settings.other_partitioner)
    store = replace(timestamped_key_value_store(names.store, BYTES, subscription), type_from_config=True)
    _add_processor(graph, names.send, send, this.node, ())

    def write_sink(topology: Topology) -> None:
        topology.add_internal_topic(InternalTopic(topic))
        topology.add_sink(
            names.registration_sink, topic, names.send, key=other.key, value=subscription, partitioner=partitioner
        )

    def write_source(topology: Topology) -> None:
        topology.add_source(names.registration_source, topic, key=other.key, value=subscription)
        topology.copartition(sorted({*other.sources, names.registration_source}))
        topology.add_state_store(store)

    graph.add(write_sink, parents=(names.send,), provides=names.registration_sink)
    graph.add(write_source, parents=(names.registration_sink,), provides=names.registration_source)


def _add_response(
    graph: Graph, names: _Names, primary_key: Serde[Any] | None, response: Serde[Any], store_settings: TableJoined
) -> None:
    """The nodes from the right table's task back to the left table's task."""
    topic = names.response_topic
    partitioner = _single(store_settings.partitioner) or _asking_partition

    def write_sink(topology: Topology) -> None:
        topology.add_internal_topic(InternalTopic(topic))
        topology.add_sink(
            names.response_sink,
            topic,
            names.join,
            names.foreign,
            key=primary_key,
            value=response,
            partitioner=partitioner,
        )

    def write_source(topology: Topology) -> None:
        topology.add_source(names.response_source, topic, key=primary_key, value=response)

    graph.add(write_sink, parents=(names.join, names.foreign), provides=names.response_sink)
    graph.add(write_source, parents=(names.response_sink,), provides=names.response_source)


def _add_result(
    graph: Graph,
    names: _Names,
    this: TableBase[Any, Any],
    materialized: Materialized[Any, Any] | str | None,
    sources: frozenset[str],
) -> KTable[Any, Any]:
    store = materialization(materialized, graph, OUTPUT).with_default_serdes(this.key, None)
    result = TableSource(store)
    name, parent = names.result, names.resolver

    def write(topology: Topology) -> None:
        topology.add_processor(name, result, parent)
        if result.materialized:
            topology.add_state_store(store.key_value_store(), name)

    graph.add(write, parents=(parent,), provides=name)
    return KTable(graph, name, this.key, store.value, sources, result, store.store_name, versioned=store.versioned)


def _asking_partition(topic: str, key: Any, response: Any, partitions: int) -> int | None:
    """The partition of the subscriber; None for a version that does not contain it, and the key decides."""
    partition: int | None = response.primary_partition
    return partition


def _single(partitioner: Partitioner | None) -> Partitioner | None:
    """A user's partitioner, which gets no value and has to choose one partition (KIP-775)."""
    if partitioner is None:
        return None

    def choose(topic: str, key: Any, value: Any, partitions: int) -> int | None:
        chosen = partitioner(topic, key, None, partitions)
        if chosen is None or isinstance(chosen, int):
            return chosen
        found = list(dict.fromkeys(chosen))
        if len(found) != 1:
            raise ValueError(
                "The partitions returned by StreamPartitioner#partitions method when used for FK join should be a "
                "singleton set"
            )
        return found[0]

    return choose
