"""Leader elections: elects leaders of partitions that lost theirs, and on request (Kafka:
KafkaController.onReplicaElection, PartitionStateMachine.collectUncleanLeaderElectionState).

`election.py` has the rules; this module decides which partitions need an election, and of which kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.broker.controller.state.context import NO_LEADER, Context
from odradek.broker.controller.state.partition_state_machine import PartitionStateMachine
from odradek.broker.controller.state.steps import PAUSE, Read, Steps, is_pause_due
from odradek.broker.registry import znodes
from odradek.broker.registry.znodes import ZnodeError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

UNCLEAN_PROPERTY: Final = "unclean.leader.election.enable"


class LeaderElections:
    """Elects leaders of partitions."""

    def __init__(
        self, context: Context, partitions: PartitionStateMachine, *, allow_unclean: bool, imbalance_percentage: int
    ) -> None:
        """`allow_unclean` is the default of unclean.leader.election.enable for topics that do not set it;
        `imbalance_percentage` is leader.imbalance.per.broker.percentage.
        """
        self._context = context
        self._partitions = partitions
        self._allow_unclean = allow_unclean
        self._imbalance_percentage = imbalance_percentage

    # ---- lost leaders

    def replace_lost(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Elect leaders where they are offline, and remove offline replicas from the ISRs."""
        context = self._context
        lost = [each for each in partitions if each[0] not in context.deleting]
        leaderless = {topic: None for topic, index in lost if context.is_leaderless((topic, index))}
        unclean = yield from self._unclean_topics(list(leaderless))
        yield from self._partitions.change(lost, self._partitions.replace_lost(unclean))

    def _unclean_topics(self, topics: list[str]) -> Steps[frozenset[str]]:
        """Those of the topics whose configuration, or the broker's, allows unclean elections."""
        found = yield Read(tuple(znodes.config_path(f"topics/{topic}") for topic in topics))
        allowed = []
        for topic, node in zip(topics, found, strict=True):
            try:
                text = znodes.decode_config(node[0]).get(UNCLEAN_PROPERTY) if node is not None else None
            except ZnodeError:
                text = None
            if self._allow_unclean if text is None else text == "true":
                allowed.append(topic)
        return frozenset(allowed)

    def topic_config_changed(self, topic: str) -> Steps[None]:
        """Elect leaders of a topic whose configuration has changed; it may allow unclean elections now."""
        partitions = [(topic, index) for index in self._context.assignments.get(topic, {})]
        yield from self.replace_lost([each for each in partitions if self._context.is_leaderless(each)])

    def unclean_default_changed(self, allow: bool) -> Steps[None]:
        """Apply a changed default of unclean.leader.election.enable, for topics that do not set it."""
        before, self._allow_unclean = self._allow_unclean, allow
        if allow and not before:
            yield from self.replace_lost(filter(self._context.is_leaderless, list(self._context.partitions())))

    # ---- on request

    def elect_preferred(self, partitions: Iterable[TopicPartition] | None) -> Steps[dict[TopicPartition, ErrorCode]]:
        """Elect the preferred leaders of these partitions, or of all."""
        context = self._context
        results: dict[TopicPartition, ErrorCode] = {}
        wanted = []
        for number, partition in enumerate(context.partitions() if partitions is None else partitions):
            if is_pause_due(number):
                yield PAUSE
            replicas = context.replicas(partition)
            if replicas is None:
                results[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition[0] in context.deleting:
                results[partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif partition in context.states and context.states[partition].state.leader == replicas.replicas[0]:
                results[partition] = ErrorCode.ELECTION_NOT_NEEDED
            else:
                wanted.append(partition)
        yield from self._partitions.change(wanted, self._partitions.prefer)
        for number, partition in enumerate(wanted):
            if is_pause_due(number):
                yield PAUSE
            known, preferred = context.states.get(partition), context.assigned(partition)[0]
            elected = known is not None and known.state.leader == preferred
            results[partition] = ErrorCode.NONE if elected else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return results

    def elect_unclean(self, partitions: Iterable[TopicPartition] | None) -> Steps[dict[TopicPartition, ErrorCode]]:
        """Elect any live replica as leader of leaderless partitions; records that only others had are lost."""
        context = self._context
        results: dict[TopicPartition, ErrorCode] = {}
        wanted = []
        for number, partition in enumerate(context.partitions() if partitions is None else partitions):
            if is_pause_due(number):
                yield PAUSE
            if context.replicas(partition) is None:
                results[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition[0] in context.deleting:
                results[partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif not context.is_leaderless(partition):
                results[partition] = ErrorCode.ELECTION_NOT_NEEDED
            else:
                wanted.append(partition)
        yield from self._partitions.begin_missing(wanted)
        topics = frozenset(topic for topic, _ in wanted)
        yield from self._partitions.change(wanted, self._partitions.replace_lost(topics))
        for number, partition in enumerate(wanted):
            if is_pause_due(number):
                yield PAUSE
            led = not context.is_leaderless(partition)
            results[partition] = ErrorCode.NONE if led else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return results

    def balance(self) -> Steps[None]:
        """Elect preferred leaders for brokers whose imbalance exceeds leader.imbalance.per.broker.percentage."""
        context = self._context
        wanted: dict[int, list[TopicPartition]] = {}
        for number, partition in enumerate(context.partitions()):
            if is_pause_due(number):
                yield PAUSE
            if partition[0] not in context.deleting:
                wanted.setdefault(context.assigned(partition)[0], []).append(partition)
        for broker_id, partitions in wanted.items():
            if broker_id not in context.brokers:
                continue
            elsewhere = [
                each
                for each in partitions
                if (known := context.states.get(each)) is not None and known.state.leader not in (broker_id, NO_LEADER)
            ]
            if len(elsewhere) * 100 > len(partitions) * self._imbalance_percentage:
                able = [each for each in elsewhere if not context.is_reassigning(each)]
                yield from self._partitions.change(able, self._partitions.prefer)
