"""Topic deletion: brokers delete a topic's logs before the metadata store removes the topic (Kafka:
TopicDeletionManager).

A node under /admin/delete_topics requests the deletion. The controller sends every broker metadata that marks the topic
as being deleted, and has every replica deleted. When all replicas are deleted, it removes the topic's nodes, and last
the requesting node. While the broker of a replica is offline, the topic stays in the metadata store.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.controller.state.context import Context
from odradek.broker.controller.state.control_requests import ControlRequestBatch
from odradek.broker.controller.state.partition_state_machine import PARTITIONS_AT_A_TIME, PartitionStateMachine
from odradek.broker.controller.state.steps import PAUSE, Children, Read, Steps, is_pause_due
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Delete, NoNodeError, NotEmptyError
from odradek.protocol import messages as m
from odradek.protocol.topic_partition import TopicPartition


class TopicDeletionManager:
    """The topics that are being deleted."""

    def __init__(
        self,
        context: Context,
        control_requests: ControlRequestBatch,
        partitions: PartitionStateMachine,
        *,
        enabled: bool,
    ) -> None:
        """`enabled` is delete.topic.enable."""
        self._context = context
        self._control_requests = control_requests
        self._partitions = partitions
        self._enabled = enabled
        self._left: dict[str, dict[tuple[TopicPartition, int], None]] = {}
        """By topic, the replicas that have not been deleted yet."""

    def deletions_changed(self) -> Steps[None]:
        """Read the requested deletions, and begin the new ones."""
        requested = yield Children(znodes.DELETE_TOPICS)
        yield from self.begin(requested)

    def begin(self, requested: Iterable[str]) -> Steps[None]:
        """Begin the deletion of those of the topics that are not being deleted yet; their requests are in the metadata
        store.
        """
        begun: list[str] = []
        for number, topic in enumerate(requested):
            if is_pause_due(number):
                yield PAUSE
            if topic not in self._context.assignments or not self._enabled:
                yield from self._remove([znodes.delete_topic_path(topic)])
            elif topic not in self._context.deleting:
                begun.append(topic)
                self._context.deleting[topic] = None
                self._left[topic] = {
                    ((topic, index), broker_id): None
                    for index, replicas in self._context.assignments[topic].items()
                    for broker_id in replicas.replicas
                }
                self._control_requests.add_update_metadata_for_all(
                    (topic, index) for index in self._context.assignments[topic]
                )
        yield from self._go_on(begun)

    def go_on(self) -> Steps[None]:
        """Send StopReplica for remaining replicas on live brokers, and finish topics without remaining replicas."""
        yield from self._go_on(list(self._left))

    def _go_on(self, topics: Iterable[str]) -> Steps[None]:
        number = 0
        for topic in topics:
            for partition, broker_id in self._left[topic]:
                number += 1
                if is_pause_due(number):
                    yield PAUSE
                if self._context.is_online(broker_id, partition):
                    self._control_requests.add_stop_replica(broker_id, partition, delete=True)
            if not self._left[topic]:
                yield from self._finish(topic)

    def stop_replica_answered(self, broker_id: int, response: m.StopReplicaResponse) -> Steps[None]:
        """Handle a broker's response to StopReplica."""
        if response.error_code:
            return
        touched: dict[str, None] = {}
        for number, result in enumerate(response.partition_errors):
            if is_pause_due(number):
                yield PAUSE
            left = self._left.get(result.topic_name)
            key = ((result.topic_name, result.partition_index), broker_id)
            if left is not None and not result.error_code and key in left:
                del left[key]
                touched[result.topic_name] = None
        for topic in touched:
            if not self._left[topic]:
                yield from self._finish(topic)

    def _finish(self, topic: str) -> Steps[None]:
        """Remove the topic, whose replicas are all deleted, from the metadata store."""
        indexes = list(self._context.assignments.get(topic, {}))
        paths = [
            path
            for index in indexes
            for path in (znodes.partition_state_path(topic, index), znodes.partition_path(topic, index))
        ]
        yield from self._remove(paths)
        yield from self._remove([znodes.partitions_path(topic), znodes.topic_path(topic)])
        yield from self._remove([znodes.config_path(f"topics/{topic}")])
        yield from self._remove([znodes.delete_topic_path(topic)])
        self._left.pop(topic, None)
        self._context.forget_topic(topic)

    def _remove(self, paths: list[str]) -> Steps[None]:
        """Remove these nodes, as far as they exist."""
        for start in range(0, len(paths), PARTITIONS_AT_A_TIME):
            chunk = paths[start : start + PARTITIONS_AT_A_TIME]
            there = yield Read(tuple(chunk))
            found = [path for path, node in zip(chunk, there, strict=True) if node is not None]
            if not found:
                continue
            try:
                yield from self._partitions.write([Delete(path) for path in found])
            except NotEmptyError:
                for path in found:
                    yield from self._remove_below(path)
            except NoNodeError:
                yield from self._remove(found)

    def _remove_below(self, path: str) -> Steps[None]:
        """Remove a node and its unexpected children."""
        for name in (yield Children(path)):
            yield from self._remove_below(f"{path}/{name}")
        try:
            yield from self._partitions.write([Delete(path)])
        except NoNodeError:
            return

    def retry_on(self, brokers: Iterable[int]) -> bool:
        """Whether one of these brokers, which have just come, still has a replica to delete."""
        wanted = frozenset(brokers)
        return any(broker_id in wanted for left in self._left.values() for _, broker_id in left)
