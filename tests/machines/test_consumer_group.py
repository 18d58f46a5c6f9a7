"""A group of the consumer protocol: heartbeats, epochs, static members, time, the log."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.coordinator.state.pending_writes import RETRY_MS
from odradek.broker.group.state import consumer_group_pending_writes as consumer_group_writes
from odradek.broker.group.state import consumer_group_steps
from odradek.broker.group.state.consumer_group_members import ConsumerMember, MemberState
from odradek.protocol.errors import ErrorCode
from tests.machines.consumer_harness import (
    REBALANCE_MS,
    SESSION_MS,
    Client,
    beat,
    facts,
    join,
    membership,
    reloaded,
    settle,
)
from tests.machines.group_harness import GROUP, Harness


def world_with(**topics: int) -> Harness:
    harness = Harness()
    for name, partitions in topics.items():
        harness.topics.put(name, partitions)
    return harness


def everything(name: str, partitions: int) -> set[tuple[str, int]]:
    return {(name, index) for index in range(partitions)}


# --- joining, sharing, leaving ---


def test_the_first_member_gets_everything_at_once() -> None:
    harness = world_with(t=4)
    result = join(harness, "a", "t", client_id="c", client_host="/1.2.3.4")
    assert (result.error, result.member_id, result.epoch, result.interval_ms) == (ErrorCode.NONE, "a", 1, 5000)
    topic_id = harness.topics.id_of("t")
    assert topic_id is not None
    assert {topic: sorted(parts) for topic, parts in (result.assignment or {}).items()} == {topic_id: [0, 1, 2, 3]}
    group = membership(harness)
    assert (group.state.value, group.group_members.epoch, group.group_members.target_epoch) == ("Stable", 1, 1)
    assert harness.groups.list_groups()[1] == [(GROUP, "consumer", "Stable", "consumer")]


def test_a_heartbeat_looks_at_its_own_member_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked at all members, twice: a group of 1,000 members took 30 ms a second."""
    harness = world_with(t=40)
    clients = [Client(harness, f"member-{number}", "t") for number in range(40)]
    for _ in range(3):
        for client in clients:
            client.beat()
    seen: list[str] = []
    whole = ConsumerMember.is_reconciled_to

    def is_reconciled_to(member: ConsumerMember, epoch: int) -> bool:
        seen.append(member.member_id)
        return whole(member, epoch)

    monkeypatch.setattr(ConsumerMember, "is_reconciled_to", is_reconciled_to)
    before = membership(harness).group_members.members["member-7"]
    clients[7].beat()
    assert seen == ["member-7"]
    assert membership(harness).group_members.members["member-7"] is before
    assert membership(harness).state.value == "Stable"


def test_a_partition_moves_only_after_its_owner_has_revoked_it() -> None:
    harness = world_with(t=4)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    a.beat()
    result = b.beat()
    assert result is not None
    assert (result.epoch, result.assignment) == (2, {}), "nothing is free yet"
    assert membership(harness).group_members.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    b.beat()
    assert not b.owned
    before = set(a.owned)
    a.beat()
    assert (a.epoch, len(a.owned)) == (1, 2), "it stays in its epoch until it has revoked"
    assert membership(harness).group_members.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    b.beat()
    assert not b.owned, "the owner is revoking and has not acknowledged it"
    a.beat()
    assert a.epoch == 2
    b.beat()
    assert a.owned | b.owned == before
    assert not a.owned & b.owned
    assert membership(harness).state.value == "Stable"


def test_a_heartbeat_without_owned_partitions_revokes_nothing() -> None:
    harness = world_with(t=2)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    a.beat()
    b.beat()
    a.beat()
    assert beat(harness, "a", 1).answer.epoch == 1
    assert membership(harness).group_members.members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_states_of_the_group_follow_its_epochs() -> None:
    harness = world_with(t=2)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    states = []
    for step in (a.beat, b.beat, a.beat, a.beat, b.beat, b.leave, a.beat, a.leave):
        step()
        states.append(membership(harness).state.value)
    assert states == [
        "Stable",
        "Reconciling",
        "Reconciling",
        "Reconciling",
        "Stable",
        "Assigning",
        "Stable",
        "Empty",
    ]


