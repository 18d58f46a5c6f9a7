"""The task assignors and their functions, compared with Java's over application states that hypothesis draws.

Results are equal task by task. Java iterates over hash sets of process ids, so the drawn ids have hash codes in the
order of the ids (`process_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.streams.assignment import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    AssignmentError,
    HighAvailabilityTaskAssignor,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    ProcessId,
    RackAwareOptimizationParams,
    StickyTaskAssignor,
    TaskAssignment,
    TaskInfo,
    TaskTopicPartition,
    TaskType,
    default_standby_task_assignment,
    identity_assignment,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
    validate_task_assignment,
)
from odradek.streams.assignment.application_state import (
    BALANCE_SUBTOPOLOGY,
    LATEST_OFFSET,
    MIN_TRAFFIC,
    NONE,
    UNKNOWN_OFFSET_SUM,
)
from odradek.streams.group.assignor import AssignmentConfig, assign
from odradek.streams.group.assignor_threads import Thread
from odradek.streams.records import TaskId
from odradek.streams.running.task_assignment import without_lags
from tests.streams.oracle.java import Java
from tests.streams.oracle.java_assignor import API, JavaAssignment, process_of, tasks_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

RACKS = ("a", "b", "c")
LAGS = st.sampled_from([LATEST_OFFSET, UNKNOWN_OFFSET_SUM, 0, 5, 100, 101, 5_000])


@pytest.fixture(scope="module")
def theirs(java: Java) -> JavaAssignment:
    return JavaAssignment(java)


@st.composite
def configurations(draw: st.DrawFn, standbys: int = 2) -> AssignmentConfigs:
    return AssignmentConfigs(
        acceptable_recovery_lag=100,
        max_warmup_replicas=draw(st.integers(1, 3)),
        num_standby_replicas=draw(st.integers(0, standbys)),
        rack_aware_assignment_tags=draw(st.sampled_from([(), ("zone",), ("zone", "cluster")])),
        rack_aware_traffic_cost=draw(st.sampled_from([None, 0, 1, 10])),
        rack_aware_non_overlap_cost=draw(st.sampled_from([None, 0, 1, 10])),
        rack_aware_assignment_strategy=draw(st.sampled_from([NONE, MIN_TRAFFIC, BALANCE_SUBTOPOLOGY])),
    )


@st.composite
def tasks(draw: st.DrawFn, racks: bool) -> list[TaskInfo]:
    """Sub-topologies with state, with state that is not logged, and without state."""
    found = []
    for subtopology in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["logged", "logged", "source log", "in memory", "none"]))
        for partition in range(draw(st.integers(1, 5))):
            where = {
                topic: draw(st.frozensets(st.sampled_from(RACKS), min_size=1, max_size=2)) for topic in ("in", "log")
            }
            places = [("in", kind == "source log", True), ("log", True, False)]
            found.append(
                TaskInfo(
                    TaskId(subtopology, partition),
                    frozenset() if kind == "none" else frozenset({"store"}),
                    tuple(
                        TaskTopicPartition(
                            (place := (f"{topic}-{subtopology}", partition)),
                            is_source,
                            is_changelog,
                            lambda place=place, at=where[topic]: {place: at} if racks else {},
                        )
                        for topic, is_changelog, is_source in places
                        if is_source or kind == "logged"
                    ),
                )
            )
    return found


@st.composite
def applications(draw: st.DrawFn, standbys: int = 2) -> ApplicationState:
    racks = draw(st.sampled_from([True, True, False]))
    everything = draw(tasks(racks))
    ids = [task.id for task in everything]
    logged = [task.id for task in everything if task.is_logged]
    states = []
    owners = {task: draw(st.integers(-1, 4)) for task in ids}
    for number in range(draw(st.integers(1, 4))):
        active = frozenset(task for task in ids if owners[task] == number)
        standby = draw(st.frozensets(st.sampled_from(logged), max_size=4)) if logged else frozenset()
        states.append(
            KafkaStreamsState(
                process_id=process_of(number + 1),
                num_processing_threads=draw(st.integers(1, 3)),
                client_tags={"zone": draw(st.sampled_from("xy")), "cluster": draw(st.sampled_from("kl")), "other": "o"},
                previous_active_tasks=active,
                previous_standby_tasks=standby - active,
                rack_id=draw(st.sampled_from(RACKS)) if racks else None,
                task_lags={task: draw(LAGS) for task in logged},
            )
        )
    return ApplicationState(draw(configurations(standbys)), everything, states)


@st.composite
def assigned(
    draw: st.DrawFn, standbys: bool = False
) -> tuple[ApplicationState, dict[ProcessId, KafkaStreamsAssignment]]:
    """An application, and an assignment of its active tasks, with standbys if so."""
    state = draw(applications())
    processes = [*state.kafka_streams_states(compute_task_lags=False)]
    made = {process: KafkaStreamsAssignment(process) for process in processes}
    for task in state.all_tasks.values():
        made[draw(st.sampled_from(processes))].assign_task(AssignedTask(task.id, TaskType.ACTIVE))
        if standbys and task.is_logged:
            for process in draw(st.frozensets(st.sampled_from(processes), max_size=2)):
                if task.id not in made[process].tasks:
                    made[process].assign_task(AssignedTask(task.id, TaskType.STANDBY))
    return state, made


def copies(assignments: dict[ProcessId, KafkaStreamsAssignment]) -> list[KafkaStreamsAssignment]:
    return [KafkaStreamsAssignment(each.process_id, each.tasks.values()) for each in assignments.values()]


@settings(max_examples=50)
@given(state=applications())
def test_the_sticky_assignor(theirs: JavaAssignment, java: Java, state: ApplicationState) -> None:
    for preserve in (False, True):
        expected, probing = theirs.assign(java.find(f"{API}.assignors.StickyTaskAssignor")(preserve), state)
        made = StickyTaskAssignor(preserve).assign(state)
        assert tasks_of(made.assignment) == expected
        assert any(each.followup_rebalance_deadline_ms == 0 for each in made.assignment) == probing


@settings(max_examples=70)
@given(state=applications())
def test_the_high_availability_assignor(theirs: JavaAssignment, state: ApplicationState) -> None:
    expected, probing = theirs.assign_internally("HighAvailabilityTaskAssignor", state)
    made = HighAvailabilityTaskAssignor(lambda: 1_000).assign(state)
    assert tasks_of(made.assignment) == expected
    deadlines = [each.followup_rebalance_deadline_ms for each in made.assignment]
    assert [each for each in deadlines if each is not None] == ([601_000] if probing else [])


@settings(max_examples=20)
@given(state=applications())
def test_the_assignor_without_lags(theirs: JavaAssignment, state: ApplicationState) -> None:
    """Every active task stays. Others have an instance, too; which one depends in Java on hash codes."""
    expected, probing = theirs.assign_internally("FallbackPriorTaskAssignor", state)
    assert probing
    made = tasks_of(without_lags(HighAvailabilityTaskAssignor()).assign(state).assignment)
    for found in (made, expected):
        running = [task for own in found.values() for task, kind in own.items() if kind == "ACTIVE"]
        assert sorted(running) == sorted(map(str, state.all_tasks))
        for process, each in state.kafka_streams_states(compute_task_lags=False).items():
            assert {found[str(process)][str(task)] for task in each.previous_active_tasks} <= {"ACTIVE"}


@settings(max_examples=40)
@given(drawn=assigned())
def test_default_standbys(theirs: JavaAssignment, drawn: tuple[ApplicationState, Any]) -> None:
    state, made = drawn
    before, expected = tasks_of(made.values()), theirs.default_standbys(state, copies(made))
    default_standby_task_assignment(state, made)
    if not state.assignment_configs.num_standby_replicas:  # with tags, Java assigns one standby of each task even then
        expected = before
    assert tasks_of(made.values()) == expected


@settings(max_examples=60)
@given(
    drawn=assigned(standbys=True),
    which=st.sampled_from(TaskType),
    overrides=st.tuples(*[st.sampled_from([None, 0, 3])] * 2),
)
def test_rack_aware_optimization(
    theirs: JavaAssignment,
    drawn: tuple[ApplicationState, Any],
    which: TaskType,
    overrides: tuple[int | None, int | None],
) -> None:
    state, made = drawn
    params = RackAwareOptimizationParams(state, *overrides)
    expected = theirs.optimize(which, params, copies(made))
    active = which is TaskType.ACTIVE
    (optimize_rack_aware_active_tasks if active else optimize_rack_aware_standby_tasks)(params, made)
    assert tasks_of(made.values()) == expected


@settings(max_examples=10)
@given(state=applications())
def test_the_identity_assignment(theirs: JavaAssignment, state: ApplicationState) -> None:
    assert tasks_of(identity_assignment(state).values()) == theirs.identity(state)


@settings(max_examples=20)
@given(pair=st.tuples(*[st.uuids().map(ProcessId)] * 2))
def test_the_order_of_process_ids(theirs: JavaAssignment, pair: tuple[ProcessId, ProcessId]) -> None:
    one, other = map(theirs.process, pair)
    assert (pair[0] < pair[1]) == (int(one.compareTo(other)) < 0)


def test_the_names_of_errors(java: Java) -> None:
    assert [each.name for each in AssignmentError] == [
        str(each) for each in java.find(f"{API}.TaskAssignor$AssignmentError").values()
    ]


@settings(max_examples=20)
@given(drawn=assigned(), defect=st.sampled_from(AssignmentError), data=st.data())
def test_validation(
    theirs: JavaAssignment, drawn: tuple[ApplicationState, Any], defect: AssignmentError, data: st.DataObject
) -> None:
    state, by_process = drawn
    made = [*by_process.values()]
    one = data.draw(st.sampled_from(made))
    task = data.draw(st.sampled_from([*state.all_tasks]))
    if defect is AssignmentError.UNKNOWN_TASK_ID:
        one.assign_task(AssignedTask(TaskId(7, 0), data.draw(st.sampled_from(TaskType))))
    elif defect is AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES:
        one.assign_task(AssignedTask(task, TaskType.ACTIVE))
    elif defect is AssignmentError.INVALID_STANDBY_TASK:
        one.assign_task(AssignedTask(task, TaskType.STANDBY))
    elif defect is AssignmentError.MISSING_PROCESS_ID:
        made.remove(one)
    elif defect is AssignmentError.UNKNOWN_PROCESS_ID:
        made.append(KafkaStreamsAssignment(process_of(99)))
    ours = validate_task_assignment(state, TaskAssignment(made))
    assert ours.name == theirs.validate(state, TaskAssignment(made))
    assert ours in (AssignmentError.NONE, defect)


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4), count=st.integers(1, 12), standbys=st.integers(0, 2))
def test_the_default_assignor_shares_out_new_tasks(
    theirs: JavaAssignment, sizes: list[int], count: int, standbys: int
) -> None:
    """Without any state each thread gets as many active tasks as in Java, and each task as many standbys. Which process
    gets a task differs: Java takes turns, and the default assignor looks for the fewest moves later.
    """
    everything = [TaskId(0, partition) for partition in range(count)]
    places = {task: TaskTopicPartition(("log-0", task.partition), False, True, dict) for task in everything}
    state = ApplicationState(
        AssignmentConfigs(num_standby_replicas=standbys),
        [TaskInfo(task, frozenset({"store"}), (place,)) for task, place in places.items()],
        [
            KafkaStreamsState(
                process_id=process_of(number),
                num_processing_threads=size,
                task_lags=dict.fromkeys(everything, 1_000_000),
            )
            for number, size in enumerate(sizes, 1)
        ],
    )
    expected, probing = theirs.assign_internally("HighAvailabilityTaskAssignor", state)
    threads = {
        f"{number}-{index}": Thread(b"%d" % number) for number, size in enumerate(sizes) for index in range(size)
    }
    config = AssignmentConfig(num_standby_replicas=standbys)
    made = assign(dict.fromkeys(everything, 1_000_000), [], threads, config)
    assert made.probing == probing
    shares = [0] * len(sizes)
    for name, own in made.active.items():
        shares[int(name[0])] += len(own)
    running = [[*tasks.values()].count("ACTIVE") for tasks in expected.values()]
    assert busiest(shares, sizes) == busiest(running, sizes)
    copies_here = Counter(task for own in made.standby.values() for task in map(str, own))
    copies_there = Counter(task for tasks in expected.values() for task, kind in tasks.items() if kind == "STANDBY")
    assert copies_here == copies_there


def busiest(shares: Sequence[int], threads: Sequence[int]) -> int:
    """The most tasks of one thread, where a process spreads its tasks evenly."""
    return max(-(-share // size) for share, size in zip(shares, threads, strict=True))
