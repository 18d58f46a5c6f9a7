"""Topic rules: valid names and counts, and the placement of replicas (Kafka: `Topic` for names, `AdminZkClient` for
checks, `AdminUtils` for placement).

All functions are pure; the random numbers of placement are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from odradek.protocol.errors import ErrorCode, KafkaError

GROUP_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_OFFSETS, TRANSACTION_STATE})
CLUSTER_METADATA = "__cluster_metadata"
"""No topic may have this name: KRaft keeps its log under it, and the embedded metadata store its journal."""
MAX_NAME_LENGTH = 249
MOST_AT_ONCE = 100_000
"""Partitions; an assignment far larger than the limit of one node of ZooKeeper (1 MiB) is rejected before the write."""
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")

Assignment = dict[int, tuple[int, ...]]
"""Partition index to the ids of its brokers, the preferred leader first."""


def is_internal(name: str) -> bool:
    """Whether Kafka keeps its own state in the topic of this name."""
    return name in INTERNAL_TOPICS


def name_problem(name: str) -> str | None:
    """The error message for an invalid topic name, None for a valid one."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name cannot be {name!r}"
    if len(name) > MAX_NAME_LENGTH:
        return f"the topic name has {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed: {name[:40]}…"
    if LEGAL_NAME.fullmatch(name) is None:
        return f"the topic name {name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def can_be_made(name: str) -> bool:
    """Whether a topic of this name may be created automatically."""
    return name != CLUSTER_METADATA and name_problem(name) is None


def why_missing(name: str, *, is_initialized: bool) -> ErrorCode:
    """The error that a broker returns for a topic that its metadata cache does not have.

    `is_initialized` is whether a controller has sent it the state of the cluster. Before that the topic may exist.
    Clients accept UNKNOWN_TOPIC_OR_PARTITION at once, also for a topic that they have written to for long (librdkafka
    fails the pending writes), and retry after the other code.
    """
    if name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_initialized else ErrorCode.LEADER_NOT_AVAILABLE


def collision(name: str, existing: Iterable[str]) -> str | None:
    """A topic whose name differs only by '.' against '_', which is the same name in metrics."""
    flat = name.replace(".", "_")
    if "_" not in flat:
        return None
    return next((other for other in existing if other != name and other.replace(".", "_") == flat), None)


def place(
    partitions: int, replication_factor: int, brokers: Sequence[int], *, first: int = 0, shift: int = 0, start: int = 0
) -> Assignment:
    """Spread replicas over brokers without racks, as Kafka's AdminUtils does.

    `first` is where the first leader goes and `shift` how far the second replica starts from it; both are random for a
    new topic. `start` is the index of the first partition: added partitions continue the
    placement of the old ones.
    Raises KafkaError with INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR.
    """
    if partitions <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"the number of partitions is {partitions}; it must be larger than 0"
        )
    if partitions > MOST_AT_ONCE:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"the number of partitions is {partitions}; a topic's znode cannot hold {MOST_AT_ONCE}",
        )
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {replication_factor}; it must be larger than 0",
        )
    count = len(brokers)
    if replication_factor > count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {count}.",
        )
    assignment: Assignment = {}
    for partition in range(start, start + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        leader = (partition + first) % count
        replicas = [brokers[leader]]
        for replica in range(replication_factor - 1):
            distance = 1 + (shift + replica) % (count - 1)
            replicas.append(brokers[(leader + distance) % count])
        assignment[partition] = tuple(replicas)
    return assignment


def place_over_racks(
    partitions: int,
    replication_factor: int,
    racks: Mapping[int, str],
    *,
    first: int = 0,
    shift: int = 0,
    start: int = 0,
) -> Assignment:
    """Spread replicas over brokers so that each partition has as many racks as possible (KIP-36).

    `racks` is the rack of each broker. Brokers take turns rack by rack; a replica goes to a rack that has none
    of the partition yet, as long as there is one, and to a broker that has none. Raises KafkaError as `place` does.
    """
    brokers = _alternating(racks)
    count, rack_count = len(brokers), len(set(racks.values()))
    place(partitions, replication_factor, brokers)  # for its checks
    assignment: Assignment = {}
    for partition in range(start, start + partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        leader = (partition + first) % count
        replicas = [brokers[leader]]
        step = 0
        while len(replicas) < replication_factor:
            distance = 1 + (shift * rack_count + step) % (count - 1)
            candidate = brokers[(leader + distance) % count]
            step += 1
            used = {racks[each] for each in replicas}
            all_racks_used = len(used) == rack_count
            if candidate not in replicas and (all_racks_used or racks[candidate] not in used):
                replicas.append(candidate)
        assignment[partition] = tuple(replicas)
    return assignment


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """The brokers in an order in which neighbors are in different racks, as far as possible."""
    waiting = {rack: sorted(each for each in racks if racks[each] == rack) for rack in sorted(set(racks.values()))}
    order: list[int] = []
    while any(waiting.values()):
        order.extend(brokers.pop(0) for brokers in waiting.values() if brokers)
    return order


def check_assignment(assignment: Mapping[int, Sequence[int]], brokers: Iterable[int]) -> None:
    """Check an assignment of a client's request; raises KafkaError with INVALID_REPLICA_ASSIGNMENT."""

    def refuse(text: str) -> KafkaError:
        return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)

    known = frozenset(brokers)
    if sorted(assignment) != list(range(len(assignment))):
        raise refuse(f"partitions must be numbered 0 to {len(assignment) - 1} without a gap, not {sorted(assignment)}")
    factors = {len(replicas) for replicas in assignment.values()}
    if factors == {0} or 0 in factors:
        raise refuse("every partition needs at least one replica")
    if len(factors) > 1:
        raise refuse(f"all partitions need the same number of replicas, not {sorted(factors)}")
    for partition, replicas in assignment.items():
        if len(set(replicas)) != len(replicas):
            raise refuse(f"partition {partition} has a broker twice: {list(replicas)}")
        unknown = sorted(set(replicas) - known)
        if unknown:
            raise refuse(
                f"partition {partition} has brokers that are not live: {unknown}; live brokers are {sorted(known)}"
            )
