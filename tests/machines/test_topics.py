"""Names and placement of topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.metadata.state.topics import (
    Assignment,
    check_assignment,
    collision,
    is_internal,
    name_problem,
    place,
    place_over_racks,
)
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.machines.kafka_decides import ask, numbers


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "__consumer_offsets", "...", "-"])
def test_valid_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "a:b"])
def test_invalid_names(name: str) -> None:
    assert name_problem(name)


def test_dots_and_underscores_collide() -> None:
    assert collision("a.b_c", ["a_b.c"]) == "a_b.c"
    assert collision("a.b", ["a.b", "ab", "a-b"]) is None


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert not is_internal("__mine")


def test_placement_is_that_of_kafkas_own_example() -> None:
    # The table in the comment of Kafka's AdminUtils: ten partitions, three replicas, five brokers, start and shift 0.
    placed = place(10, 3, [0, 1, 2, 3, 4])
    assert [placed[partition] for partition in range(10)] == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def questions(random: Random) -> Iterator[tuple[str, Assignment]]:
    """Requests to Kafka with Odradek's placements: brokers with and without racks, new topics and topics that grow."""
    for _ in range(2000):
        ids = sorted(random.sample(range(20), random.randint(1, 8)))
        racks = {each: f"rack{random.randint(1, 4)}" for each in ids}
        partitions, factor = random.randint(1, 20), random.randint(1, len(ids))
        first, start = random.randrange(len(ids)), random.choice((0, 0, random.randint(1, 12)))
        rest = f"{partitions} {factor} {first} {start}"
        # Kafka takes one number for the index of the first leader and for the shift.
        placed = place(partitions, factor, ids, first=first, shift=first, start=start)
        yield f"place {numbers(ids)} {rest}", placed
        named = ",".join(f"{each}:{rack}" for each, rack in racks.items())
        placed = place_over_racks(partitions, factor, racks, first=first, shift=first, start=start)
        yield f"place {named} {rest}", placed


@pytest.mark.jvm
def test_kafka_places_replicas_the_same() -> None:
    asked = list(questions(Random(36)))
    answers = ask([question for question, _ in asked])
    ours = [";".join(numbers(replicas) for _, replicas in sorted(placed.items())) for _, placed in asked]
    assert [each for each in zip(asked, ours, answers, strict=True) if each[1] != each[2]] == []


def test_a_topic_that_grows_continues_where_it_ended() -> None:
    whole = place(7, 2, [0, 1, 2], first=1, shift=1)
    begun = place(4, 2, [0, 1, 2], first=1, shift=1)
    grown = place(3, 2, [0, 1, 2], first=1, shift=1, start=4)
    assert sorted(grown) == [4, 5, 6]
    assert [replicas[0] for replicas in {**begun, **grown}.values()] == [replicas[0] for replicas in whole.values()]


@given(
    st.integers(1, 40),
    st.sets(st.integers(0, 1000), min_size=1, max_size=8).map(sorted),
    st.data(),
)
def test_placement_is_balanced_and_has_no_broker_twice(
    partitions: int, brokers: list[int], data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    first, shift = data.draw(st.integers(0, 100)), data.draw(st.integers(0, 100))
    placed = place(partitions, factor, brokers, first=first, shift=shift)
    check_assignment(placed, brokers)
    assert len(placed) == partitions
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-1, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_invalid_placements_are_refused(partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        place(partitions, factor, [0, 1, 2])
    assert refused.value.code is code


@pytest.mark.parametrize("wrong", [{1: (0,)}, {0: ()}, {0: (0,), 1: (0, 1)}, {0: (0, 0)}, {0: (9,)}])
def test_invalid_assignments_are_refused(wrong: dict[int, tuple[int, ...]]) -> None:
    with pytest.raises(KafkaError) as refused:
        check_assignment(wrong, [0, 1, 2])
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
