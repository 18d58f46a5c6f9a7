"""The controller machine: scenarios as transcripts, and any order of events with controllers that die in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.broker.machines.controller import ControllerMachine
from odradek.broker.machines.controller_steps import Steps
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import NodeExistsError, Set
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.machines.controller_world import World, replicas

T0 = ("t", 0)


@pytest.fixture
def world() -> World:
    world = World()
    for broker_id in (0, 1, 2):
        world.start(broker_id)
    world.elect()
    world.make_topic("t", {0: replicas(0, 1, 2), 1: replicas(1, 2, 0)})
    world.run(lambda machine: machine.topics_changed([]))
    world.sent.clear()
    return world


def told(world: World, kind: type) -> list[int]:
    return sorted(broker_id for broker_id, message in world.sent if isinstance(message, kind))


def summary(state: znodes.PartitionState) -> tuple[int, int, tuple[int, ...]]:
    return state.leader, state.leader_epoch, state.isr


def test_a_new_topic_is_led_by_its_preferred_leaders(world: World) -> None:
    assert summary(world.state(T0)) == (0, 0, (0, 1, 2))
    assert summary(world.state(("t", 1))) == (1, 0, (1, 2, 0))


def test_a_lost_leader_is_replaced_within_the_isr_and_comes_back_as_a_follower(world: World) -> None:
    world.stop(0)
    world.run(ControllerMachine.brokers_changed)
    assert summary(world.state(T0)) == (1, 1, (1, 2))
    assert summary(world.state(("t", 1))) == (1, 1, (1, 2))
    assert told(world, m.LeaderAndIsrRequest) == [1, 2]
    world.sent.clear()
    world.start(0)
    world.run(ControllerMachine.brokers_changed)
    assert summary(world.state(T0)) == (1, 1, (1, 2)), "it has to catch up first"
    assert told(world, m.LeaderAndIsrRequest) == [0]
    assert told(world, m.UpdateMetadataRequest) == [0, 1, 2]
    assert world.alter(T0, (1, 2, 0)).error_code == 0
    assert summary(world.state(T0)) == (1, 1, (1, 2, 0)), "an ISR is no election"
    world.run(ControllerMachine.balance)
    assert summary(world.state(T0)) == (0, 2, (1, 2, 0))


def test_a_leader_that_came_back_between_two_looks_does_not_lead_on(world: World) -> None:
    world.stop(0)
    world.start(0)
    world.run(ControllerMachine.brokers_changed)
    assert summary(world.state(T0)) == (1, 1, (1, 2)), "it may have lost what it had not synced"


def test_a_controller_that_follows_sees_who_came_back_before_it(world: World) -> None:
    world.stop(0)
    world.start(0)
    world.elect()
    assert summary(world.state(T0)) == (1, 1, (1, 2))


def test_an_isr_is_not_written_over_a_member_that_has_just_come_back(world: World) -> None:
    world.alter(T0, (0, 1))
    world.stop(1)
    world.start(1)  # and the controller has not heard of it
    assert world.alter(T0, (0, 1, 2)).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_the_last_in_sync_replica_is_waited_for(world: World) -> None:
    world.alter(T0, (0,))
    world.stop(0)
    world.run(ControllerMachine.brokers_changed)
    assert summary(world.state(T0)) == (-1, 1, (0,))
    world.start(0)
    world.run(ControllerMachine.brokers_changed)
    assert summary(world.state(T0)) == (0, 2, (0,))


def test_an_unclean_election_on_request_loses_what_only_the_others_had(world: World) -> None:
    world.alter(T0, (0,))
    world.stop(0)
    world.run(ControllerMachine.brokers_changed)
    results = world.run(lambda machine: machine.elect_unclean([T0, ("t", 1), ("t", 7)]))
    assert results == {
        T0: ErrorCode.NONE,
        ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    state = world.state(T0)
    assert (summary(state), state.is_recovering) == ((1, 2, (1,)), True)


def test_a_topic_that_allows_it_is_led_uncleanly_at_once(world: World) -> None:
    path = znodes.config_path("topics/t")
    world.tree.submit(
        world.session,
        [Set(path, znodes.encode_config({"unclean.leader.election.enable": "true"}))],
        0,
    )
    world.alter(T0, (0,))
    world.stop(0)
    world.run(ControllerMachine.brokers_changed)
    assert summary(world.state(T0)) == (1, 1, (1,))


def test_a_broker_that_leaves_hands_over(world: World) -> None:
    left = world.run(lambda machine: machine.controlled_shutdown(0, world.epochs[0]))
    assert left == []
    assert summary(world.state(T0)) == (1, 1, (1, 2))
    assert told(world, m.StopReplicaRequest) == [0]
    with pytest.raises(KafkaError) as refused:
        world.run(lambda machine: machine.controlled_shutdown(0, world.epochs[0] - 1))
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_reassignment_adds_waits_and_removes(world: World) -> None:
    world.start(3)
    world.run(ControllerMachine.brokers_changed)
    assert world.run(lambda machine: machine.reassign({T0: (3, 1)})) == {T0: None}
    assignment = znodes.TopicAssignment.decode(world.tree.get(znodes.topic_path("t"))[0])
    assert assignment.partitions[0] == znodes.Replicas((3, 1, 0, 2), (3,), (0, 2))
    assert world.machine.reassignments() == {T0: assignment.partitions[0]}
    world.sent.clear()
    world.alter(T0, (0, 1, 2, 3))
    assignment = znodes.TopicAssignment.decode(world.tree.get(znodes.topic_path("t"))[0])
    assert assignment.partitions[0] == znodes.Replicas((3, 1))
    assert set(world.state(T0).isr) == {1, 3}
    assert world.state(T0).leader == 3
    assert told(world, m.StopReplicaRequest) == [0, 2]


def test_a_reassignment_that_is_cancelled_leaves_what_was(world: World) -> None:
    world.start(3)
    world.run(ControllerMachine.brokers_changed)
    world.run(lambda machine: machine.reassign({T0: (3, 1)}))
    assert world.run(lambda machine: machine.reassign({T0: None})) == {T0: None}
    assignment = znodes.TopicAssignment.decode(world.tree.get(znodes.topic_path("t"))[0])
    assert sorted(assignment.partitions[0].replicas) == [0, 1, 2]
    assert not world.machine.reassignments()
    assert set(world.state(T0).isr) == {0, 1, 2}


def test_a_topic_is_deleted_when_its_last_replica_is_gone(world: World) -> None:
    world.stop(2)
    world.run(ControllerMachine.brokers_changed)
    world.make(znodes.delete_topic_path("t"))
    world.run(ControllerMachine.deletions_changed)
    assert world.tree.exists(znodes.topic_path("t")) is not None, "a replica is away"
    world.start(2)
    world.run(ControllerMachine.brokers_changed)
    assert world.tree.exists(znodes.topic_path("t")) is None
    assert world.tree.exists(znodes.config_path("topics/t")) is None
    assert world.tree.children(znodes.DELETE_TOPICS)[0] == []


def test_a_failed_disk_is_another_lost_replica(world: World) -> None:
    world.make(znodes.LOG_DIR_EVENT_PREFIX + "0", znodes.encode_log_dir_event(0))
    world.run(ControllerMachine.log_dirs_changed)
    topic = m.LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=bytes(range(16)))
    topic.partition_errors = [
        m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=0, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    ]
    response = m.LeaderAndIsrResponse(topics=[topic])
    world.run(lambda machine: machine.leader_and_isr_answered(0, response))
    assert summary(world.state(T0)) == (1, 1, (1, 2))
    assert summary(world.state(("t", 1))) == (1, 0, (1, 2, 0)), "its other disk works"


def test_stale_wishes_are_refused_with_kafkas_codes(world: World) -> None:
    world.stop(0)
    world.run(ControllerMachine.brokers_changed)
    state = world.state(T0)
    codes = []
    for broker_id, epoch, version in ((1, 0, 1), (1, 9, 1), (1, state.leader_epoch, 0), (2, state.leader_epoch, 1)):
        wish = m.AlterPartitionRequest.PartitionData(
            partition_index=0,
            leader_epoch=epoch,
            partition_epoch=version,
            new_isr_with_epochs=[m.AlterPartitionRequest.BrokerState(broker_id=1)],
        )
        topic = m.AlterPartitionRequest.TopicData(topic_name="t", partitions=[wish])
        request = m.AlterPartitionRequest(broker_id=broker_id, broker_epoch=world.epochs[broker_id], topics=[topic])
        response = world.run(lambda machine, request=request: machine.alter_partition(request, by_id=False))
        codes.append(ErrorCode(response.topics[0].partitions[0].error_code))
    assert codes == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
    ]
    stale = m.AlterPartitionRequest(broker_id=1, broker_epoch=world.epochs[1] - 1)
    assert world.run(lambda machine: machine.alter_partition(stale, by_id=False)).error_code == (
        ErrorCode.STALE_BROKER_EPOCH
    )


BROKER = st.integers(0, 3)
STEPS = st.one_of(st.none(), st.integers(0, 12))
Event = Callable[[ControllerMachine], Steps[Any]]


class Cluster(RuleBasedStateMachine):
    """Any event at any time, and a controller that may die after any step of it."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        for broker_id in (0, 1, 2):
            self.world.start(broker_id)
        self.world.elect()
        self.topics = 0

    def event(self, event: Event, steps: int | None) -> None:
        if steps is None:
            self.world.run(event)
        else:
            self.world.cut(event, steps)

    @precondition(lambda self: self.topics < 3)
    @rule(order=st.permutations(range(3)), steps=STEPS)
    def make_topic(self, order: list[int], steps: int | None) -> None:
        self.topics += 1
        self.world.make_topic(f"t{self.topics}", {0: replicas(*order), 1: replicas(*order[:2])})
        self.event(lambda machine: machine.topics_changed([]), steps)

    @rule(broker=BROKER, steps=STEPS, heard=st.booleans())
    def come_or_go(self, broker: int, steps: int | None, heard: bool) -> None:
        if broker in self.world.epochs:
            self.world.stop(broker)
        else:
            self.world.start(broker)
        if heard:
            self.event(ControllerMachine.brokers_changed, steps)

    @rule(broker=BROKER, steps=STEPS)
    def bounce(self, broker: int, steps: int | None) -> None:
        if broker in self.world.epochs:
            self.world.stop(broker)
            self.world.start(broker)
            self.event(ControllerMachine.brokers_changed, steps)

    @rule(which=st.integers(0, 5), isr=st.sets(BROKER, min_size=1))
    def wish(self, which: int, isr: set[int]) -> None:
        states = sorted(self.world.states())
        if states:
            partition = states[which % len(states)]
            leader = self.world.state(partition).leader
            self.world.alter(partition, tuple(sorted({leader, *isr} - {-1})))

    @rule(steps=STEPS)
    def elect_preferred(self, steps: int | None) -> None:
        self.event(lambda machine: machine.elect_preferred(None), steps)

    @rule(which=st.integers(0, 5), to=st.one_of(st.none(), st.permutations(range(4))), steps=STEPS)
    def reassign(self, which: int, to: list[int] | None, steps: int | None) -> None:
        states = sorted(self.world.states())
        if states:
            wanted = None if to is None else tuple(to[:2])
            partition = states[which % len(states)]
            self.world.asked_for_more.add(partition)
            self.event(lambda machine: machine.reassign({partition: wanted}), steps)

    @rule(broker=BROKER, steps=STEPS)
    def leave(self, broker: int, steps: int | None) -> None:
        if broker in self.world.machine.context.brokers:
            self.event(lambda machine: machine.controlled_shutdown(broker, -1), steps)

    @precondition(lambda self: self.topics)
    @rule(number=st.integers(1, 3), steps=STEPS)
    def delete(self, number: int, steps: int | None) -> None:
        try:
            self.world.make(znodes.delete_topic_path(f"t{number}"))
        except NodeExistsError:
            return
        self.event(ControllerMachine.deletions_changed, steps)

    @rule(steps=STEPS)
    def fail_over(self, steps: int | None) -> None:
        self.world.elect(steps=steps)

    @invariant()
    def promises(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Everybody comes back, and everything comes to rest."""
        world = self.world
        for broker_id in range(4):
            if broker_id not in world.epochs:
                world.start(broker_id)
        world.run(ControllerMachine.brokers_changed)
        world.elect()
        world.check()
        for partition, state in world.states().items():
            assert state.leader in world.epochs, f"{partition} has no leader although everybody is here: {state}"
        assert world.tree.children(znodes.DELETE_TOPICS)[0] == []


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=150, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