def test_partitions_of_a_leaving_member_go_to_the_others() -> None:
    harness = world_with(t=5)
    a, b, c = (Client(harness, name, "t") for name in "abc")
    settle(harness, a, b, c)
    result = c.leave().answer
    assert (result.error, result.epoch, result.member_id) == (ErrorCode.NONE, -1, "c")
    settle(harness, a, b)
    assert a.owned | b.owned == everything("t", 5)


def test_an_assignment_is_sent_when_it_changes_or_is_requested() -> None:
    harness = world_with(t=2)
    a = Client(harness, "a", "t")
    a.beat()
    again = a.beat()
    assert again is not None
    assert again.assignment is None
    full = beat(harness, "a", 1, rebalance_timeout_ms=1, names=("t",), owned={}).answer
    assert full.assignment is not None


def test_a_subscription_waits_for_topics_that_do_not_exist() -> None:
    harness = world_with()
    a = Client(harness, "a", "later")
    a.beat()
    assert (a.epoch, a.owned) == (1, set())
    harness.topics.put("later", 3)
    a.beat()
    assert (a.epoch, a.owned) == (2, everything("later", 3))
    harness.topics.put("later", 5)
    a.beat()
    assert a.owned == everything("later", 5)
    harness.topics.remove("later")
    a.beat()
    a.beat()
    assert (a.owned, membership(harness).state.value) == (set(), "Stable")


def test_changes_elsewhere_in_the_cluster_affect_no_member() -> None:
    harness = world_with(t=2)
    a = Client(harness, "a", "t")
    a.beat()
    harness.topics.put("other", 3)
    a.beat()
    assert a.epoch == 1


def test_the_assignor_is_the_one_that_most_members_request() -> None:
    harness = world_with(t=3, u=3)
    for name in "ab":
        join(harness, name, "t", "u", assignor="range")
    join(harness, "c", "t", "u", assignor="uniform")
    assert membership(harness).steps.target.assignor == "range"
    targets = membership(harness).group_members.targets
    assert all(len(set(each.values())) == 1 for each in targets.values()), "the same run of both topics"


def test_a_changed_subscription_revokes_and_assigns() -> None:
    harness = world_with(t=2, u=2)
    a = Client(harness, "a", "t")
    a.beat()
    result = beat(harness, "a", 1, names=("u",), owned={}).answer
    assert result.epoch == 2
    assert set(result.assignment) == {harness.topics.id_of("u")}


# --- refusals ---


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_REQUEST),
        ({"group": " "}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "rebalance_timeout_ms": 1, "owned": {bytes(16): frozenset({1})}}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 0, "rebalance_timeout_ms": 1, "owned": {}}, ErrorCode.INVALID_REQUEST),
        ({"assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"epoch": 2}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"instance_id": "nobody's"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": "nothing"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"group": "nothing", "epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
        (
            {"epoch": 0, "rebalance_timeout_ms": 1, "owned": {}, "expression": "(x"},
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        ),
    ],
)
def test_invalid_requests_are_refused_and_change_nothing(fields: dict[str, Any], error: ErrorCode) -> None:
    harness = world_with(t=2)
    join(harness, "a", "t")
    before = facts(reloaded(harness))
    result = beat(harness, fields.pop("member_id", "a"), fields.pop("epoch", 1), **fields).answer
    assert result.error is error
    assert result.message
    assert facts(reloaded(harness)) == before


def test_an_old_epoch_is_fenced_unless_the_response_may_have_been_lost() -> None:
    harness = world_with(t=2)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    settle(harness, a, b)
    b.leave()
    old = a.epoch
    a.beat(lost=True)
    assert membership(harness).group_members.members["a"].epoch > old
    again = a.beat()
    assert again is not None
    assert not again.error
    assert a.owned == everything("t", 2)
    assert beat(harness, "a", old - 1, owned={}).answer.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(harness, "a", old).answer.error is ErrorCode.FENCED_MEMBER_EPOCH, "the request has no owned partitions"


