"""Application context: what all threads of one client share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka.admin import AdminClient

from odradek.streams.config import StreamsConfig
from odradek.streams.queries import FairLock
from odradek.streams.running.client import Clients, partitions_of
from odradek.streams.running.leadership import GroupLeader
from odradek.streams.running.restoration import RestoreListener
from odradek.streams.running.standby_listener import StandbyUpdateListener
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.sensors import StreamsMetrics
from odradek.streams.topology import SinkNode, SourceNode, Topology


def now_ms() -> int:
    """The wall-clock time in ms since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Application:
    """One client's topology, configuration and dependencies."""

    topology: Topology
    config: StreamsConfig
    clients: Clients
    directory: StateDirectory
    leader: GroupLeader
    admin: AdminClient
    global_stores: Mapping[str, Any] = field(default_factory=dict)
    global_lock: FairLock | None = None
    """Held while a thread reads global stores."""
    restore_listener: RestoreListener | None = None
    standby_listener: StandbyUpdateListener | None = None
    clock: Callable[[], int] = now_ms
    sensors: StreamsMetrics | None = None
    """The sensors of the user, which all tasks share."""

    @property
    def application_id(self) -> str:
        """The application.id."""
        return str(self.config["application.id"])

    def partitions_of(self, topic: str) -> int:
        """The partition count of a topic. Raises StreamsError where the cluster does not return it."""
        return partitions_of(self.admin, topic, self.config["request.timeout.ms"] / 1000)

    def source_topics(self) -> list[str]:
        """The topics to subscribe to, without those of patterns."""
        return sorted({topic for topics, _ in self._sources() for topic in topics})

    def offset_reset(self, topic: str) -> str:
        """The reset policy of a topic without an offset: that of its source, or else of the application."""
        for topics, source in self._sources():
            if topic in topics or (source.pattern is not None and source.pattern.fullmatch(topic)):
                return source.offset_reset or str(self.config["auto.offset.reset"])
        return str(self.config["auto.offset.reset"])

    def reads_together(self) -> bool:
        """Whether a task reads several partitions, and so may have to wait for one of them."""
        for names in self.topology.node_groups():
            sources = [node for name in names if isinstance(node := self.topology.nodes[name], SourceNode)]
            if len(sources) > 1 or any(len(source.topics) != 1 for source in sources):
                return True
        return False

    def writers(self) -> dict[str, tuple[int, str]]:
        """The sub-topology and the node that write each topic, as far as the topology determines them."""
        found: dict[str, tuple[int, str]] = {}
        for index, each in self.topology.subtopologies(self.application_id).items():
            found.update({changelog: (index, store) for store, changelog in each.changelogs.items()})
            for name in each.nodes:
                node = self.topology.nodes[name]
                if isinstance(node, SinkNode) and isinstance(node.topic, str):
                    found[self.topology.cluster_name(node.topic, self.application_id)] = index, name
        return found

    def _sources(self) -> Iterator[tuple[tuple[str, ...], SourceNode]]:
        for node in self.topology.nodes.values():
            if isinstance(node, SourceNode) and node.name not in self.topology.global_nodes:
                yield tuple(self.topology.cluster_name(topic, self.application_id) for topic in node.topics), node
