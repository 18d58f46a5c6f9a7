"""Requests of an administrator to the controller: other replicas, another leader. No client for Python has
the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from odradek.cluster_process import ClusterProcess
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.wire import Wire
from tests.support.eventually import eventually

Place: TypeAlias = tuple[str, int]
"""Topic and partition."""
Part = TypeVar("Part")
REASSIGN_VERSION: Final = 0
ELECT_VERSION: Final = 1
PREFERRED: Final = 0
TIMEOUT_MS: Final = 20_000
ASK_AGAIN: Final = {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE}


def reassign(cluster: ClusterProcess, replicas: Mapping[Place, Sequence[int]]) -> None:
    """Request these replicas, preferred leader first, and wait until no partition has others. Raises AssertionError."""
    parts = {
        (topic, number): m.AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=number, replicas=list(wanted)
        )
        for (topic, number), wanted in replicas.items()
    }
    topics = [
        m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=found)
        for topic, found in _by_topic(parts).items()
    ]
    request = m.AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)

    def failures(answer: m.AlterPartitionReassignmentsResponse) -> list[int]:
        found = [each.error_code for topic in answer.responses for each in topic.partitions]
        return [code for code in (answer.error_code, *found) if code]

    _ask_controller(cluster, request, REASSIGN_VERSION, failures)
    _await(cluster, list(replicas), lambda each: _replicas_are(each, replicas), f"the replicas {dict(replicas)}")


def elect_preferred(cluster: ClusterProcess, replicas: Mapping[Place, Sequence[int]]) -> None:
    """Let the first replica of each partition lead, and wait until it does. Raises AssertionError."""
    topics = [
        m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=numbers)
        for topic, numbers in _by_topic({place: place[1] for place in replicas}).items()
    ]
    request = m.ElectLeadersRequest(election_type=PREFERRED, topic_partitions=topics, timeout_ms=TIMEOUT_MS)

    def failures(answer: m.ElectLeadersResponse) -> list[int]:
        found = [each.error_code for topic in answer.replica_election_results for each in topic.partition_result]
        # The controller may have moved the leader already (auto.leader.rebalance.enable).
        return [code for code in (answer.error_code, *found) if code not in (0, ErrorCode.ELECTION_NOT_NEEDED)]

    _ask_controller(cluster, request, ELECT_VERSION, failures)
    for place, wanted in replicas.items():
        leader = cluster.leader_of(*place)
        while leader != wanted[0]:
            leader = cluster.await_leader(*place, other_than=leader)


def _ask_controller(cluster: ClusterProcess, request: Any, version: int, failures: Callable[[Any], list[int]]) -> None:
    """Send a request to the current controller, again if it got no response: a request carried out twice does
    no harm.
    """
    name = type(request).__name__

    def ask() -> set[ErrorCode]:
        broker = cluster.brokers[cluster.controller()]
        with Wire(broker.host, broker.port, timeout_s=TIMEOUT_MS / 1000) as wire:
            found = {ErrorCode(code) for code in failures(wire.ask(request, version))}
        assert found <= ASK_AGAIN, f"{name}: {found}"
        return found

    # An OSError: the controller has moved.
    eventually(ask, lambda found: not found, f"{name} without error", timeout_s=cluster.timeout_s, retry_on=(OSError,))


def _replicas_are(answer: m.MetadataResponse, wanted: Mapping[Place, Sequence[int]]) -> bool:
    found = {
        (topic.name, each.partition_index): list(each.replica_nodes)
        for topic in answer.topics
        for each in topic.partitions
    }
    return all(found.get(place) == list(replicas) for place, replicas in wanted.items())


def _await(
    cluster: ClusterProcess, places: Sequence[Place], holds: Callable[[m.MetadataResponse], bool], what: str
) -> None:
    """Wait until the controller's metadata meet the condition."""
    topics = sorted({topic for topic, _ in places})

    def metadata() -> m.MetadataResponse:
        broker = cluster.brokers[cluster.controller()]
        with Wire(broker.host, broker.port) as wire:
            return wire.metadata(topics)

    # An OSError: the controller has moved.
    eventually(metadata, holds, what, timeout_s=cluster.timeout_s, retry_on=(OSError,))


def _by_topic(parts: Mapping[Place, Part]) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = defaultdict(list)
    for (topic, _), part in parts.items():
        found[topic].append(part)
    return dict(found)