def test_a_full_group_accepts_no_member() -> None:
    harness = Harness(group_consumer_max_size=1)
    harness.topics.put("t", 1)
    assert not join(harness, "a", "t").error
    assert join(harness, "b", "t").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not beat(harness, "a", 1).answer.error


def test_a_member_without_an_id_is_given_one() -> None:
    harness = world_with(t=1)
    result = join(harness, "", "t")
    assert result.member_id
    assert join(harness, "", "t", must_name_itself=True).error is ErrorCode.INVALID_REQUEST


# --- static members ---


def test_a_static_member_comes_back_to_its_partitions() -> None:
    harness = world_with(t=4)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    a.instance_id = "i"
    settle(harness, a, b)
    had, epoch = set(a.owned), membership(harness).group_members.epoch
    result = a.leave(for_a_while=True).answer
    assert (result.error, result.epoch) == (ErrorCode.NONE, -2)
    b.beat()
    assert membership(harness).group_members.epoch == epoch, "nothing moves meanwhile"
    back = Client(harness, "a2", "t")
    back.instance_id = "i"
    back.beat()
    assert (back.owned, back.epoch) == (had, epoch)
    assert list(membership(harness).group_members.members) == ["b", "a2"]
    assert beat(harness, "a", epoch, instance_id="i").answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert facts(reloaded(harness)) == facts(membership(harness).group_members)


