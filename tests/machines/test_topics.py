"""Names and placement of topics."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.machines.topics import check_assignment, collision, is_internal, name_problem, place
from odradek.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "__consumer_offsets", "...", "-"])
def test_names_that_will_do(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ü", "a\n", "a:b"])
def test_names_that_will_not(name: str) -> None:
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
def test_what_cannot_be_placed(partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        place(partitions, factor, [0, 1, 2])
    assert refused.value.code is code


@pytest.mark.parametrize("wrong", [{1: (0,)}, {0: ()}, {0: (0,), 1: (0, 1)}, {0: (0, 0)}, {0: (9,)}])
def test_assignments_that_are_wrong(wrong: dict[int, tuple[int, ...]]) -> None:
    with pytest.raises(KafkaError) as refused:
        check_assignment(wrong, [0, 1, 2])
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
