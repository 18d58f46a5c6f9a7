"""Membership in a group, on Odradek and on Apache Kafka 3.9.2: assignments, notifications and rejected requests."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.streams.errors import StreamsError
from odradek.streams.group import committed_offsets
from odradek.streams.group.committed_offsets import CommittingMember
from odradek.streams.group.connection import CoordinatorLink, parse_bootstrap
from odradek.streams.group.group_protocol import MemberSubscription
from odradek.streams.group.membership import (
    Assigned,
    CommitFailed,
    CommitFailure,
    GroupMember,
    MembershipError,
    RebalanceNeeded,
)
from tests.jvm.kafka import Kafka, running_kafka
from tests.jvm.tools import run_tool
from tests.streams.group_member import PARTITIONS, deal
from tests.streams.membership_group import DEADLINE_S, TOPIC, Group, notified, numbers
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

QUICK = {"group.min.session.timeout.ms": "200", "group.initial.rebalance.delay.ms": "0"}

Broker = BrokerProcess | Kafka


@pytest.fixture(scope="module", params=["odradek", pytest.param("kafka", marks=pytest.mark.jvm)])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("membership")
    overrides = {**QUICK, "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with ExitStack() as stack:
        running: Broker
        if request.param == "kafka":
            running = stack.enter_context(running_kafka(folder, QUICK))
        else:
            running = stack.enter_context(BrokerProcess(folder, overrides))
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])[TOPIC].result(
            DEADLINE_S
        )
        yield running


@pytest.fixture
def group(broker: Broker) -> Iterator[Group]:
    made = Group(broker.bootstrap)
    yield made
    made.close()


def test_the_first_member_leads_itself(group: Group) -> None:
    member = group.member(b"alone")
    assert member.generation == -1
    (event,) = group.settle(member)
    assert numbers(event) == [0, 1, 2, 3]
    assert event.userdata == b"to alone"
    assert event.leader
    assert (event.generation, event.member_id) == (member.generation, member.member_id)
    assert member.poll(0.2) is None, "heartbeats change nothing"


def test_a_second_member_and_its_leave(group: Group) -> None:
    first = group.member()
    group.settle(first)
    second = group.member()
    assert notified(first, second) == RebalanceNeeded("the group is rebalancing", lost=False)
    first.commit({(TOPIC, 0): (7, 3, "before it joins again")})
    first.rejoin()
    both = group.settle(first, second)
    assert [numbers(event) for event in both] == [[0, 2], [1, 3]]
    assert [event.leader for event in both] == [True, False]
    second.leave()
    assert not notified(first).lost
    first.rejoin()
    (alone,) = group.settle(first)
    assert numbers(alone) == [0, 1, 2, 3]
    committed = first.fetch_committed([(TOPIC, 0), (TOPIC, 1)])
    assert committed == {(TOPIC, 0): (7, "before it joins again", 3)}


def test_a_closed_member_leaves_only_if_it_is_configured_to(group: Group) -> None:
    first, second = group.member(session_timeout_ms=5_000), group.member(session_timeout_ms=700)
    third = group.member(leave_group_on_close=True)
    group.settle(first, second, third)
    third.close()
    assert not notified(first).lost  # the second may have been notified before, and does not send a JoinGroup
    first.rejoin()
    second.close()  # while the others join
    (event,) = group.settle(first)
    assert numbers(event) == [0, 1, 2, 3], "the second was removed after its session timeout"


def test_a_killed_process_is_detected(broker: Broker, group: Group) -> None:
    member = group.member(b"a")
    group.settle(member)
    program = Path(__file__).with_name("group_member.py")
    command = [sys.executable, str(program), broker.bootstrap, group.name, TOPIC]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            (event,) = _rejoined(group, member)
            assert numbers(event) == [0, 2]
            assert process.stdout is not None
            assert process.stdout.readline().split() == [str(event.generation), "1", "3"]
        finally:
            process.kill()
    (event,) = _rejoined(group, member)
    assert numbers(event) == [0, 1, 2, 3]


def test_a_static_member_comes_back_to_its_tasks_without_a_rebalance(group: Group) -> None:
    first, second = group.member(group_instance_id="one"), group.member(group_instance_id="two")
    before = group.settle(first, second)
    for leaver, event in ((second, before[1]), (first, before[0])):  # a follower, and the leader
        instance = "two" if leaver is second else "one"
        old = leaver.member_id
        leaver.close()
        back = group.member(event.userdata.removeprefix(b"to "), group_instance_id=instance)
        (again,) = group.settle(back)
        assert (again.partitions, again.generation) == (event.partitions, event.generation)
        assert back.member_id != old
        if leaver is second:
            assert first.poll(0.3) is None
        else:
            assert group.members[2].poll(0.3) is None


def test_a_static_member_is_fenced_by_its_successor(group: Group) -> None:
    first = group.member(b"same", group_instance_id="one")
    group.settle(first)
    second = group.member(b"same", group_instance_id="one")
    group.settle(second)
    with pytest.raises(MembershipError, match=r"another process has joined .* group\.instance\.id one") as caught:
        eventually(lambda: first.poll(0.1))
    assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID
    with pytest.raises(CommitFailed) as refused:
        first.commit({(TOPIC, 0): (1, None, "")})
    assert refused.value.kind is CommitFailure.FENCED


def test_a_coordinator_that_restarts_causes_no_rebalance(broker: Broker, group: Group) -> None:
    first, second = group.member(session_timeout_ms=30_000), group.member(session_timeout_ms=30_000)
    before = group.settle(first, second)
    broker.restart()
    first.commit({(TOPIC, 0): (11, None, "after")})
    assert first.fetch_committed([(TOPIC, 0)])[(TOPIC, 0)].offset == 11
    assert first.poll(0.3) is None
    assert second.poll() is None
    assert (first.generation, second.generation) == (before[0].generation,) * 2


def test_a_coordinator_that_restarts_in_the_middle_of_a_rebalance(broker: Broker, group: Group) -> None:
    first = group.member(session_timeout_ms=30_000)
    group.settle(first)
    second = group.member(session_timeout_ms=30_000)
    assert not notified(first, second).lost
    broker.restart()
    first.rejoin()
    both = group.settle(first, second)
    assert sorted(map(numbers, both)) == [[0, 2], [1, 3]]


def test_a_stale_commit_is_rejected(group: Group) -> None:
    first = group.member()
    group.settle(first)
    old = CommittingMember(first.generation, first.member_id)
    second = group.member()
    group.settle(first, second)
    link = _link(group)
    with pytest.raises(CommitFailed, match=r"ILLEGAL_GENERATION.*membership-0") as caught:
        committed_offsets.commit(link, group.config(), old, {(TOPIC, 0): (1, None, "")})
    assert caught.value.kind is CommitFailure.MIGRATED
    with pytest.raises(CommitFailed, match="UNKNOWN_MEMBER_ID"):
        committed_offsets.commit(
            link, group.config(), CommittingMember(first.generation, "who"), {(TOPIC, 0): (1, None, "")}
        )
    link.forget()
    assert first.fetch_committed([(TOPIC, 0)]) == {}


def test_a_removed_member_loses_its_tasks_and_comes_back(group: Group) -> None:
    member = group.member(heartbeat_interval_ms=1_500)  # the commit notices before a heartbeat does
    group.settle(member)
    old = member.member_id
    _throw_out(group, old)
    with pytest.raises(CommitFailed) as caught:
        member.commit({(TOPIC, 0): (1, None, "")})
    assert (caught.value.kind, caught.value.code) == (CommitFailure.MIGRATED, ErrorCode.UNKNOWN_MEMBER_ID)
    member.rejoin()  # by mistake: it has not been notified yet that its tasks are lost
    assert member.poll(DEADLINE_S) == RebalanceNeeded("UNKNOWN_MEMBER_ID", lost=True)
    member.rejoin()
    (event,) = group.settle(member)
    assert event.member_id != old


def test_a_heartbeat_detects_the_removal_of_the_member(group: Group) -> None:
    member = group.member()
    group.settle(member)
    _throw_out(group, member.member_id)
    assert notified(member) == RebalanceNeeded("UNKNOWN_MEMBER_ID", lost=True)


def test_a_member_that_is_removed_while_it_joins_loses_its_tasks_too(group: Group) -> None:
    first = group.member()
    group.settle(first)
    second = group.member()
    assert not notified(first, second).lost
    _throw_out(group, first.member_id)
    first.rejoin()
    assert notified(first).lost
    first.rejoin()
    assert sorted(map(numbers, group.settle(first, second))) == [[0, 2], [1, 3]]


def test_a_transaction_of_an_old_generation_is_fenced(broker: Broker, group: Group) -> None:
    first = group.member()
    group.settle(first)
    old = first.group_metadata
    second = group.member()
    group.settle(first, second)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": group.name})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 5)], old, DEADLINE_S)
    assert caught.value.args[0].code() == ErrorCode.ILLEGAL_GENERATION
    producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 6)], first.group_metadata, DEADLINE_S)
    assert first.fetch_committed([(TOPIC, 0)], require_stable=False) == {}
    producer.commit_transaction(DEADLINE_S)
    assert first.fetch_committed([(TOPIC, 0)])[(TOPIC, 0)].offset == 6, "it waits for the transaction's end"


def test_a_member_of_another_kind_is_rejected_with_a_clear_error(broker: Broker, group: Group) -> None:
    group.settle(group.member())
    stranger = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group.name, "session.timeout.ms": 6000})
    errors: list[Any] = []
    try:
        stranger.subscribe([TOPIC])

        def refused() -> bool:
            message = stranger.poll(0.2)
            error = message.error() if message is not None else None
            if error is not None:
                errors.append(error.code())
            return bool(errors)

        eventually(refused)
    finally:
        stranger.close()
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL in errors

    other = Group(broker.bootstrap)
    plain = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": other.name})
    try:
        plain.subscribe([TOPIC])
        eventually(lambda: plain.poll(0.1) is None and plain.assignment())
        member = other.member()
        with pytest.raises(MembershipError, match=r"One application\.id belongs to one kind of application"):
            eventually(lambda: member.poll(0.1))
    finally:
        other.close()
        plain.close()


def test_a_member_that_does_not_poll_leaves(group: Group) -> None:
    idle = group.member(b"a", max_poll_interval_ms=400)
    group.settle(idle)
    other = group.member(b"b")
    group.settle(idle, other)
    assert not notified(other).lost  # `idle` polls no more
    other.rejoin()
    (event,) = group.settle(other)
    assert numbers(event) == [0, 1, 2, 3]
    lost = idle.poll()
    assert isinstance(lost, RebalanceNeeded)
    assert lost.lost
    assert "max.poll.interval.ms (400 ms)" in lost.reason


def test_a_slow_leader_is_not_removed(group: Group) -> None:
    taken: list[float] = []

    def slowly(members: dict[str, MemberSubscription]) -> dict[str, tuple[list[tuple[str, int]], bytes]]:
        start = time.monotonic()
        threading.Event().wait(1.5)  # three session timeouts: the expected result is that nothing happens
        taken.append(time.monotonic() - start)
        return deal(TOPIC, members)

    leader = GroupMember(group.config(session_timeout_ms=500), lambda: ([TOPIC], b""), slowly)
    group.members.append(leader)
    leader.rejoin()
    (event,) = group.settle(leader)
    assert numbers(event) == [0, 1, 2, 3]
    assert event.generation == 1
    assert len(taken) == 1


def test_a_rebalance_on_request(group: Group) -> None:
    leader, follower = group.member(), group.member()
    before = group.settle(leader, follower)
    follower.request_rejoin("probing")
    assert notified(follower, leader) == RebalanceNeeded("probing", lost=False)
    group.userdata[1] = b"member 1 says more"  # without it a follower starts no rebalance
    follower.rejoin()
    assert not notified(leader, follower).lost
    leader.request_rejoin("while one is under way")
    leader.rejoin()
    after = group.settle(leader, follower)
    assert after[0].generation > before[0].generation
    assert after[1].userdata == b"to member 1 says more"
    leader.request_rejoin("topics have changed")
    assert notified(leader, follower).reason == "topics have changed"


def test_closing_in_the_middle_of_a_rebalance_does_not_wait(group: Group) -> None:
    first = group.member()
    group.settle(first)
    second = group.member()
    assert not notified(first, second).lost
    start = time.monotonic()
    second.close()  # it waits for the first, which does not come
    assert time.monotonic() - start < 2
    with pytest.raises(StreamsError, match="is closed"):
        second.poll()


@pytest.mark.jvm
def test_the_stock_tool_describes_the_members(broker: Broker, group: Group) -> None:
    members = group.member(group_instance_id="left", client_id="one"), group.member(client_id="two")
    group.settle(*members)
    members[0].commit({(TOPIC, 0): (0, None, "")})
    where = ["--bootstrap-server", broker.bootstrap, "--describe", "--group", group.name]
    lines = run_tool("3.9.2", "kafka-consumer-groups", [*where, "--members", "--verbose"]).stdout.splitlines()
    text = "\n".join(lines)
    for member, parts in zip(members, ("(0,2)", "(1,3)"), strict=True):
        # The tool of 3.9 leaves the topic's name out, of every group.
        assert any(member.member_id in line and line.split()[-1].removeprefix(TOPIC) == parts for line in lines), text
    offsets = run_tool("3.9.2", "kafka-consumer-groups", where).stdout
    assert any(members[0].member_id in line and line.split()[1:4] == [TOPIC, "0", "0"] for line in offsets.splitlines())
    state = run_tool("3.9.2", "kafka-consumer-groups", [*where, "--state"]).stdout
    assert "odradek-streams" in state
    assert "Stable" in state


def _rejoined(group: Group, member: GroupMember) -> list[Assigned]:
    """The next assignment, after the rebalance that comes before it."""
    assert not notified(member).lost
    member.rejoin()
    return group.settle(member)


def _link(group: Group) -> CoordinatorLink:
    return CoordinatorLink(parse_bootstrap(group.bootstrap), group.name, "test", DEADLINE_S)


def _throw_out(group: Group, member_id: str) -> None:
    """The call of an administrator's removeMembersFromConsumerGroup."""
    link = _link(group)
    answer = link.ask(
        m.LeaveGroupRequest(group_id=group.name, members=[m.LeaveGroupRequest.MemberIdentity(member_id=member_id)])
    )
    link.forget()
    assert answer.error_code == 0
    assert [member.error_code for member in answer.members] == [0]
