"""Task assignors of a running application: two instances over two brokers, each in a rack of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import AdminClient

from odradek.cluster_process import ClusterProcess
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.assignment import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignmentError,
    TaskAssignor,
    TaskType,
    default_standby_task_assignment,
)
from odradek.streams.group.group_protocol import Assignments, MemberSubscription
from odradek.streams.records import TaskId
from odradek.streams.runtime import KafkaStreams, State
from tests.streams import counting
from tests.streams.stage import Stage
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

RACKS = ("rack-1", "rack-2")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Each partition is in one rack."""
    overrides = {**counting.BROKER, "default.replication.factor": "1"}
    with ClusterProcess(tmp_path_factory.mktemp("assignors"), 2, overrides, racks=RACKS) as running:
        yield running


@pytest.fixture
def stage(cluster: ClusterProcess, tmp_path: Path) -> Stage:
    made = Stage(cluster.brokers[1], tmp_path)
    made.make_topics(4)
    return made


class EvenAndOdd(TaskAssignor):
    """Even partitions run on the instance with the tag number=0, odd ones on that with 1; standbys by the default."""

    states: ClassVar[list[ApplicationState]] = []
    computed: ClassVar[list[tuple[Assignments, Mapping[str, MemberSubscription], AssignmentError]]] = []

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """By the tag; all on one instance while it is alone."""
        self.states.append(application_state)
        states = application_state.kafka_streams_states(compute_task_lags=False)
        made = {process: KafkaStreamsAssignment(process) for process in states}
        by_number = {int(state.client_tags["number"]): process for process, state in states.items()}
        for task in application_state.all_tasks:
            process = by_number.get(task.partition % 2, next(iter(states)))
            made[process].assign_task(AssignedTask(task, TaskType.ACTIVE))
        default_standby_task_assignment(application_state, made)
        return TaskAssignment(made.values())

    def on_assignment_computed(
        self, assignment: Assignments, subscription: Mapping[str, MemberSubscription], error: AssignmentError
    ) -> None:
        """Keep it."""
        self.computed.append((assignment, subscription, error))


class Refusing(TaskAssignor):
    """Assigns nothing: it raises an error, or omits all instances."""

    error: Exception | None = None

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Raise the error, if there is one."""
        if self.error is not None:
            raise self.error
        return TaskAssignment([])


@contextmanager
def two_instances(stage: Stage, **more: Any) -> Iterator[list[KafkaStreams]]:
    topology = counting.word_counts(stage.words, stage.counts)
    with ExitStack() as opened:
        instances = []
        for number in range(2):
            config = stage.config(str(number), client_tag_number=number, client_rack=RACKS[number], **more)
            instances.append(opened.enter_context(KafkaStreams(topology, config)))
        yield instances


def tasks_of(streams: KafkaStreams) -> tuple[set[TaskId], set[TaskId]]:
    """The active and the standby tasks of an instance."""
    threads = streams.metadata_for_local_threads()
    active = {task.task_id for thread in threads for task in thread.active_tasks}
    return active, {task.task_id for thread in threads for task in thread.standby_tasks}


def racks_of_partitions(stage: Stage) -> dict[TopicPartition, str]:
    """The rack of each partition, from librdkafka's metadata: broker 1 is in the first rack, 2 in the second."""
    topics = AdminClient({"bootstrap.servers": stage.bootstrap}).list_topics(timeout=60).topics
    return {
        (name, part.id): RACKS[part.replicas[0] - 1]
        for name, each in topics.items()
        for part in each.partitions.values()
    }


def test_the_assignor_of_a_user_by_its_dotted_name(stage: Stage) -> None:
    EvenAndOdd.states.clear()
    EvenAndOdd.computed.clear()
    everything = {TaskId(subtopology, part) for subtopology in (0, 1) for part in range(4)}
    name = f"{EvenAndOdd.__module__}.EvenAndOdd"
    with two_instances(stage, task_assignor_class=name, num_standby_replicas=1) as instances:
        running = [{task for task in everything if task.partition % 2 == number} for number in range(2)]
        logged = [{task for task in own if task.subtopology == 1} for own in running]
        expected = [(running[0], logged[1]), (running[1], logged[0])]
        eventually(lambda: [tasks_of(each) for each in instances], expected.__eq__)
        stage.write(["one", "two", "three"] * 4)
        stage.await_counts({"one": 4, "two": 4, "three": 4})
    given, subscriptions, error = EvenAndOdd.computed[-1]
    assert error is AssignmentError.NONE
    assert given.keys() == subscriptions.keys()
    assert len(given) == 2
    state = EvenAndOdd.states[-1]
    states = state.kafka_streams_states(compute_task_lags=False).values()
    assert {each.rack_id: each.client_tags["number"] for each in states} == {RACKS[0]: "0", RACKS[1]: "1"}
    found = racks_of_partitions(stage)
    for task in state.all_tasks.values():
        for place in task.topic_partitions:
            assert place.rack_ids == {found[place.topic_partition]}


def test_tasks_run_in_the_racks_of_their_partitions(stage: Stage) -> None:
    """The leader runs Java's default assignor; without a strategy it has no racks."""
    with two_instances(stage, rack_aware_assignment_strategy="min_traffic") as instances:
        eventually(lambda: [len(tasks_of(each)[0]) for each in instances], [4, 4].__eq__)
        stage.write(["one", "two"])
        stage.await_counts({"one": 1, "two": 1})
        found = racks_of_partitions(stage)
        for rack, each in zip(RACKS, instances, strict=True):
            tasks = [task for thread in each.metadata_for_local_threads() for task in thread.active_tasks]
            assert {found[place] for task in tasks for place in task.partitions} == {rack}


def test_all_instances_fail_with_the_reason_of_an_assignor(stage: Stage) -> None:
    assignor = Refusing()
    assignor.error = TaskAssignmentError("too few large machines")
    with two_instances(stage, task_assignor_class=assignor) as instances:
        eventually(lambda: [each.state for each in instances], [State.ERROR, State.ERROR].__eq__)
        for each in instances:
            assert str(each.failure) == "the tasks could not be assigned: too few large machines"


def test_an_invalid_assignment_ends_the_leader_s_thread(stage: Stage) -> None:
    with KafkaStreams(
        counting.word_counts(stage.words, stage.counts), stage.config(task_assignor_class=Refusing)
    ) as streams:
        eventually(lambda: streams.state is State.ERROR)
        assert str(streams.failure) == (
            f"Task assignment with {Refusing.__module__}.Refusing returned an error: MISSING_PROCESS_ID"
        )
