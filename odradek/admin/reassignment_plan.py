"""Plans reassignments: which brokers get the replicas of topics (Kafka: ReassignPartitionsCommand.generateAssignment).

Kafka's tool spreads all partitions anew. This plan moves few replicas: a replica stays on its broker unless the broker
is not among the wanted ones or has more replicas than the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from odradek.protocol.topic_partition import TopicPartition

Replicas = tuple[int, ...]
Racks = Mapping[int, str | None]
"""The brokers that may have replicas, with their racks."""


def plan_reassignment(
    current: Mapping[TopicPartition, Sequence[int]], racks: Racks, replication_factor: int | None = None
) -> dict[TopicPartition, Replicas]:
    """The replicas of each partition on the brokers of `racks`, the preferred leader first.

    The numbers of replicas of two brokers differ by one at most, as far as racks allow; so do the numbers of preferred
    leaders, as far as the replicas allow. Raises ValueError where there are fewer brokers than replicas.
    """
    placed: dict[TopicPartition, list[int]] = {}
    load: Counter[int] = Counter(dict.fromkeys(sorted(racks), 0))
    for place, replicas in sorted(current.items()):
        count = replication_factor or len(replicas)
        if count > len(racks):
            raise ValueError(f"{count} replicas need as many brokers, and there are {len(racks)}")
        placed[place] = [each for each in replicas if each in racks][:count]
        load.update(placed[place])
    for place, chosen in placed.items():
        for _ in range((replication_factor or len(current[place])) - len(chosen)):
            broker = _least_loaded(chosen, load, racks)
            chosen.append(broker)
            load[broker] += 1
    _balance(placed, load, racks)
    return _with_leaders({place: tuple(chosen) for place, chosen in placed.items()})


def _least_loaded(chosen: Sequence[int], load: Counter[int], racks: Racks) -> int:
    """The broker for one more replica: of a rack that has the fewest of them, and with the fewest replicas."""
    used = Counter(racks[each] for each in chosen)
    free = [each for each in sorted(racks) if each not in chosen]
    return min(free, key=lambda each: (used[racks[each]], load[each]))


def _balance(placed: Mapping[TopicPartition, list[int]], load: Counter[int], racks: Racks) -> None:
    """Move replicas from the brokers with the most to those with the fewest, while that makes them more equal."""
    while True:
        move = next(_moves(placed, load, racks), None)
        if move is None:
            return
        place, source, target = move
        placed[place][placed[place].index(source)] = target
        load[source] -= 1
        load[target] += 1


def _moves(
    placed: Mapping[TopicPartition, list[int]], load: Counter[int], racks: Racks
) -> Iterator[tuple[TopicPartition, int, int]]:
    """Moves that make the loads more equal and put no more replicas of a partition into one rack."""
    for source in sorted(load, key=lambda each: (-load[each], each)):
        for target in sorted(load, key=lambda each: (load[each], each)):
            if load[source] - load[target] < 2:
                break
            for place, chosen in placed.items():
                if source in chosen and target not in chosen and _keeps_racks(chosen, source, target, racks):
                    yield place, source, target


def _keeps_racks(chosen: Sequence[int], source: int, target: int, racks: Racks) -> bool:
    used = Counter(racks[each] for each in chosen if each != source)
    return racks[target] is None or used[racks[target]] <= used[racks[source]]


def _with_leaders(placed: Mapping[TopicPartition, Replicas]) -> dict[TopicPartition, Replicas]:
    """Each partition with the replica first that is the preferred leader of the fewest partitions so far."""
    leads: Counter[int] = Counter()
    ordered = {}
    for place, replicas in placed.items():
        least = min(leads[each] for each in replicas)
        leader = replicas[0] if leads[replicas[0]] == least else next(each for each in replicas if leads[each] == least)
        leads[leader] += 1
        ordered[place] = (leader, *(each for each in replicas if each != leader))
    return ordered
