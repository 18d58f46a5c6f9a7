"""Task assignors without Java: flow networks by brute force, the rack-aware optimization, and the leader's side."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.assignment import (
    LATEST_OFFSET,
    UNKNOWN_OFFSET_SUM,
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
    TaskAssignor,
    TaskInfo,
    TaskTopicPartition,
    TaskType,
    optimize_rack_aware_active_tasks,
)
from odradek.streams.assignment.flow_network import FlowNetwork
from odradek.streams.config import StreamsConfig, StreamsConfigError
from odradek.streams.errors import StreamsError
from odradek.streams.group.assignor_threads import Thread
from odradek.streams.group.group_protocol import Assignments, MemberSubscription
from odradek.streams.group.subscription_info import RUNNING, UNKNOWN_POSITION, SubscriptionInfo
from odradek.streams.records import TaskId
from odradek.streams.running.task_assignment import AssignorRun, Members, application_state, without_lags
from odradek.streams.running.topic_groups import plan
from tests.streams.counting import word_counts

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9092"}
ONE, TWO, THREE = (ProcessId(uuid.UUID(int=number)) for number in (1, 2, 3))


# ---- flow networks


@settings(max_examples=40)
@given(costs=st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=4, max_size=4))
def test_the_cheapest_flow_is_the_cheapest_matching(costs: list[list[int]]) -> None:
    """Four tasks, four instances with room for one each: every matching is tried."""
    network = FlowNetwork(10)
    for task, row in enumerate(costs, 1):
        network.add_edge(0, task, 1, 0, 1)
        for at, cost in enumerate(row, 5):
            network.add_edge(task, at, 1, cost, int(at == task + 4))
    for at in range(5, 9):
        network.add_edge(at, 9, 1, 0, 1)
    network.minimize_cost()
    assert network.total_cost() == min(
        sum(costs[i][at] for i, at in enumerate(order)) for order in permutations(range(4))
    )
    assert sorted(at for task, at in product(range(1, 5), range(5, 9)) if network.flow(task, at)) == [5, 6, 7, 8]


def test_the_largest_flow_takes_a_detour() -> None:
    network = FlowNetwork(6)
    for edge in ((0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (3, 5), (4, 5)):
        network.add_edge(*edge, 1, 0)
    assert network.maximize(0, 5) == 2
    assert (network.flow(1, 4), network.flow(2, 3), network.flow(1, 3)) == (1, 1, 0)


# ---- process ids


def test_process_ids_are_ordered_as_in_java() -> None:
    texts = ("80000000-0000-0000-0000-000000000000", "ffffffff-0000-0000-8000-000000000000", str(ONE))
    ids = [ProcessId(uuid.UUID(text)) for text in texts]
    assert sorted([ids[2], ids[1], ids[0]]) == ids
    assert ProcessId.random_process_id() != ProcessId.random_process_id()


# ---- racks


def example(strategy: str, **more: Any) -> tuple[ApplicationState, dict[ProcessId, KafkaStreamsAssignment]]:
    """Four partitions in two racks, each task on the instance of the other rack."""
    racks: Mapping[TopicPartition, frozenset[str]] = {("in", part): frozenset({"ab"[part % 2]}) for part in range(4)}
    tasks = [
        TaskInfo(TaskId(0, part), frozenset(), (TaskTopicPartition(("in", part), True, False, lambda: racks),))
        for part in range(4)
    ]
    states = [KafkaStreamsState(process_id=process, rack_id=rack) for process, rack in ((ONE, "b"), (TWO, "a"))]
    configs = AssignmentConfigs(rack_aware_assignment_strategy=strategy, **more)
    made = {process: KafkaStreamsAssignment(process) for process in (ONE, TWO)}
    for task in tasks:
        made[(ONE, TWO)[task.id.partition % 2]].assign_task(AssignedTask(task.id, TaskType.ACTIVE))
    return ApplicationState(configs, tasks, states), made


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
def test_tasks_move_to_the_rack_of_their_partitions(strategy: str) -> None:
    state, made = example(strategy, rack_aware_traffic_cost=10, rack_aware_non_overlap_cost=1)
    optimize_rack_aware_active_tasks(RackAwareOptimizationParams(state), made)
    assert [task.partition for task in made[ONE].tasks] == [1, 3]
    assert [task.partition for task in made[TWO].tasks] == [0, 2]


def test_tasks_stay_where_moving_costs_more() -> None:
    state, made = example("min_traffic", rack_aware_traffic_cost=10, rack_aware_non_overlap_cost=11)
    optimize_rack_aware_active_tasks(RackAwareOptimizationParams(state), made)
    assert [task.partition for task in made[ONE].tasks] == [0, 2]
    optimize_rack_aware_active_tasks(
        RackAwareOptimizationParams(state).for_stateless_tasks().with_non_overlap_cost_override(9), made
    )
    assert [task.partition for task in made[ONE].tasks] == [1, 3]


def test_nothing_moves_without_a_strategy_or_a_rack() -> None:
    for strategy, costs in (
        ("none", {"rack_aware_traffic_cost": 1, "rack_aware_non_overlap_cost": 0}),
        ("min_traffic", {}),
    ):
        state, made = example(strategy, **costs)
        optimize_rack_aware_active_tasks(RackAwareOptimizationParams(state, 10, 1), made)
        assert [task.partition for task in made[ONE].tasks] == [0, 2]


def test_a_task_without_an_instance_cannot_be_optimized() -> None:
    state, made = example("min_traffic", rack_aware_traffic_cost=1, rack_aware_non_overlap_cost=0)
    made[ONE].remove_task(AssignedTask(TaskId(0, 0), TaskType.ACTIVE))
    with pytest.raises(ValueError, match="Task 0_0 not assigned to any client"):
        optimize_rack_aware_active_tasks(RackAwareOptimizationParams(state).for_tasks(state.all_tasks), made)


# ---- objects


def test_a_task_is_assigned_once_to_an_instance() -> None:
    task = TaskId(0, 1)
    both = [AssignedTask(task, each) for each in TaskType]
    with pytest.raises(ValueError, match=f"task 0_1 is assigned twice to process {ONE}"):
        KafkaStreamsAssignment(ONE, both)
    made = KafkaStreamsAssignment(ONE, both[:1])
    made.assign_task(both[1])
    assert made.tasks == {task: both[1]}
    assert str(made.with_followup_rebalance(5)) == f"KafkaStreamsAssignment{{{ONE}, [AssignedTask{{STANDBY, 0_1}}], 5}}"


def test_lags_have_to_be_requested() -> None:
    lags = {TaskId(0, 0): 7, TaskId(0, 1): LATEST_OFFSET}
    own = frozenset({TaskId(0, 0), TaskId(0, 1), TaskId(1, 0)})
    state = ApplicationState(
        AssignmentConfigs(), [], [KafkaStreamsState(process_id=ONE, task_ids_by_consumer={"m": own}, task_lags=lags)]
    )
    found = state.kafka_streams_states(compute_task_lags=True)[ONE]
    assert found.prev_tasks_by_lag("m") == [TaskId(0, 1), TaskId(0, 0)]
    assert (found.lag_for(TaskId(0, 0)), found.consumer_client_ids) == (7, ("m",))
    with pytest.raises(StreamsError, match="task 1_0 has no lag"):
        found.lag_for(TaskId(1, 0))
    with pytest.raises(StreamsError, match="were not requested"):
        state.kafka_streams_states(compute_task_lags=False)[ONE].lag_for(TaskId(0, 0))


# ---- task.assignor.class


class Scripted(TaskAssignor):
    """Returns an assignment, or raises an error, that a test sets; keeps what it is called with."""

    made: TaskAssignment | Exception = TaskAssignment([])
    configured: Mapping[str, Any] | None = None

    def configure(self, config: Mapping[str, Any]) -> None:
        """Keep the properties."""
        self.configured = config

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """What the test has set."""
        self.state = application_state
        if isinstance(self.made, Exception):
            raise self.made
        return self.made

    def on_assignment_computed(
        self, assignment: Assignments, subscription: Mapping[str, MemberSubscription], error: AssignmentError
    ) -> None:
        """Keep the outcome."""
        self.computed = dict(assignment), dict(subscription), error


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Scripted, Scripted),
        (Scripted(), Scripted),
        (f"{Scripted.__module__}.Scripted", None),
        ("org.apache.kafka.streams.processor.assignment.assignors.StickyTaskAssignor", StickyTaskAssignor),
        (
            "org.apache.kafka.streams.processor.internals.assignment.HighAvailabilityTaskAssignor",
            HighAvailabilityTaskAssignor,
        ),
    ],
)
def test_names_of_assignors(value: Any, kind: type | None) -> None:
    config = StreamsConfig({**NEEDED, "task.assignor.class": value})
    found = config["task.assignor.class"]
    assert type(found).__name__ == "Scripted" if kind is None else type(found) is kind
    if kind is Scripted:
        assert found.configured is config


@pytest.mark.parametrize("value", [str, "org.apache.kafka.streams.Other", "odradek.streams.assignment.TaskInfo", 5])
def test_what_is_no_assignor(value: Any) -> None:
    with pytest.raises(StreamsConfigError, match=r"task\.assignor\.class"):
        StreamsConfig({**NEEDED, "task.assignor.class": value})


@pytest.mark.parametrize(
    ("name", "value"), [("strategy", "nearest"), ("traffic_cost", -1), ("non_overlap_cost", 2**31)]
)
def test_what_is_no_rack_property(name: str, value: Any) -> None:
    with pytest.raises(StreamsConfigError, match=f"rack\\.aware\\.assignment\\.{name}"):
        StreamsConfig({**NEEDED, f"rack.aware.assignment.{name}": value})


# ---- the leader's side

FOUND = plan(word_counts("words", "counts"), "app", {"words": 2, "counts": 2})
COUNTS = [task for task, topics in FOUND.tasks.items() if topics.changelogs]


def members(**infos: SubscriptionInfo) -> Members:
    subscriptions = {name: MemberSubscription(name, None, ["words"], b"", f"rack-{name[0]}") for name in infos}
    threads = {name: Thread(info.process_id, info.active, info.standby) for name, info in infos.items()}
    return Members(subscriptions, infos, threads)


def info(process: ProcessId, **more: Any) -> SubscriptionInfo:
    return SubscriptionInfo(process.id.bytes, **more)


GROUP = members(
    a0=info(ONE, active=frozenset(COUNTS[:1]), positions={COUNTS[0]: RUNNING}, tags={"zone": "x"}, endpoint="h:1"),
    a1=info(ONE, positions={COUNTS[1]: 30}),
    b0=info(TWO, standby=frozenset(COUNTS[:1]), positions={COUNTS[0]: UNKNOWN_POSITION, COUNTS[1]: 101}),
)


def state_of(sizes: Mapping[TaskId, int] | None) -> ApplicationState:
    return application_state(AssignmentConfigs(), FOUND, GROUP, sizes, dict)


def test_the_state_of_the_application() -> None:
    states = state_of(dict.fromkeys(COUNTS, 100)).kafka_streams_states(compute_task_lags=True)
    one, two = states.values()
    assert (one.num_processing_threads, one.client_tags, str(one.host_info), one.rack_id) == (
        2,
        {"zone": "x"},
        "h:1",
        "rack-a",
    )
    assert (one.previous_active_tasks, two.previous_standby_tasks) == (frozenset(COUNTS[:1]), frozenset(COUNTS[:1]))
    assert one.task_ids_by_consumer == {"a0": frozenset(COUNTS[:1]), "a1": frozenset()}
    assert [one.lag_for(task) for task in COUNTS] == [LATEST_OFFSET, 70]
    assert [two.lag_for(task) for task in COUNTS] == [UNKNOWN_OFFSET_SUM, 100]  # beyond the end: the topic is new
    unknown = state_of(None).kafka_streams_states(compute_task_lags=True)
    assert [unknown[ONE].lag_for(task) for task in COUNTS] == [LATEST_OFFSET, UNKNOWN_OFFSET_SUM]
    task = state_of(None).all_tasks[COUNTS[0]]
    assert task.is_stateful
    assert [each.is_changelog for each in task.topic_partitions] == [
        each.topic_partition[0].endswith("-changelog") for each in task.topic_partitions
    ]
    assert task.topic_partitions[0].rack_ids is None


def run(*assignments: KafkaStreamsAssignment) -> tuple[Scripted, AssignorRun]:
    assignor = Scripted()
    assignor.made = TaskAssignment(assignments)
    return assignor, AssignorRun(assignor, GROUP)


def whole(process: ProcessId, *more: AssignedTask) -> KafkaStreamsAssignment:
    return KafkaStreamsAssignment(process, [*(AssignedTask(task, TaskType.ACTIVE) for task in FOUND.tasks), *more])


def test_the_tasks_of_an_instance_go_to_its_threads() -> None:
    standby = KafkaStreamsAssignment(TWO, [AssignedTask(COUNTS[0], TaskType.STANDBY)], followup_rebalance_deadline_ms=0)
    assignor, made = run(whole(ONE).with_followup_rebalance(900), standby)
    placed = made.place(state_of(None), COUNTS)
    assert placed.standby == {"a0": [], "a1": [], "b0": COUNTS[:1]}
    assert sorted(placed.active["a0"] + placed.active["a1"]) == sorted(FOUND.tasks)
    assert COUNTS[0] in placed.active["a0"], "the thread that ran the task"
    assert abs(len(placed.active["a0"]) - len(placed.active["a1"])) <= 1
    assert placed.next_rebalance_ms == 1, "a deadline that has passed is not the 0 of no deadline"
    given_to: Assignments = {"a0": ([("words", 0)], b"")}
    made.report(given_to)
    assert assignor.computed == (given_to, GROUP.subscriptions, AssignmentError.NONE)


@pytest.mark.parametrize(
    ("made", "error"),
    [
        ([whole(ONE), whole(TWO)], AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES),
        ([whole(ONE)], AssignmentError.MISSING_PROCESS_ID),
    ],
)
def test_an_invalid_assignment_is_reported_with_the_members(
    made: list[KafkaStreamsAssignment], error: AssignmentError
) -> None:
    assignor, call = run(*made)
    placed = call.place(state_of(None), COUNTS)
    assert placed.active.keys() == GROUP.threads.keys()
    with pytest.raises(StreamsError, match=f"Task assignment with .*Scripted returned an error: {error.name}"):
        call.report({"a0": ([], b"")})
    assert assignor.computed == ({"a0": ([], b"")}, GROUP.subscriptions, error)


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (
            [whole(ONE), KafkaStreamsAssignment(TWO), KafkaStreamsAssignment(THREE)],
            AssignmentError.UNKNOWN_PROCESS_ID,
        ),
        (
            [whole(ONE, AssignedTask(TaskId(9, 9), TaskType.STANDBY)), KafkaStreamsAssignment(TWO)],
            AssignmentError.UNKNOWN_TASK_ID,
        ),
    ],
)
def test_an_assignment_with_unknown_ids_is_reported_without_members(
    made: list[KafkaStreamsAssignment], error: AssignmentError
) -> None:
    assignor, call = run(*made)
    with pytest.raises(StreamsError, match=f"Task assignment with .*Scripted returned a fatal error: {error.name}"):
        call.place(state_of(None), COUNTS)
    assert assignor.computed == ({}, GROUP.subscriptions, error)


def test_the_error_of_an_assignor_is_passed_on() -> None:
    assignor, call = run()
    assignor.made = RuntimeError("no idea")
    with pytest.raises(RuntimeError, match="no idea"):
        call.place(state_of(None), COUNTS)
    assert not hasattr(assignor, "computed")


def test_java_s_default_assignor_is_replaced_while_no_lags_are_known() -> None:
    state = state_of(None)
    made = without_lags(HighAvailabilityTaskAssignor()).assign(state)
    assert COUNTS[0] in {each.process_id: each for each in made.assignment}[ONE].of_type(TaskType.ACTIVE), (
        "it ran there"
    )
    other = Scripted()
    assert without_lags(other) is other
