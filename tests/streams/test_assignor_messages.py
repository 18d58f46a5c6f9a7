"""Messages between the members of a group: user data, subscriptions and assignments, encoded and decoded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.errors import StreamsError
from odradek.streams.group.group_protocol import (
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from odradek.streams.group.subscription_info import (
    RUNNING,
    UNKNOWN_POSITION,
    AssignmentInfo,
    HostPartitions,
    SubscriptionInfo,
    encode_hosts,
)
from odradek.streams.records import TaskId

TASKS = st.frozensets(st.builds(TaskId, st.integers(0, 300), st.integers(0, 2000)), max_size=12)
PARTITIONS = st.dictionaries(
    st.text(max_size=8), st.frozensets(st.integers(0, 500), min_size=1, max_size=5), max_size=3
)


@settings(max_examples=60)
@given(
    st.builds(
        SubscriptionInfo,
        process_id=st.binary(min_size=16, max_size=16),
        active=TASKS,
        standby=TASKS,
        positions=st.dictionaries(
            st.builds(TaskId, st.integers(0, 9), st.integers(0, 99)), st.integers(UNKNOWN_POSITION, 1 << 60), max_size=9
        ),
        tags=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        endpoint=st.text(max_size=9),
        error=st.integers(0, 9),
        serial=st.integers(0, 1 << 40),
    ),
    st.binary(max_size=4),
)
def test_a_subscription_round_trips_and_later_fields_are_ignored(info: SubscriptionInfo, later: bytes) -> None:
    data = info.encode()
    assert SubscriptionInfo.decode(data) == info
    assert SubscriptionInfo.decode(b"\2" + data[1:] + later) == info


@settings(max_examples=40)
@given(
    TASKS,
    TASKS,
    st.integers(0, 1 << 50),
    st.dictionaries(st.text(max_size=9), st.tuples(PARTITIONS, PARTITIONS), max_size=3),
)
def test_an_assignment_round_trips(
    active: frozenset[TaskId],
    standby: frozenset[TaskId],
    again_ms: int,
    hosts: dict[str, tuple[dict[str, frozenset[int]], dict[str, frozenset[int]]]],
) -> None:
    where = {endpoint: HostPartitions(*both) for endpoint, both in hosts.items()}
    info = AssignmentInfo(tuple(sorted(active)), tuple(sorted(standby)), again_ms, 0, where)
    assert AssignmentInfo.decode(info.encode()) == info
    assert info.encode(encode_hosts(where)) == info.encode()


@pytest.mark.parametrize("data", [b"", b"\0", b"\1", b"\1" + bytes(16), b"\1" + b"\xff" * 40, b"\x80\1" + bytes(40)])
def test_other_bytes_are_rejected(data: bytes) -> None:
    with pytest.raises(StreamsError, match="this is no subscription of this runtime"):
        SubscriptionInfo.decode(data)


def test_a_thousand_tasks_have_a_small_encoding() -> None:
    tasks = frozenset(TaskId(sub, part) for sub in range(10) for part in range(100))
    info = SubscriptionInfo(bytes(16), active=tasks, positions=dict.fromkeys(tasks, RUNNING))
    assert len(info.encode()) < 3_200


def test_kafkas_part_of_subscription_and_assignment() -> None:
    member = decode_subscription("m", "i", encode_subscription(["b", "a"], b"x", "r1"))
    assert member == MemberSubscription("m", "i", ["a", "b"], b"x", "r1")
    partitions = [("b", 1), ("a", 2), ("a", 0)]
    assert decode_assignment(encode_assignment(partitions, b"y")) == (sorted(partitions), b"y")
    assert decode_assignment(b"") == ([], b"")
