"""Validation of an assignment, and the assignment that changes nothing (Kafka: TaskAssignmentUtils)."""

from __future__ import annotations

import logging

from odradek.streams.assignment.application_state import ApplicationState
from odradek.streams.assignment.kafka_streams_assignment import (
    AssignedTask,
    Assignments,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskType,
)
from odradek.streams.assignment.process_id import ProcessId
from odradek.streams.assignment.task_assignor import AssignmentError
from odradek.streams.records import TaskId

log = logging.getLogger(__name__)


def identity_assignment(application_state: ApplicationState) -> Assignments:
    """The tasks that each instance had before, also those that do not exist any more."""
    return {
        process: KafkaStreamsAssignment(
            process,
            [
                *(AssignedTask(task, TaskType.ACTIVE) for task in sorted(state.previous_active_tasks)),
                *(AssignedTask(task, TaskType.STANDBY) for task in sorted(state.previous_standby_tasks)),
            ],
        )
        for process, state in application_state.kafka_streams_states(compute_task_lags=False).items()
    }


def validate_task_assignment(application_state: ApplicationState, task_assignment: TaskAssignment) -> AssignmentError:
    """The first error of an assignment, or AssignmentError.NONE; a line of the log names the task and the process.

    A task that no instance runs is no error. The leader validates what an assignor returns; an assignor may do so
    before, to correct it.
    """
    running: dict[TaskId, ProcessId] = {}
    standing_by: dict[TaskId, ProcessId] = {}
    for each in task_assignment.assignment:
        for task, task_type in each.tasks.values():
            if task not in application_state.all_tasks:
                return _invalid(AssignmentError.UNKNOWN_TASK_ID, each.process_id, task)
            if task_type is TaskType.STANDBY:
                standing_by[task] = each.process_id
            elif task in running:
                return _invalid(
                    AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES,
                    each.process_id,
                    task,
                    running[task],
                )
            else:
                running[task] = each.process_id
    for task, info in application_state.all_tasks.items():
        if task in standing_by and not info.is_stateful:
            return _invalid(AssignmentError.INVALID_STANDBY_TASK, standing_by[task], task)
    processes = application_state.kafka_streams_states(compute_task_lags=False).keys()
    assigned = {each.process_id for each in task_assignment.assignment}
    for process in sorted(processes - assigned):
        return _invalid(AssignmentError.MISSING_PROCESS_ID, process)
    for process in sorted(assigned - processes):
        return _invalid(AssignmentError.UNKNOWN_PROCESS_ID, process)
    return AssignmentError.NONE


def _invalid(
    error: AssignmentError, process: ProcessId, task: TaskId | None = None, other: ProcessId | None = None
) -> AssignmentError:
    log.error("invalid task assignment error=%s process=%s task=%s other_process=%s", error.name, process, task, other)
    return error
