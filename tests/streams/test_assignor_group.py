"""The leader's assignment from the subscriptions of its group."""

from __future__ import annotations

import uuid

import pytest

from odradek.streams.errors import StreamsError
from odradek.streams.group.assignor import AssignmentConfig
from odradek.streams.group.group_assignment import TaskPartitions, Timing, assign_group, lag_of
from odradek.streams.group.group_protocol import MemberSubscription
from odradek.streams.group.subscription_info import (
    RUNNING,
    SHUTDOWN_REQUESTED,
    UNKNOWN_POSITION,
    AssignmentInfo,
    SubscriptionInfo,
)
from odradek.streams.records import TaskId

TIMING = Timing(1_000, 600_000)


def _tasks(count: int) -> dict[TaskId, TaskPartitions]:
    return {TaskId(0, part): TaskPartitions((("in", part),), (("log", part),)) for part in range(count)}


def _member(name: str, **fields: object) -> MemberSubscription:
    process = uuid.uuid5(uuid.NAMESPACE_DNS, name).bytes
    return MemberSubscription(name, None, ["in"], SubscriptionInfo(process, **fields).encode(), None)  # type: ignore[arg-type]


def test_lags() -> None:
    positions = (RUNNING, UNKNOWN_POSITION, 0, 30, 100, 101)
    assert [lag_of(position, 100) for position in positions] == [0, 100, 100, 70, 0, 100]


def test_each_member_receives_its_tasks_and_the_locations_of_the_others() -> None:
    tasks = _tasks(4)
    members = {
        "a": _member("a", endpoint="h:1", active=frozenset([TaskId(0, 3)]), positions={TaskId(0, 3): RUNNING}),
        "b": _member("b", endpoint="h:2", positions={TaskId(0, 0): 50_000}),
    }
    ends = {("log", part): 60_000 for part in range(4)}
    given = assign_group(members, tasks, ends, AssignmentConfig(num_standby_replicas=1), TIMING)
    infos = {name: AssignmentInfo.decode(userdata) for name, (_, userdata) in given.items()}
    assert TaskId(0, 3) in infos["a"].active
    assert TaskId(0, 0) in infos["b"].active
    assert {*infos["a"].active, *infos["b"].active} == set(tasks)
    assert set(infos["a"].standby) == set(infos["b"].active)
    for name, info in infos.items():
        assert given[name][0] == [("in", task.partition) for task in info.active]
        assert info.next_rebalance_ms == 0
        here = info.hosts["h:1" if name == "a" else "h:2"]
        assert here.active == {"in": frozenset(task.partition for task in info.active)}
        assert here.standby == {"in": frozenset(task.partition for task in info.standby)}


def test_all_members_receive_the_time_of_the_next_rebalance() -> None:
    tasks = _tasks(2)
    everything = frozenset(tasks)
    members = {"a": _member("a", active=everything, positions=dict.fromkeys(everything, RUNNING)), "b": _member("b")}
    ends = {("log", part): 60_000 for part in range(2)}
    given = assign_group(members, tasks, ends, AssignmentConfig(), TIMING)
    assert [AssignmentInfo.decode(userdata).next_rebalance_ms for _, userdata in given.values()] == [601_000, 601_000]
    assert given["a"][0] == [("in", 0), ("in", 1)], "the other has no state yet"


def test_without_the_ends_of_changelogs_tasks_stay_and_a_probing_rebalance_follows() -> None:
    members = {"a": _member("a", active=frozenset([TaskId(0, 1)])), "b": _member("b", active=frozenset([TaskId(0, 0)]))}
    given = assign_group(members, _tasks(2), None, AssignmentConfig(), TIMING)
    assert given["a"][0] == [("in", 1)]
    assert AssignmentInfo.decode(given["a"][1]).next_rebalance_ms == 601_000


def test_the_shutdown_request_of_a_member_reaches_all() -> None:
    members = {"a": _member("a", error=SHUTDOWN_REQUESTED), "b": _member("b")}
    given = assign_group(members, _tasks(2), {}, AssignmentConfig(), TIMING)
    assert [AssignmentInfo.decode(userdata).error for _, userdata in given.values()] == [SHUTDOWN_REQUESTED] * 2
    assert [partitions for partitions, _ in given.values()] == [[], []]


def test_a_member_of_another_kind_in_the_group() -> None:
    with pytest.raises(StreamsError, match="this is no subscription of this runtime"):
        assign_group({"a": MemberSubscription("a", None, ["in"], b"", None)}, _tasks(1), {}, AssignmentConfig(), TIMING)
