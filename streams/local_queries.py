"""Queries of the tasks of one client (KIP-796; Kafka: KafkaStreams.query)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.errors import InvalidStateStoreError
from odradek.streams.query_execution import BARE, execute
from odradek.streams.shown_results import Result, shown, shown_rows
from odradek.streams.state_query import (
    FailureReason,
    Position,
    PositionBound,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)

if TYPE_CHECKING:
    from odradek.streams.records import TaskId
    from odradek.streams.running.task_state import TaskState
    from odradek.streams.running.thread import StreamThread

NOT_PRESENT: Final = "The requested partition was not present at the time of the query."
NOT_GLOBAL: Final = "Global stores do not yet support the KafkaStreams#query API. Use KafkaStreams#store instead."


def query_tasks(
    threads: Sequence[StreamThread], request: StateQueryRequest, stamped: bool, result_of: Result | None = None
) -> StateQueryResult:
    """The results of a request, by partition. `stamped`: values are `(value, timestamp)` in the store; `result_of` is
    what shows them, where they are states.
    """
    result, wanted = StateQueryResult(), request.partitions
    for thread in threads:
        for state, active in thread.states():
            partition, store = state.task_id.partition, state.stores.get(request.store_name)
            if store is None or (wanted is not None and partition not in wanted):
                continue
            known = result.partition_results.get(partition)
            if known is None or known.is_failure:
                found = _answer(thread, state, active, store, request, stamped)
                if result_of is not None and found.is_success:
                    found.value = _shown(found.value, result_of, stamped and not isinstance(request.query, BARE))
                result.partition_results[partition] = found
    for partition in sorted(set(wanted or ()) - result.partition_results.keys()):
        result.partition_results[partition] = QueryResult(None, FailureReason.NOT_PRESENT, NOT_PRESENT)
    return result


def global_result() -> StateQueryResult:
    """The result for a global store: a failure, as in Kafka."""
    return StateQueryResult(global_result=QueryResult(None, FailureReason.UNKNOWN_QUERY_TYPE, NOT_GLOBAL))


def _answer(
    thread: StreamThread, state: TaskState, active: bool, store: Any, request: StateQueryRequest, stamped: bool
) -> QueryResult:
    """The result of one task's store."""
    started = time.perf_counter_ns()
    if request.require_active and not (active and thread.state.name == "RUNNING"):
        role = "active" if active else "not active"
        message = (
            f"Query requires a running active task, but partition was in state {thread.state.name} and was {role}."
        )
        return QueryResult(None, FailureReason.NOT_ACTIVE, message)
    bound = PositionBound.unbounded() if request.require_active else request.position_bound
    with thread.lock:
        position = _position(thread, state.task_id) if active else Position()
        try:
            found = execute(store, stamped, request.query, bound, position, state.task_id.partition)
        except InvalidStateStoreError as error:  # a rebalance has closed the store
            return QueryResult(None, FailureReason.NOT_PRESENT, str(error))
    if request.execution_info:
        took_us = (time.perf_counter_ns() - started) // 1000
        found.execution_info.append(f"store={store.name} task={state.task_id} thread={thread.name} took_us={took_us}")
    return found


def _shown(value: Any, result_of: Result, stamped: bool) -> Any:
    """The answer to a query with results in place of states."""
    return (shown_rows if isinstance(value, Iterator) else shown)(value, result_of, stamped)


def _position(thread: StreamThread, task_id: TaskId) -> Position:
    """How far a task has processed its input: to its committed offsets at least."""
    position = Position()
    each = thread.tasks.tasks.get(task_id) if thread.tasks is not None else None
    if each is not None and each.task is not None:
        for (topic, partition), offset in each.committed.items():
            if offset > 0:
                position.with_component(topic, partition, offset - 1)
        for (topic, partition), offset in each.task.processed_offsets().items():
            position.with_component(topic, partition, offset)
    return position
