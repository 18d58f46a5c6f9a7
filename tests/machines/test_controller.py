"""The controller machine: scenarios as transcripts, and any order of events with controllers that die in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.broker.controller.state.controller import ControllerMachine
from odradek.broker.controller.state.partition_state_machine import check_transition, is_legal
from odradek.broker.controller.state.reassignment import check_target
from odradek.broker.controller.state.steps import Steps
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import NodeExistsError, Set
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.machines.controller_harness import Harness, replicas

T0 = ("t", 0)


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    for broker_id in (0, 1, 2):
        harness.start(broker_id)
    harness.elect()
    harness.make_topic("t", {0: replicas(0, 1, 2), 1: replicas(1, 2, 0)})
    harness.run(lambda machine: machine.topics_changed([]))
    harness.sent.clear()
    return harness


def notified(harness: Harness, kind: type) -> list[int]:
    return sorted(broker_id for broker_id, message in harness.sent if isinstance(message, kind))


def offline(harness: Harness, partition: tuple[str, int]) -> list[int]:
    """The offline replicas of a partition, as last sent to all brokers."""
    notified: dict[int, list[int]] = {}
    for broker_id, message in harness.sent:
        if isinstance(message, m.UpdateMetadataRequest):
            for topic in message.topic_states:
                for each in topic.partition_states:
                    if (topic.topic_name, each.partition_index) == partition:
                        notified[broker_id] = each.offline_replicas
    assert set(notified) >= set(harness.machine.context.brokers), "a broker was not notified"
    here = [notified[each] for each in harness.machine.context.brokers]
    assert all(each == here[0] for each in here)
    return here[0]


def summary(state: znodes.PartitionState) -> tuple[int, int, tuple[int, ...]]:
    return state.leader, state.leader_epoch, state.isr


def test_a_new_topic_is_led_by_its_preferred_leaders(harness: Harness) -> None:
    assert summary(harness.state(T0)) == (0, 0, (0, 1, 2))
    assert summary(harness.state(("t", 1))) == (1, 0, (1, 2, 0))


def test_a_lost_leader_is_replaced_within_the_isr_and_comes_back_as_a_follower(harness: Harness) -> None:
    harness.stop(0)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (1, 1, (1, 2))
    assert summary(harness.state(("t", 1))) == (1, 1, (1, 2))
    assert notified(harness, m.LeaderAndIsrRequest) == [1, 2]
    harness.sent.clear()
    harness.start(0)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (1, 1, (1, 2)), "it has to catch up first"
    assert notified(harness, m.LeaderAndIsrRequest) == [0]
    assert notified(harness, m.UpdateMetadataRequest) == [0, 1, 2]
    assert harness.alter(T0, (1, 2, 0)).error_code == 0
    assert summary(harness.state(T0)) == (1, 1, (1, 2, 0)), "an ISR is no election"
    harness.run(lambda machine: machine.elections.balance())
    assert summary(harness.state(T0)) == (0, 2, (1, 2, 0))


def test_a_leader_that_restarted_between_two_snapshots_does_not_stay_leader(harness: Harness) -> None:
    harness.stop(0)
    harness.start(0)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (1, 1, (1, 2)), "it may have lost unsynced records"


def test_the_next_controller_detects_a_broker_that_restarted_before_it(harness: Harness) -> None:
    harness.stop(0)
    harness.start(0)
    harness.elect()
    assert summary(harness.state(T0)) == (1, 1, (1, 2))


def test_an_isr_is_not_written_over_a_member_that_has_just_restarted(harness: Harness) -> None:
    harness.alter(T0, (0, 1))
    harness.stop(1)
    harness.start(1)  # and the controller has not been notified of it
    assert harness.alter(T0, (0, 1, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA
    old = harness.alter(T0, (0, 1, 2), by_id=False)
    assert old.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED, "before version 2 there was no other code"


def test_the_last_in_sync_replica_is_waited_for(harness: Harness) -> None:
    harness.alter(T0, (0,))
    harness.stop(0)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (-1, 1, (0,))
    harness.start(0)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (0, 2, (0,))


def test_an_unclean_election_on_request_loses_records_that_only_the_others_had(harness: Harness) -> None:
    harness.alter(T0, (0,))
    harness.stop(0)
    harness.run(ControllerMachine.brokers_changed)
    results = harness.run(lambda machine: machine.elections.elect_unclean([T0, ("t", 1), ("t", 7)]))
    assert results == {
        T0: ErrorCode.NONE,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    state = harness.state(T0)
    assert (summary(state), state.is_recovering) == ((1, 2, (1,)), True)


def test_unclean_leader_election_enable_of_a_topic_takes_effect_at_once(harness: Harness) -> None:
    path = znodes.config_path("topics/t")
    harness.tree.submit(
        harness.session,
        [Set(path, znodes.encode_config({"unclean.leader.election.enable": "true"}))],
        0,
    )
    harness.alter(T0, (0,))
    harness.stop(0)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (1, 1, (1,))


def test_unclean_leader_election_enable_of_the_cluster_takes_effect_except_where_a_topic_overrides_it(
    harness: Harness,
) -> None:
    harness.alter(T0, (0,))
    harness.stop(0)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (-1, 1, (0,))
    harness.run(lambda machine: machine.elections.unclean_default_changed(True))
    assert summary(harness.state(T0)) == (1, 2, (1,))
    harness.run(lambda machine: machine.elections.unclean_default_changed(False))
    harness.stop(1)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (-1, 3, (1,))
    path = znodes.config_path("topics/t")
    refuses = znodes.encode_config({"unclean.leader.election.enable": "false"})
    harness.tree.submit(harness.session, [Set(path, refuses)], 0)
    harness.run(lambda machine: machine.elections.unclean_default_changed(True))
    assert summary(harness.state(T0)) == (-1, 3, (1,))


def test_controlled_shutdown_moves_leaders(harness: Harness) -> None:
    left = harness.run(lambda machine: machine.controlled_shutdown(0, harness.epochs[0]))
    assert left == []
    assert summary(harness.state(T0)) == (1, 1, (1, 2))
    assert notified(harness, m.StopReplicaRequest) == [0]
    with pytest.raises(KafkaError) as refused:
        harness.run(lambda machine: machine.controlled_shutdown(0, harness.epochs[0] - 1))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_reassignment_adds_waits_and_removes(harness: Harness) -> None:
    harness.start(3)
    harness.run(ControllerMachine.brokers_changed)
    assert harness.run(lambda machine: machine.reassignments.reassign({T0: (3, 1)})) == {T0: None}
    assert harness.assignment(T0) == znodes.ReplicaAssignment((3, 1, 0, 2), (3,), (0, 2))
    assert harness.machine.reassignments.under_way() == {T0: harness.assignment(T0)}
    epoch = harness.state(T0).leader_epoch
    assert harness.run(lambda machine: machine.reassignments.reassign({T0: (3, 1)})) == {T0: None}
    assert harness.state(T0).leader_epoch == epoch, "the same request again changes nothing"
    harness.sent.clear()
    harness.alter(T0, (0, 1, 2, 3))
    assert harness.assignment(T0) == znodes.ReplicaAssignment((3, 1))
    assert set(harness.state(T0).isr) == {1, 3}
    assert harness.state(T0).leader == 3
    assert harness.state(T0).leader_epoch == epoch + 2, (
        "one for the election, one for the final assignment, as in Kafka"
    )
    assert notified(harness, m.StopReplicaRequest) == [0, 2]


def test_a_cancelled_reassignment_restores_the_old_replicas(harness: Harness) -> None:
    harness.start(3)
    harness.run(ControllerMachine.brokers_changed)
    harness.run(lambda machine: machine.reassignments.reassign({T0: (3, 1)}))
    assert harness.run(lambda machine: machine.reassignments.reassign({T0: None})) == {T0: None}
    assert sorted(harness.assignment(T0).replicas) == [0, 1, 2]
    assert not harness.machine.reassignments.under_way()
    assert set(harness.state(T0).isr) == {0, 1, 2}


def moving() -> Harness:
    """A partition on its way from brokers 0 and 1 to 2 and 3; 2 is in sync already."""
    harness = Harness()
    for broker_id in (0, 1, 2, 3):
        harness.start(broker_id)
    harness.elect()
    harness.make_topic("t", {0: replicas(0, 1)})
    harness.run(lambda machine: machine.topics_changed([]))
    harness.run(lambda machine: machine.reassignments.reassign({T0: (2, 3)}))
    harness.alter(T0, (0, 1, 2))
    harness.sent.clear()
    return harness


def test_a_reassignment_is_not_cancelled_where_only_a_new_replica_has_every_record() -> None:
    harness = moving()
    for broker_id in (0, 1):
        harness.stop(broker_id)
        harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (2, 3, (2,))
    for pending in (None, (0, 3)):
        results = harness.run(lambda machine, pending=pending: machine.reassignments.reassign({T0: pending or None}))
        refusal = results[T0]
        assert refusal is not None
        assert refusal.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 2 would delete the only good copy"
    assert notified(harness, m.StopReplicaRequest) == []
    assert summary(harness.state(T0)) == (2, 3, (2,))
    harness.check()
    for broker_id in (0, 1):
        harness.start(broker_id)
        harness.run(ControllerMachine.brokers_changed)
    harness.alter(T0, (2, 0))
    assert harness.run(lambda machine: machine.reassignments.reassign({T0: None})) == {T0: None}
    assert (harness.state(T0).leader, harness.state(T0).isr) == (0, (0,))
    assert notified(harness, m.StopReplicaRequest) == [2, 3]


@pytest.mark.parametrize("steps", range(6))
def test_a_controller_that_dies_during_a_cancellation_leaves_no_leader_outside_the_assignment(steps: int) -> None:
    harness = moving()
    harness.run(lambda machine: machine.elections.elect_preferred(None))
    assert harness.state(T0).leader == 2
    harness.cut(lambda machine: machine.reassignments.reassign({T0: None}), steps)
    harness.check()
    assert harness.state(T0).leader in harness.assignment(T0).replicas


def test_a_new_target_deletes_replicas_in_neither_assignment() -> None:
    harness = moving()
    assert harness.run(lambda machine: machine.reassignments.reassign({T0: (3, 0)})) == {T0: None}
    assert harness.assignment(T0) == znodes.ReplicaAssignment((3, 0, 1), (3,), (1,))
    assert notified(harness, m.StopReplicaRequest) == [2]
    assert set(harness.state(T0).isr) == {0, 1}


def test_a_topic_is_deleted_when_its_last_replica_is_gone(harness: Harness) -> None:
    harness.stop(2)
    harness.run(ControllerMachine.brokers_changed)
    harness.make(znodes.delete_topic_path("t"))
    harness.run(lambda machine: machine.topic_deletion.deletions_changed())
    assert harness.tree.exists(znodes.topic_path("t")) is not None, "a replica is away"
    harness.start(2)
    harness.run(ControllerMachine.brokers_changed)
    assert harness.tree.exists(znodes.topic_path("t")) is None
    assert harness.tree.exists(znodes.config_path("topics/t")) is None
    assert harness.tree.children(znodes.DELETE_TOPICS)[0] == []


def test_a_failed_disk_is_handled_as_a_lost_replica(harness: Harness) -> None:
    harness.make(znodes.LOG_DIR_EVENT_PREFIX + "0", znodes.encode_log_dir_event(0))
    harness.run(lambda machine: machine.notifications.log_dirs_changed())
    assert notified(harness, m.LeaderAndIsrRequest) == [0], "a control request follows, because it may have lost logs"
    harness.lose_disk(0, [T0], code=ErrorCode.KAFKA_STORAGE_ERROR)
    assert summary(harness.state(T0)) == (1, 1, (1, 2))
    assert summary(harness.state(("t", 1))) == (1, 0, (1, 2, 0)), "its other disk works"
    assert offline(harness, T0) == [0]
    harness.lose_disk(0, [T0], code=ErrorCode.NONE)
    assert offline(harness, T0) == []


def test_the_only_complete_replica_stays_in_the_isr_when_it_leaves_with_a_failed_disk(harness: Harness) -> None:
    harness.alter(T0, (0,))
    harness.lose_disk(0, [T0], code=ErrorCode.KAFKA_STORAGE_ERROR)
    assert summary(harness.state(T0)) == (-1, 1, (0,))
    harness.run(lambda machine: machine.controlled_shutdown(0, -1))
    assert summary(harness.state(T0)) == (-1, 1, (0,))


def test_metadata_lists_an_offline_replica_that_was_not_in_sync(harness: Harness) -> None:
    harness.alter(T0, (0, 1))
    harness.sent.clear()
    harness.stop(2)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (0, 0, (0, 1))
    assert offline(harness, T0) == [2]
    harness.start(2)
    harness.run(ControllerMachine.brokers_changed)
    assert offline(harness, T0) == []


def test_a_topic_without_an_id_gets_one(harness: Harness) -> None:
    harness.make_topic("old", {0: replicas(0)})
    harness.tree.submit(
        harness.session, [Set(znodes.topic_path("old"), znodes.TopicAssignment(None, {0: replicas(0)}).encode())], 0
    )
    harness.run(lambda machine: machine.topics_changed([bytes([7] * 16)]))
    named = znodes.TopicAssignment.decode(harness.tree.get(znodes.topic_path("old"))[0])
    assert named.topic_id == harness.machine.context.topic_ids["old"] == bytes([7] * 16)


def test_nodes_written_by_a_tool_are_applied(harness: Harness) -> None:
    """kafka-reassign-partitions and kafka-preferred-replica-election of Kafka 2.8, and --alter --partitions."""
    harness.start(3)
    harness.run(ControllerMachine.brokers_changed)
    harness.make(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({T0: (3, 0), ("nothing", 0): (0,)}))
    harness.run(lambda machine: machine.notifications.reassignment_requested())
    assert harness.tree.exists(znodes.REASSIGN_PARTITIONS) is None
    assert harness.alter(T0, (0, 1, 2, 3)).error_code == 0
    assert harness.assignment(T0) == znodes.ReplicaAssignment((3, 0))
    harness.run(lambda machine: machine.controlled_shutdown(3, -1))
    assert harness.state(T0).leader == 0
    harness.stop(3)
    harness.run(ControllerMachine.brokers_changed)
    harness.start(3)
    harness.run(ControllerMachine.brokers_changed)
    harness.alter(T0, (0, 3))
    harness.make(znodes.PREFERRED_REPLICA_ELECTION, znodes.encode_partitions([T0, ("nothing", 0)]))
    harness.run(lambda machine: machine.notifications.preferred_election_requested())
    assert harness.tree.exists(znodes.PREFERRED_REPLICA_ELECTION) is None
    assert harness.state(T0).leader == 3
    data, _ = harness.tree.get(znodes.topic_path("t"))
    node = znodes.TopicAssignment.decode(data)
    grown = znodes.TopicAssignment(node.topic_id, {**node.partitions, 2: replicas(2, 0)})
    harness.tree.submit(harness.session, [Set(znodes.topic_path("t"), grown.encode())], 0)
    harness.run(lambda machine: machine.partitions_changed("t"))
    assert summary(harness.state(("t", 2))) == (2, 0, (2, 0))


def test_an_isr_that_an_older_broker_wrote_itself_is_sent_to_all(harness: Harness) -> None:
    harness.write_state(T0, harness.state(T0)._replace(isr=(0, 2)))
    harness.run(lambda machine: machine.notifications.isr_changed())
    assert harness.tree.children(znodes.ISR_CHANGES)[0] == []
    assert notified(harness, m.UpdateMetadataRequest) == [0, 1, 2]
    harness.stop(0)
    harness.run(ControllerMachine.brokers_changed)
    assert summary(harness.state(T0)) == (2, 1, (2,))


def test_leaders_are_balanced_only_above_the_imbalance_threshold(harness: Harness) -> None:
    harness.stop(0)
    harness.run(ControllerMachine.brokers_changed)
    harness.start(0)
    harness.run(ControllerMachine.brokers_changed)
    harness.run(lambda machine: machine.elections.balance())
    assert harness.state(T0).leader == 1, "it is not in sync yet"
    harness.alter(T0, (1, 2, 0))
    harness.run(lambda machine: machine.elections.balance())
    assert [harness.state(("t", index)).leader for index in (0, 1)] == [0, 1]
    before = harness.states()
    harness.run(lambda machine: machine.elections.balance())
    assert harness.states() == before


def test_stale_requests_are_refused_with_kafkas_codes(harness: Harness) -> None:
    harness.stop(0)
    harness.run(ControllerMachine.brokers_changed)
    state = harness.state(T0)
    codes = []
    for broker_id, epoch, version in ((1, 0, 1), (1, 9, 1), (1, state.leader_epoch, 0), (2, state.leader_epoch, 1)):
        pending = m.AlterPartitionRequest.PartitionData(
            partition_index=0,
            leader_epoch=epoch,
            partition_epoch=version,
            new_isr_with_epochs=[m.AlterPartitionRequest.BrokerState(broker_id=1)],
        )
        topic = m.AlterPartitionRequest.TopicData(topic_name="t", partitions=[pending])
        request = m.AlterPartitionRequest(broker_id=broker_id, broker_epoch=harness.epochs[broker_id], topics=[topic])
        response = harness.run(lambda machine, request=request: machine.alter_partition.handle(request, by_id=False))
        codes.append(ErrorCode(response.topics[0].partitions[0].error_code))
    assert codes == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
    ]
    stale = m.AlterPartitionRequest(broker_id=1, broker_epoch=harness.epochs[1] - 1)
    assert harness.run(lambda machine: machine.alter_partition.handle(stale, by_id=False)).error_code == (
        ErrorCode.STALE_BROKER_EPOCH
    )


BROKER = st.integers(0, 3)
STEPS = st.one_of(st.none(), st.integers(0, 12))
LED = znodes.PartitionState(1, 5, (1, 2), 3)


@pytest.mark.parametrize(
    "new",
    [
        LED._replace(leader_epoch=4),
        LED._replace(leader_epoch=7),
        LED._replace(leader=2),
        LED._replace(leader=3, leader_epoch=6),
        LED._replace(isr=(2,), leader_epoch=6),
        LED._replace(isr=(1, 4)),
        LED._replace(leader=-1, isr=(), leader_epoch=6),
    ],
    ids=[
        "epoch falls",
        "epoch is skipped",
        "another leader in the same epoch",
        "leader outside of the replicas' ISR",
        "leader leaves the ISR",
        "ISR outside of the replicas",
        "no ISR",
    ],
)
def test_an_illegal_transition_of_a_partition_is_never_written(new: znodes.PartitionState) -> None:
    with pytest.raises(AssertionError, match=r"of \('t', 0\)"):
        check_transition(T0, LED, new, (1, 2, 3))


def test_legal_transitions_and_those_from_a_state_that_was_illegal_already() -> None:
    for new in (
        LED,
        LED._replace(isr=(1,)),
        LED._replace(isr=(1, 2, 3)),
        LED._replace(leader=2, leader_epoch=6, isr=(2,)),
        LED._replace(leader=-1, leader_epoch=6),
    ):
        check_transition(T0, LED, new, (1, 2, 3))
    written_by_hand = LED._replace(isr=(2, 9))
    assert not is_legal(written_by_hand, (1, 2, 3))
    check_transition(T0, written_by_hand, written_by_hand._replace(leader_epoch=6), (1, 2, 3))


Event = Callable[[ControllerMachine], Steps[Any]]


class Cluster(RuleBasedStateMachine):
    """Any event at any time, and a controller that may die after any step of it."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness()
        for broker_id in (0, 1, 2):
            self.harness.start(broker_id)
        self.harness.elect()
        self.topics = 0

    def event(self, event: Event, steps: int | None) -> None:
        if steps is None:
            self.harness.run(event)
        else:
            self.harness.cut(event, steps)

    @precondition(lambda self: self.topics < 3)
    @rule(order=st.permutations(range(3)), steps=STEPS)
    def make_topic(self, order: list[int], steps: int | None) -> None:
        self.topics += 1
        self.harness.make_topic(f"t{self.topics}", {0: replicas(*order), 1: replicas(*order[:2])})
        self.event(lambda machine: machine.topics_changed([]), steps)

    @rule(broker=BROKER, steps=STEPS, received=st.booleans())
    def come_or_go(self, broker: int, steps: int | None, received: bool) -> None:
        if broker in self.harness.epochs:
            self.harness.stop(broker)
        else:
            self.harness.start(broker)
        if received:
            self.event(ControllerMachine.brokers_changed, steps)

    @rule(broker=BROKER, steps=STEPS)
    def bounce(self, broker: int, steps: int | None) -> None:
        if broker in self.harness.epochs:
            self.harness.stop(broker)
            self.harness.start(broker)
            self.event(ControllerMachine.brokers_changed, steps)

    @rule(which=st.integers(0, 5), isr=st.sets(BROKER, min_size=1))
    def pending(self, which: int, isr: set[int]) -> None:
        states = sorted(self.harness.states())
        if states:
            partition = states[which % len(states)]
            leader = self.harness.state(partition).leader
            self.harness.alter(partition, tuple(sorted({leader, *isr} - {-1})))

    @rule(steps=STEPS)
    def elect_preferred(self, steps: int | None) -> None:
        self.event(lambda machine: machine.elections.elect_preferred(None), steps)

    @rule(which=st.integers(0, 5), to=st.one_of(st.none(), st.permutations(range(4))), steps=STEPS)
    def reassign(self, which: int, to: list[int] | None, steps: int | None) -> None:
        states = sorted(self.harness.states())
        if states:
            wanted = None if to is None else tuple(to[:2])
            partition = states[which % len(states)]
            self.harness.asked_for_more.add(partition)
            self.event(lambda machine: machine.reassignments.reassign({partition: wanted}), steps)

    @rule(broker=BROKER, which=st.integers(0, 5), works=st.booleans())
    def disk(self, broker: int, which: int, works: bool) -> None:
        states = sorted(self.harness.states())
        if states and broker in self.harness.epochs:
            partition = states[which % len(states)]
            code = ErrorCode.NONE if works else ErrorCode.KAFKA_STORAGE_ERROR
            if partition[0] in self.harness.machine.context.topic_ids:
                self.harness.lose_disk(broker, [partition], code=code)

    @rule(which=st.integers(0, 5), isr=st.sets(BROKER, min_size=1), steps=STEPS)
    def older_leader(self, which: int, isr: set[int], steps: int | None) -> None:
        """A leader of a broker with an older protocol shrinks the ISR itself, and the controller is notified later."""
        states = sorted(self.harness.states())
        if states:
            partition = states[which % len(states)]
            state = self.harness.state(partition)
            rest = tuple(each for each in state.isr if each in isr or each == state.leader)
            if state.leader != -1 and rest != state.isr:
                self.harness.write_state(partition, state._replace(isr=rest))
                self.event(lambda machine: machine.notifications.isr_changed(), steps)

    @rule(steps=STEPS)
    def balance(self, steps: int | None) -> None:
        self.event(lambda machine: machine.elections.balance(), steps)

    @rule(steps=STEPS)
    def elect_unclean(self, steps: int | None) -> None:
        """A client requests an unclean election."""
        for partition, state in self.harness.states().items():
            if state.leader not in self.harness.epochs:
                self.harness.asked_for_more.add(partition)
        self.event(lambda machine: machine.elections.elect_unclean(None), steps)

    @rule(broker=BROKER, steps=STEPS)
    def leave(self, broker: int, steps: int | None) -> None:
        if broker in self.harness.machine.context.brokers:
            self.event(lambda machine: machine.controlled_shutdown(broker, -1), steps)

    @precondition(lambda self: self.topics)
    @rule(number=st.integers(1, 3), steps=STEPS)
    def delete(self, number: int, steps: int | None) -> None:
        try:
            self.harness.make(znodes.delete_topic_path(f"t{number}"))
        except NodeExistsError:
            return
        self.event(lambda machine: machine.topic_deletion.deletions_changed(), steps)

    @rule(steps=STEPS)
    def fail_over(self, steps: int | None) -> None:
        self.harness.elect(steps=steps)

    @invariant()
    def promises(self) -> None:
        self.harness.check()

    def teardown(self) -> None:
        """All brokers come back, and the cluster becomes stable."""
        harness = self.harness
        for broker_id in range(4):
            if broker_id not in harness.epochs:
                harness.start(broker_id)
        harness.run(ControllerMachine.brokers_changed)
        harness.elect()
        harness.check()
        for partition, state in harness.states().items():
            assert state.leader in harness.epochs, f"{partition} has no leader although all brokers are alive: {state}"
        assert harness.tree.children(znodes.DELETE_TOPICS)[0] == []


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("wanted", [[0] * 250_000, list(range(250_000)), [*range(249_999), -1]])
def test_the_error_of_a_reassignment_to_very_many_replicas_names_some_of_them(wanted: list[int]) -> None:
    with pytest.raises(KafkaError) as refused:
        check_target(wanted, [0, 1, 2])
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert str(wanted[:100])[:-1] in refused.value.message
    assert len(refused.value.message) < 80_000
