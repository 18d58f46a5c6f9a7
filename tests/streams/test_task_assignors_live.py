"""Task assignors of a running application: two instances over two brokers, each in a rack of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import jpype
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
from odradek.streams.errors import StreamsError
from odradek.streams.group.group_protocol import Assignments, MemberSubscription
from odradek.streams.records import TaskId
from odradek.streams.runtime import KafkaStreams, State
from tests.jvm.jars import classpath
from tests.streams import counting
from tests.streams.oracle.java import RELEASE, Java
from tests.streams.stage import Stage
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

RACKS = ("rack-1", "rack-2")
SOURCE: Final = Path(__file__).parent / "oracle" / "FailingAssignor.java"


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
    for name in (made.words, made.counts):  # the other broker learns of them a moment after the response
        cluster.await_topic(name)
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


class FailingAssignor(TaskAssignor):
    """The one of oracle/FailingAssignor.java: the property "failure" is how it fails."""

    def configure(self, config: Mapping[str, Any]) -> None:
        """Get the property."""
        self.failure = config["failure"]

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Fail."""
        if self.failure == "raise":
            raise RuntimeError("no idea")
        if self.failure == "refuse":
            raise TaskAssignmentError("too few large machines")
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
    """The leader runs Java's default assignor with the strategy."""
    with two_instances(stage, rack_aware_assignment_strategy="min_traffic") as instances:
        eventually(lambda: [len(tasks_of(each)[0]) for each in instances], [4, 4].__eq__)
        stage.write(["one", "two"])
        stage.await_counts({"one": 1, "two": 1})
        found = racks_of_partitions(stage)
        for rack, each in zip(RACKS, instances, strict=True):
            tasks = [task for thread in each.metadata_for_local_threads() for task in thread.active_tasks]
            assert {found[place] for task in tasks for place in task.partitions} == {rack}


def test_all_instances_fail_with_the_reason_of_an_assignor(stage: Stage) -> None:
    with two_instances(stage, task_assignor_class=FailingAssignor, failure="refuse") as instances:
        eventually(lambda: [each.state for each in instances], [State.ERROR, State.ERROR].__eq__)
        for each in instances:
            assert str(each.failure) == "the tasks could not be assigned: too few large machines"


@pytest.mark.jvm
@pytest.mark.parametrize("failure", ["raise", "refuse", "omit"])
def test_a_failing_assignor_ends_the_client_as_in_java(java: Java, stage: Stage, failure: str) -> None:
    topology = counting.word_counts(stage.words, stage.counts)
    with KafkaStreams(topology, stage.config(task_assignor_class=FailingAssignor, failure=failure)) as streams:
        eventually(lambda: streams.state is State.ERROR)
    kind, message = failure_in_java(java, stage, failure)
    ours = streams.failure
    if failure == "raise":
        assert isinstance(ours, RuntimeError)
        assert str(ours) == message.removeprefix("java.lang.IllegalStateException: ")
    elif failure == "refuse":
        assert kind == "TaskAssignmentException"
        assert str(ours) == "the tasks could not be assigned: too few large machines"
    else:
        assert kind == "StreamsException"
        assert isinstance(ours, StreamsError)
        assert str(ours).replace(f"{FailingAssignor.__module__}.", "") == message
        assert message.endswith("MISSING_PROCESS_ID")


def failure_in_java(java: Java, stage: Stage, failure: str) -> tuple[str, str]:
    """The class and the message of the exception that ends a client of Kafka Streams with this assignor."""
    compiled = stage.folder / "classes"
    compiled.mkdir()
    compiler = java.find("javax.tools.ToolProvider").getSystemJavaCompiler()
    jars = os.pathsep.join(map(str, classpath(RELEASE)))
    assert compiler.run(None, None, None, "-cp", jars, "-d", str(compiled), str(SOURCE)) == 0
    caught: list[Any] = []
    answer = java.find("org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler$StreamThreadExceptionResponse")
    handler = {"handle": lambda error: caught.append(error) or answer.SHUTDOWN_CLIENT}
    serde = "org.apache.kafka.common.serialization.Serdes$StringSerde"
    builder, properties = java.StreamsBuilder(), java.Properties()
    builder.stream(stage.words).to(stage.counts)
    named = {
        "application.id": f"{stage.application_id}-java",
        "bootstrap.servers": stage.bootstrap,
        "task.assignor.class": SOURCE.stem,
        "failure": failure,
        "state.dir": str(stage.folder / "java"),
        "default.key.serde": serde,
        "default.value.serde": serde,
    }
    for name, value in named.items():
        properties.put(name, value)
    # Kafka loads classes by the loader of the thread, and the threads of the client inherit it.
    thread, url = java.Thread.currentThread(), java.find("java.io.File")(str(compiled)).toURI().toURL()
    before = thread.getContextClassLoader()
    thread.setContextClassLoader(java.find("java.net.URLClassLoader")([url], before))
    streams = java.KafkaStreams(builder.build(), properties)
    try:
        streams.setUncaughtExceptionHandler(
            jpype.JProxy("org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler", dict=handler)
        )
        streams.start()
        eventually(lambda: str(streams.state()), "ERROR".__eq__)
    finally:
        streams.close(java.Duration.ofSeconds(30))
        thread.setContextClassLoader(before)
    return str(caught[0].getClass().getSimpleName()), str(caught[0].getMessage())
