"""Task assignors: which instance of an application runs which task (org.apache.kafka.streams.processor.assignment).

A class of one's own is a `TaskAssignor` (KIP-924); the property `task.assignor.class` names it. The functions here
assign standbys, move tasks to the racks of their partitions (KIP-925), and validate the result.
"""

from __future__ import annotations

from odradek.streams.assignment.application_state import LATEST_OFFSET as LATEST_OFFSET
from odradek.streams.assignment.application_state import UNKNOWN_OFFSET_SUM as UNKNOWN_OFFSET_SUM
from odradek.streams.assignment.application_state import ApplicationState as ApplicationState
from odradek.streams.assignment.application_state import AssignmentConfigs as AssignmentConfigs
from odradek.streams.assignment.application_state import KafkaStreamsState as KafkaStreamsState
from odradek.streams.assignment.application_state import TaskInfo as TaskInfo
from odradek.streams.assignment.application_state import TaskTopicPartition as TaskTopicPartition
from odradek.streams.assignment.high_availability import HighAvailabilityTaskAssignor as HighAvailabilityTaskAssignor
from odradek.streams.assignment.kafka_streams_assignment import AssignedTask as AssignedTask
from odradek.streams.assignment.kafka_streams_assignment import Assignments as Assignments
from odradek.streams.assignment.kafka_streams_assignment import KafkaStreamsAssignment as KafkaStreamsAssignment
from odradek.streams.assignment.kafka_streams_assignment import TaskAssignment as TaskAssignment
from odradek.streams.assignment.kafka_streams_assignment import TaskType as TaskType
from odradek.streams.assignment.process_id import ProcessId as ProcessId
from odradek.streams.assignment.rack_aware import RackAwareOptimizationParams as RackAwareOptimizationParams
from odradek.streams.assignment.rack_aware import optimize_rack_aware_active_tasks as optimize_rack_aware_active_tasks
from odradek.streams.assignment.rack_aware import optimize_rack_aware_standby_tasks as optimize_rack_aware_standby_tasks
from odradek.streams.assignment.standby_tasks import default_standby_task_assignment as default_standby_task_assignment
from odradek.streams.assignment.sticky import StickyTaskAssignor as StickyTaskAssignor
from odradek.streams.assignment.task_assignor import AssignmentError as AssignmentError
from odradek.streams.assignment.task_assignor import TaskAssignmentError as TaskAssignmentError
from odradek.streams.assignment.task_assignor import TaskAssignor as TaskAssignor
from odradek.streams.assignment.validation import identity_assignment as identity_assignment
from odradek.streams.assignment.validation import validate_task_assignment as validate_task_assignment
