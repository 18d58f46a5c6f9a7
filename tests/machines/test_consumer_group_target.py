"""The target of a large group of the consumer protocol is computed apart from requests, with interruptions.

Work is counted in calls of Python functions, which do not depend on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from odradek.broker.coordinator import event_processor
from odradek.broker.group.state import consumer_group_target
from odradek.broker.group.state.consumer_assignors import ASSIGNORS
from odradek.protocol.errors import ErrorCode
from tests.machines.assignor_questions import random_groups
from tests.machines.consumer_harness import Client, facts, join, membership, reloaded, settle
from tests.machines.stepwise import Stepwise, large
from tests.support.call_counter import CallCounter

MOST_CALLS = 1200
"""Less than a millisecond. In one piece, the assignments below make 2,500 calls and more."""


def interrupted(items: Iterable[Any]) -> Iterator[Any]:
    yield from items


def compute(harness: Stepwise) -> None:
    while harness.works:
        harness.step()


def test_interruptions_do_not_change_what_is_assigned() -> None:
    for question in random_groups(21)[:80]:
        assign = ASSIGNORS[question.assignor]
        assert assign(question.members, question.counts, interrupted) == assign(question.members, question.counts)


@pytest.mark.parametrize(("members", "topics", "each"), [(20, 600, 30), (240, 1, 1)])
def test_no_event_and_no_part_between_two_items_takes_long(
    monkeypatch: pytest.MonkeyPatch, members: int, topics: int, each: int
) -> None:
    harness = large(topics, 1 if topics > 1 else members)
    counter = CallCounter()

    def counted(items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            counter.step()
            yield item

    monkeypatch.setattr(event_processor, "items_of", counted)
    monkeypatch.setattr(consumer_group_target, "PART_RECORDS", 50)
    monkeypatch.setattr(consumer_group_target, "AT_ONCE", -1)
    for number in range(members):
        join(harness, f"m{number}", *(f"t{(number * each + place) % topics}" for place in range(each)))
    with counter.counting():
        compute(harness)  # the target of those that have joined first
        counter.step()
        join(harness, "last", "t0")
        while harness.works:
            counter.step()
            harness.step()
    assert counter.most < MOST_CALLS, counter.most
    group = membership(harness).group_members
    assert group.epoch == group.target_epoch
    given = [topic for targets in group.targets.values() for topic, parts in targets.items() for _ in parts]
    assert len(given) == (topics if topics > 1 else members)
    assert facts(reloaded(harness)) == facts(group)


def test_the_target_is_that_of_a_small_group(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for limit in (consumer_group_target.AT_ONCE, -1):
        monkeypatch.setattr(consumer_group_target, "AT_ONCE", limit)
        harness = large(12, 3)
        source = random.Random(5)
        for number in range(9):
            join(harness, f"m{number}", *(f"t{each}" for each in source.sample(range(12), 4)))
            compute(harness)
        found.append(membership(harness).group_members.targets)
    assert found[0] == found[1]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Stepwise:
    """Every group is large."""
    monkeypatch.setattr(consumer_group_target, "AT_ONCE", -1)
    return large(1, 4)


def test_a_member_has_nothing_until_the_target_is_computed(harness: Stepwise) -> None:
    a = Client(harness, "a", "t0")
    a.beat()
    assert (a.epoch, a.owned, membership(harness).state.value) == (1, set(), "Assigning")
    compute(harness)
    a.beat()
    assert (a.epoch, len(a.owned), membership(harness).state.value) == (2, 4, "Stable")


def test_members_that_join_meanwhile_belong_to_the_next_target(harness: Stepwise) -> None:
    clients = [Client(harness, name, "t0") for name in "abcd"]
    for client in clients:
        client.beat()
    compute(harness)
    group = membership(harness).group_members
    assert (group.epoch, group.target_epoch, sorted(group.targets)) == (5, 2, ["a"])
    clients[0].beat()
    assert len(clients[0].owned) == 4, "no member waits for the last target"
    compute(harness)
    assert (group.target_epoch, sorted(group.targets)) == (5, ["a", "b", "c", "d"])
    for _ in range(3):
        for client in clients:
            client.beat()
    assert {len(client.owned) for client in clients} == {1}


def test_a_static_member_that_returns_meanwhile_has_the_target_of_its_former_id(harness: Stepwise) -> None:
    a, b = Client(harness, "a", "t0"), Client(harness, "b", "t0")
    a.instance_id = "i"
    a.beat()
    compute(harness)
    b.beat()
    harness.step()
    harness.step()  # the record of the former id is in the log
    a.leave(for_a_while=True)
    again = Client(harness, "again", "t0")
    again.instance_id = "i"
    again.beat()
    compute(harness)
    group = membership(harness).group_members
    assert {name: sorted(map(len, each.values())) for name, each in group.targets.items()} == {"again": [2], "b": [2]}
    assert group.epoch == group.target_epoch
    assert facts(reloaded(harness)) == facts(group)


def test_a_member_that_leaves_meanwhile_has_no_target(harness: Stepwise) -> None:
    a, b = Client(harness, "a", "t0"), Client(harness, "b", "t0")
    a.beat()
    b.beat()
    compute(harness)
    b.beat()
    harness.step()
    a.leave()
    compute(harness)
    assert sorted(membership(harness).group_members.targets) == ["b"]
    b.beat()
    compute(harness)
    b.beat()
    b.beat()
    assert len(b.owned) == 4


def test_a_member_that_has_left_and_joins_again_meanwhile_is_a_new_member(harness: Stepwise) -> None:
    a = Client(harness, "a", "t0")
    a.beat()
    harness.step()
    harness.step()  # its target is in the log
    a.leave()
    a.beat()
    compute(harness)
    group = membership(harness).group_members
    assert (group.targets, group.target_epoch) == ({}, 2)
    assert facts(reloaded(harness)) == facts(group)
    a.beat()
    compute(harness)
    a.beat()
    assert len(a.owned) == 4


def test_a_rejected_record_ends_the_computation_and_the_next_heartbeat_begins_another(harness: Stepwise) -> None:
    a, b = Client(harness, "a", "t0"), Client(harness, "b", "t0")
    a.beat()
    compute(harness)
    b.beat()
    harness.step()
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    compute(harness)
    group = membership(harness)
    assert (group.state.value, group.steps.target.is_computing) == ("Assigning", False)
    harness.log.error = ErrorCode.NONE
    for _ in range(4):
        a.beat()
        b.beat()
        compute(harness)
    assert (len(a.owned), len(b.owned), group.state.value) == (2, 2, "Stable")


def test_a_failover_amid_the_records_leaves_no_partition_to_two_members(
    harness: Stepwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_group_target, "PART_RECORDS", 1)
    a, b = Client(harness, "a"), Client(harness, "b", "t0")
    for client in (a, b):
        client.beat()
        compute(harness)
    a.names, a.epoch = ("t0",), 0
    a.beat()
    harness.step()
    harness.step()  # "a" gets two partitions, and the log does not have that "b" loses them
    harness.works.clear()
    harness.fail_over()
    assert sum(len(parts) for each in membership(harness).group_members.targets.values() for parts in each.values()) > 4
    harness.topics.put("t0", 8)
    for _ in range(4):
        for client in (a, b):
            client.beat()
            compute(harness)
    settle(harness, a, b)
    assert (len(a.owned), len(b.owned)) == (4, 4)


def test_a_target_in_the_log_that_did_not_become_valid_is_written_again(
    harness: Stepwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_group_target, "PART_RECORDS", 1)
    a, b, c = (Client(harness, name, "t0") for name in "abc")
    for client in (a, b):
        client.beat()
        compute(harness)
    c.beat()
    harness.step()
    harness.step()  # the log has the target of "a" beside "c"
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    compute(harness)
    harness.log.error = ErrorCode.NONE
    c.leave()
    a.beat()
    compute(harness)
    group = membership(harness).group_members
    assert group.epoch == group.target_epoch
    assert facts(reloaded(harness)) == facts(group)


def test_what_members_have_subscribed_to_is_forgotten_with_them(harness: Stepwise) -> None:
    a = Client(harness, "a", "t0")
    a.beat()
    target = membership(harness).steps.target
    for number in range(20):
        a.names, a.epoch = ("t0", f"x{number}"), 0
        a.beat()
    compute(harness)
    assert len(target._shared_ids) < 5
    assert len(target._ids) == 1


def test_a_changed_topic_raises_the_epoch_apart_from_requests(harness: Stepwise) -> None:
    a = Client(harness, "a", "t0")
    a.beat()
    compute(harness)
    a.beat()
    harness.topics.put("t0", 6)
    harness.topics.put("other", 1)
    a.beat()
    assert a.epoch == 2
    compute(harness)
    a.beat()
    assert (a.epoch, len(a.owned)) == (3, 6)
    harness.topics.put("other", 2)
    a.beat()
    compute(harness)
    a.beat()
    assert a.epoch == 3


def test_an_error_is_logged_and_the_next_heartbeat_begins_another_computation(
    harness: Stepwise, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a = Client(harness, "a", "t0")
    with monkeypatch.context() as patch:
        patch.setattr(harness.topics, "name_of", lambda _: 1 // 0)
        a.beat()
        compute(harness)
    assert "cannot compute key=g" in caplog.text
    a.beat()
    compute(harness)
    a.beat()
    assert len(a.owned) == 4