def test_an_instance_id_in_use_is_not_given_away() -> None:
    harness = world_with(t=1)
    join(harness, "a", "t", instance_id="i")
    assert join(harness, "b", "t", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert beat(harness, "a", 1, instance_id="i").answer.error is ErrorCode.NONE


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    harness = world_with(t=2)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    a.instance_id = "i"
    settle(harness, a, b)
    a.leave(for_a_while=True)
    for _ in range(SESSION_MS // 5_000):
        harness.time.advance(5_000)
        b.beat()
    settle(harness, b)
    assert b.owned == everything("t", 2)


def test_a_static_member_that_leaves_for_good_is_gone() -> None:
    harness = world_with(t=2)
    a = Client(harness, "a", "t")
    a.instance_id = "i"
    a.beat()
    assert not a.leave().answer.error
    assert not membership(harness).group_members.members
    assert membership(harness).group_members.of_instance("i") is None


# --- time ---


def test_a_silent_member_is_removed() -> None:
    harness = world_with(t=2)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    settle(harness, a, b)
    harness.time.advance(SESSION_MS - 1)
    a.beat()
    harness.time.advance(1)
    assert list(membership(harness).group_members.members) == ["a"]
    settle(harness, a)
    assert a.owned == everything("t", 2)
    b.beat()
    assert b.errors[-1] is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_is_removed() -> None:
    harness = world_with(t=2)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    a.beat()
    b.beat()
    holding = {harness.topics.id_of("t") or b"": frozenset({0, 1})}
    for _ in range(REBALANCE_MS // 5_000):
        assert beat(harness, "a", 1, owned=holding).answer.error is ErrorCode.NONE
        b.beat()
        harness.time.advance(5_000)
    assert list(membership(harness).group_members.members) == ["b"]
    settle(harness, b)
    assert b.owned == everything("t", 2)


def test_no_timer_outlives_its_member() -> None:
    harness = world_with(t=2)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    settle(harness, a, b)
    a.leave()
    b.leave()
    assert membership(harness).armed == {}
    assert harness.time.waiting == 0


# --- regular expressions ---


def test_an_expression_matches_whole_names_of_topics() -> None:
    harness = world_with(**{"orders-1": 1, "orders-2": 2, "my-orders-1": 1})
    a = Client(harness, "a", expression="orders-.*")
    a.beat()
    assert a.owned == everything("orders-1", 1) | everything("orders-2", 2)
    harness.topics.put("orders-3", 1)
    a.beat()
    assert ("orders-3", 0) in a.owned
    assert facts(reloaded(harness)) == facts(membership(harness).group_members)
    a.leave()
    assert reloaded(harness).resolved == {}


def test_an_expression_that_would_hang_a_backtracking_matcher_does_not() -> None:
    harness = world_with(**{"a" * 40: 1})
    assert not join(harness, "a", names=None, expression="(a|aa)+$b").error


def test_names_and_an_expression_are_combined() -> None:
    harness = world_with(t=1, u=1, v=1)
    result = join(harness, "a", "t", expression="u|v")
    assert set(result.assignment or {}) == {harness.topics.id_of(name) for name in "tuv"}


# --- offsets ---


def test_only_members_in_their_current_epoch_may_commit() -> None:
    harness = world_with(t=4)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    assert harness.commit({("t", 0): 1}).answer == [ErrorCode.NONE]
    a.beat()
    assert harness.commit({("t", 0): 5}, "a", 1).answer == [ErrorCode.NONE]
    assert harness.commit({("t", 0): 6}).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.commit({("t", 0): 6}, "x", 1).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert harness.commit({("t", 0): 6}, "a", 2).answer == [ErrorCode.STALE_MEMBER_EPOCH]
    settle(harness, a, b)
    kept, lost = min(a.owned), min(b.owned)
    assert harness.commit({kept: 7}, "a", 1).answer == [ErrorCode.NONE], "its own since then (KIP-1251)"
    assert harness.commit({lost: 7}, "a", 1).answer == [ErrorCode.STALE_MEMBER_EPOCH]
    assert harness.offset(kept) == 7
    assert harness.offset(lost) != 7
    assert not harness.offsets.fetch(GROUP, [kept], require_stable=False)[0]
    for member_id, epoch, error in (
        ("a", 2, ErrorCode.NONE),
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        found, _ = harness.offsets.fetch(GROUP, [kept], require_stable=False, member_id=member_id, epoch=epoch)
        assert found is error


def test_a_group_with_members_is_not_deleted_and_one_without_is() -> None:
    harness = world_with(t=1)
    a = Client(harness, "a", "t")
    a.beat()
    harness.commit({("t", 0): 5}, "a", 1)
    assert harness.groups.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP
    assert harness.offsets.delete_offsets(GROUP, [("t", 0)]) == (ErrorCode.NONE, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])
    a.leave()
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    harness.fail_over()
    assert harness.groups.list_groups()[1] == []
    assert harness.groups.describe_consumers(GROUP) == (ErrorCode.NONE, None)


def test_an_empty_group_is_removed_with_its_last_offset() -> None:
    harness = world_with(t=1)
    harness.coordinator.start()
    a = Client(harness, "a", "t")
    a.beat()
    harness.commit({("t", 0): 5}, "a", 1)
    a.leave()
    harness.time.advance(harness.settings.offsets_retention_ms + harness.settings.offsets_retention_check_interval_ms)
    assert harness.groups.list_groups()[1] == []


# --- the log ---


def test_responses_wait_for_all_earlier_decisions() -> None:
    harness = world_with(t=2)
    a = Client(harness, "a", "t")
    a.beat()
    harness.log.hold = True
    first = beat(harness, "b", 0, rebalance_timeout_ms=1, names=("t",), owned={})
    plain = beat(harness, "a", 1, owned=a.report())
    assert first.waits
    assert plain.waits
    harness.log.hold = False
    harness.log.release()
    assert (first.answer.error, plain.answer.error) == (ErrorCode.NONE, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("refused", "received"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_append_that_the_log_refuses_is_reverted(refused: ErrorCode, received: ErrorCode) -> None:
    harness = world_with(t=2)
    join(harness, "a", "t")
    before, armed = facts(membership(harness).group_members), membership(harness).armed
    harness.log.error = refused
    assert join(harness, "b", "t").error is received
    harness.log.error = ErrorCode.NONE
    assert facts(reloaded(harness)) == before
    if refused is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        assert beat(harness, "a", 1).answer.error is ErrorCode.NOT_COORDINATOR, "its state may be old"
        return
    assert facts(membership(harness).group_members) == before
    assert membership(harness).armed == armed, "b has no session"
    assert beat(harness, "a", 1).answer.error is ErrorCode.NONE
    assert join(harness, "b", "t").error is ErrorCode.NONE
    assert list(reloaded(harness).members) == ["a", "b"]


def test_an_append_that_times_out_stays_and_is_answered_once_it_is_committed() -> None:
    harness = world_with(t=2)
    join(harness, "a", "t")
    harness.log.error = ErrorCode.REQUEST_TIMED_OUT
    assert join(harness, "b", "t").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(reloaded(harness).members) == list(membership(harness).group_members.members) == ["a", "b"]
    harness.log.error = ErrorCode.NONE
    first = beat(harness, "a", 1, owned={})
    harness.log.time_out()
    assert (first.waits, first.answers) == (False, first.answers)
    again = beat(harness, "b", 2, owned={})
    harness.log.release()
    assert not again.waits
    assert facts(reloaded(harness)) == facts(membership(harness).group_members)


def test_a_session_that_ends_while_the_log_refuses_ends_once_more() -> None:
    harness = world_with(t=2)
    join(harness, "a", "t")
    harness.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.time.advance(SESSION_MS)
    assert list(membership(harness).group_members.members) == ["a"]
    harness.log.error = ErrorCode.NONE
    harness.time.advance(RETRY_MS)
    assert not membership(harness).group_members.members
    assert facts(reloaded(harness)) == facts(membership(harness).group_members)


def test_a_refused_piece_of_a_large_change_reverts_what_is_not_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group_writes, "LARGEST_APPEND", 200)
    harness = world_with(**{f"topic-{number}": 20 for number in range(20)})
    real, taken = harness.log.append, []

    def append(*args: Any, **producer: Any) -> None:
        taken.append(args)
        harness.log.error = ErrorCode.NONE if len(taken) < 3 else ErrorCode.NOT_ENOUGH_REPLICAS
        real(*args, **producer)

    harness.log.append = append  # type: ignore[method-assign]
    slot = beat(harness, "a", 0, rebalance_timeout_ms=60_000, expression=".*", owned={})
    assert slot.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(taken) == 3, "no piece after a refused one is appended"
    assert facts(reloaded(harness)) == facts(membership(harness).group_members)


def test_a_large_change_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_group_writes, "LARGEST_APPEND", 200)
    harness = world_with(**{f"topic-{number}": 20 for number in range(20)})
    a = Client(harness, "a", expression=".*")
    a.beat()
    assert len(a.owned) == 400
    assert len(harness.log.batches[0]) > 3
    assert facts(reloaded(harness)) == facts(membership(harness).group_members)


def test_a_failover_changes_nothing() -> None:
    harness = world_with(t=4)
    a, b = Client(harness, "a", "t"), Client(harness, "b", "t")
    a.beat()
    b.beat()
    a.beat()
    before = facts(membership(harness).group_members)
    harness.fail_over()
    assert facts(membership(harness).group_members) == before
    assert ("rebalance", "a") in membership(harness).armed
    settle(harness, a, b)
    assert not a.owned & b.owned
    harness.time.advance(SESSION_MS)
    assert membership(harness).state.value == "Empty"


def test_waiting_requests_return_not_coordinator_when_the_coordinator_moves() -> None:
    harness = world_with(t=1)
    harness.log.hold = True
    slot = beat(harness, "a", 0, rebalance_timeout_ms=1, names=("t",), owned={})
    harness.coordinator.runtime.unload(0)
    assert slot.answer.error is ErrorCode.NOT_COORDINATOR
    harness.log.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert len(slot.answers) == 1


def test_the_topics_of_a_member_become_a_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20,000 topics, each heartbeat made a set."""
    harness = world_with(t=2)
    a = Client(harness, "a", "t")
    a.beat()
    steps = membership(harness).steps
    topics = steps.target.subscribed(membership(harness).group_members.members["a"]).as_set

    def empty(*items: object) -> frozenset[Any]:
        assert not items, "a heartbeat makes a set"
        return frozenset()

    monkeypatch.setattr(consumer_group_steps, "frozenset", empty, raising=False)
    a.beat()
    assert steps.target.subscribed(membership(harness).group_members.members["a"]).as_set is topics
    assert a.owned
