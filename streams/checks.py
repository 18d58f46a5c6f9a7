"""Checks of a topology with the configuration of an application, before anything runs.

StreamsBuilder.build() checks what it can without the configuration. Here follow the serdes, which may be the
application's defaults, and the names of internal topics, which begin with the application.id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.streams.config import StreamsConfig
from odradek.streams.errors import StreamsError, TopologyError
from odradek.streams.nodes import configured_serde
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.stores.values import changelog_topic
from odradek.streams.topology import ProcessorNode, SinkNode, SourceNode, Topology, check_topic_name


def check_application(topology: Topology, config: StreamsConfig) -> None:
    """Raises TopologyError with everything that keeps this topology from running with this configuration."""
    problems = list(_problems(topology, config))
    if problems:
        raise TopologyError("\n".join(f"Invalid topology: {problem}" for problem in problems))


def _problems(topology: Topology, config: StreamsConfig) -> Iterator[str]:
    if not any(isinstance(node, SourceNode) for node in topology.nodes.values()):
        yield (
            "Topology has no stream threads and no global threads, must subscribe to at least one source topic or "
            "global table."
        )
    for where, key, value in _with_serdes(topology):
        for serde, name, role in ((key, "default.key.serde", "keys"), (value, "default.value.serde", "values")):
            try:
                configured_serde(serde, name, config, f"{where} ({role})")
            except StreamsError as error:
                yield str(error)
    application_id = config["application.id"]
    internal = [f"{application_id}-{topic}" for topic in topology.internal_topics]
    logged = [name for name, store in topology.stores.items() if store.logging]
    for topic in (*internal, *(changelog_topic(application_id, name) for name in logged)):
        try:
            check_topic_name(topic, "internal topic")
        except TopologyError as error:
            yield str(error)

    if config.exactly_once:
        yield from _long_timeouts(topology, config)


def _long_timeouts(topology: Topology, config: StreamsConfig) -> Iterator[str]:
    """Asynchronous operators whose timeout exceeds that of a transaction, which the coordinator would abort first."""
    limit = config.transaction_timeout_ms - config["commit.interval.ms"]
    for name, node in topology.nodes.items():
        timeout_ms = getattr(node.supplier, "call_timeout_ms", 0) if isinstance(node, ProcessorNode) else 0
        if timeout_ms >= limit:
            yield (
                f"{name}: timeout ({timeout_ms} ms) has to be below {limit} ms with exactly_once_v2: a commit waits "
                "for the results (producer.transaction.timeout.ms - commit.interval.ms)"
            )


def _with_serdes(topology: Topology) -> Iterator[tuple[str, Any, Any]]:
    """What has serdes: its place for a message, and both serdes."""
    for node in topology.nodes.values():
        if isinstance(node, SourceNode):
            topics = node.pattern.pattern if node.pattern is not None else ", ".join(node.topics)
            yield f"source {node.name} of topic {topics}", node.key, node.value
        elif isinstance(node, SinkNode):
            topic = node.topic if isinstance(node.topic, str) else "that a function chooses"
            yield f"sink {node.name} of topic {topic}", node.key, node.value
    used = [name for name, users in topology.store_users.items() if users]
    for name in (*used, *topology.global_stores):
        store = topology.stores.get(name) or topology.global_stores[name]
        if type(store) is StoreBuilder:
            yield f"store {name}", store.key_serde, store.value_serde
