"""Mistakes of logs on disks that fail, each a mutant for the simulation with `disks` to find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn
from unittest import mock

from odradek.broker.controller.state.partition_state_machine import PartitionStateMachine
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.log import Log
from odradek.storage.segment import Segment
from tests.mutants.replication import Plant


@contextmanager
def kafka_10778() -> Iterator[None]:
    """Appends continue behind the remains of a failed write, and the log is not taken offline."""

    def undo(log: Log, segment: Segment, size: int, error: OSError) -> NoReturn:
        segment.size = len(segment.file.read(1 << 30, 0))
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    with mock.patch.object(Log, "_undo", undo):
        yield


@contextmanager
def cords() -> Iterator[None]:
    """A log truncated at a bad checksum in its middle counts as if only a torn tail was gone: its broker stays in sync.

    It may lead then, and its followers truncate (Redundancy Does Not Imply Fault Tolerance, FAST 2017).
    """
    real = PartitionStateMachine._renewed

    def renewed(
        partitions: PartitionStateMachine, partition: Any, state: Any, replicas: Any, bounced: Sequence[int]
    ) -> Any:
        return real(partitions, partition, state, replicas, [])

    with mock.patch.object(PartitionStateMachine, "_renewed", renewed):
        yield


LOG_MUTANTS: dict[str, Plant] = {"KAFKA-10778": kafka_10778, "CORDS": cords}
