"""Events of the controller for a topic of thousands of partitions pause, so that its broker serves clients meanwhile.

The work between two steps of an event is counted in calls of Python functions: their number does not depend on the
machine, or on what else runs on it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.controller.descriptor_budget import DescriptorBudget
from odradek.broker.controller.state.controller import ControllerMachine
from odradek.broker.controller.state.steps import Children, Pause, Send, Steps
from odradek.broker.registry.interface import Create, Set
from odradek.broker.registry.java_order import scala_mutable_order
from odradek.broker.registry.znodes import ReplicaAssignment, TopicAssignment, delete_topic_path, topic_path
from odradek.protocol import messages as m
from odradek.protocol.errors import KafkaError
from tests.machines.controller_harness import Harness, replicas
from tests.support.call_counter import CallCounter

PARTITIONS = 2000
MOST_CALLS = 12_500
"""Some milliseconds. Without pauses most events make over 20,000 calls between two steps."""


class Counting(Harness):
    """A controller whose work between two steps is counted, and the control requests of its events."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = CallCounter()

    def _execute(self, step: Any) -> Any:
        self.counter.step()
        sys_profile = sys.getprofile()
        sys.setprofile(None)
        try:
            return super()._execute(step)
        finally:
            sys.setprofile(sys_profile)

    def most_calls(self, event: Callable[[ControllerMachine], Steps[Any]]) -> int:
        """The most calls between two steps of an event, and of the sending after it."""
        self.counter.most = 0
        with self.counter.counting():
            self._all(event(self.machine))
            self.counter.step()
            requests = []
            for each in self.machine.drain():
                requests.append(each)
                if isinstance(each, Pause):
                    self.counter.step()
        self.sent = [each for each in requests if isinstance(each, Send)]
        return self.counter.most


@pytest.fixture
def harness() -> Counting:
    harness = Counting()
    for broker_id in (0, 1):
        harness.start(broker_id)
    harness.elect()
    harness.make_topic("t", dict.fromkeys(range(PARTITIONS), replicas(0, 1)))
    return harness


def created(harness: Counting) -> int:
    return harness.most_calls(lambda machine: machine.topics_changed([]))


def test_a_new_topic(harness: Counting) -> None:
    assert created(harness) < MOST_CALLS
    assert [type(each.message) for each in harness.sent] == [m.LeaderAndIsrRequest] * 2 + [m.UpdateMetadataRequest] * 2
    for each in harness.sent:
        assert len(each.message.topic_states[0].partition_states) == PARTITIONS


@pytest.mark.slow
def test_more_partitions(harness: Counting) -> None:
    created(harness)
    more = TopicAssignment(b"t".ljust(16, b"."), dict.fromkeys(range(2 * PARTITIONS), replicas(0, 1)))
    harness.tree.submit(harness.session, [Set(topic_path("t"), more.encode())], 0)
    assert harness.most_calls(lambda machine: machine.partitions_changed("t")) < MOST_CALLS
    assert len(harness.sent[0].message.topic_states[0].partition_states) == PARTITIONS


@pytest.mark.slow
def test_the_loss_and_the_return_of_a_broker(harness: Counting) -> None:
    created(harness)
    harness.stop(0)
    assert harness.most_calls(ControllerMachine.brokers_changed) < MOST_CALLS
    assert harness.state(("t", PARTITIONS - 1)).leader == 1
    harness.start(0)
    assert harness.most_calls(ControllerMachine.brokers_changed) < MOST_CALLS
    broker_id, message = next(each for each in harness.sent if isinstance(each.message, m.LeaderAndIsrRequest))
    assert (broker_id, len(message.topic_states[0].partition_states)) == (0, PARTITIONS)


def test_elections(harness: Counting) -> None:
    created(harness)
    for elect in (
        lambda machine: machine.elections.elect_preferred(None),
        lambda machine: machine.elections.elect_unclean(None),
        lambda machine: machine.elections.balance(),
    ):
        assert harness.most_calls(elect) < MOST_CALLS


def test_reassignments_that_change_nothing(harness: Counting) -> None:
    created(harness)
    wanted = {("t", index): (0, 1) for index in range(PARTITIONS)}
    assert harness.most_calls(lambda machine: machine.reassignments.reassign(wanted)) < MOST_CALLS


def test_a_reassignment_of_one_partition(harness: Counting) -> None:
    created(harness)
    assert harness.most_calls(lambda machine: machine.reassignments.reassign({("t", 0): (1, 0)})) < MOST_CALLS
    assert harness.assignment(("t", 0)).replicas == (1, 0)


def test_the_deletion_of_many_topics() -> None:
    """It stops each replica once, also where the topics are requested one after the other."""
    harness, count = Counting(), 600
    harness.start(0)
    harness.elect()
    for number in range(count):
        harness.make_topic(f"t{number}", {0: replicas(0)})
    created(harness)
    names = [f"t{number}" for number in range(count)]
    harness.tree.submit(harness.session, [Create(delete_topic_path(name), None) for name in names], 0)
    first, rest = names[:1], names[1:]
    for part in (first, rest):
        assert harness.most_calls(lambda machine: machine.topic_deletion.begin(part)) < MOST_CALLS  # noqa: B023
        stopped = [each.message for each in harness.sent if isinstance(each.message, m.StopReplicaRequest)]
        assert sorted(topic.topic_name for each in stopped for topic in each.topic_states) == sorted(part)


def test_topics_are_looked_up_in_the_names_of_the_metadata_store_at_once() -> None:
    """With 10,000 topics, the search of each in all names took 0.9 s at a stretch."""

    class Names(list[str]):
        def __contains__(self, name: object) -> bool:
            raise AssertionError("the names are searched one by one")

    class Naming(Harness):
        def _execute(self, step: Any) -> Any:
            found = super()._execute(step)
            return Names(found) if isinstance(step, Children) else found

    harness = Naming()
    harness.start(0)
    harness.elect()
    for name in ("t", "u"):
        harness.make_topic(name, {0: replicas(0)})
        harness.run(lambda machine: machine.topics_changed([]))
    assert set(harness.machine.context.assignments) == {"t", "u"}


@pytest.mark.slow
def test_a_deletion(harness: Counting) -> None:
    created(harness)
    harness.tree.submit(harness.session, [Create(delete_topic_path("t"), None)], 0)
    assert harness.most_calls(lambda machine: machine.topic_deletion.deletions_changed()) < MOST_CALLS
    stops = [each for each in harness.sent if isinstance(each.message, m.StopReplicaRequest)]
    assert [each.broker_id for each in stops] == [0, 1]
    for broker_id, _ in stops:
        deleted = m.StopReplicaResponse.StopReplicaPartitionError
        answer = m.StopReplicaResponse(
            partition_errors=[deleted(topic_name="t", partition_index=index) for index in range(PARTITIONS)]
        )
        event = lambda machine: machine.topic_deletion.stop_replica_answered(broker_id, answer)  # noqa: E731, B023
        assert harness.most_calls(event) < MOST_CALLS
    assert not harness.machine.context.assignments


@pytest.mark.slow
def test_a_controlled_shutdown_and_a_new_controller(harness: Counting) -> None:
    created(harness)
    assert harness.most_calls(lambda machine: machine.controlled_shutdown(0, -1)) < MOST_CALLS
    harness.elect()
    assert harness.most_calls(lambda machine: machine.elected([])) < MOST_CALLS


def test_an_assignment_in_parts_is_the_same() -> None:
    assignment = TopicAssignment(
        bytes(range(16)),
        {
            index: ReplicaAssignment((index % 7, 8, 9), (8,) if index % 3 else (), (9,) if index % 5 else ())
            for index in range(2500)
        },
    )
    counter = CallCounter()
    with counter.counting():
        for _ in assignment.encode_in_parts():
            counter.step()
    assert counter.most < 6000, "a part has 1,000 entries"
    keys = list(json.loads(assignment.encode())["partitions"])
    assert keys == scala_mutable_order(map(str, range(2500)))
    assert len(list(TopicAssignment.decode_in_parts(assignment.encode()))) > 1
    assert TopicAssignment.decode(assignment.encode()) == assignment


def test_descriptors_are_counted_and_settled_rarely() -> None:
    """A request for 10,000 topics took 37 s: each settled the reservations of all earlier ones."""
    calls = {"has_log": 0, "read_limits": 0}

    def has_log(name: object) -> bool:
        calls["has_log"] += 1
        return False

    def read_limits() -> tuple[int, int]:
        calls["read_limits"] += 1
        return 100_000, 90_000

    budget = DescriptorBudget(0, has_log, read_limits)
    made: list[str] = []
    for number in range(5000):
        name = f"topic-{number}"
        budget.promise(budget.check(name, {0: (0,)}, lambda: made))
        made.append(name)
    assert calls["has_log"] < 10_000
    assert calls["read_limits"] < 20
    with pytest.raises(KafkaError, match="need 90000 file descriptors on broker 0, where 85000 of 100000 are left"):
        budget.check("large", dict.fromkeys(range(90_000), (0,)), lambda: made)
    assert len(budget.check("large", dict.fromkeys(range(90_000), (0,)), lambda: ["large"])) == 90_000
