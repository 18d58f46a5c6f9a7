"""Intake of a stream thread: stops reading partitions whose records the tasks cannot process yet.

A task that reads several partitions may wait for records of one while those of another arrive; and one with
asynchronous operators waits for their results. Without a limit their buffers would grow with the topic.

After a pause librdkafka fetches again, which takes up to fetch.wait.max.ms. A thread whose partitions all have records
therefore does not poll rather than pause a partition. Otherwise it pauses a partition whose task waits for results late
and resumes it early, so that the task does not run out of records meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.running.record_reader import RecordReader
from odradek.streams.task import Task

PAUSED: Final = 4
RESUMED: Final = 2
"""How many times buffered.records.per.partition a partition has when it is paused, and when it is resumed, if its task
waits for results.
"""


class Intake:
    """The buffers of one thread, which alone calls the methods."""

    def __init__(self, reader: RecordReader, tasks: Mapping[TopicPartition, Task], limit: int) -> None:
        """`tasks` are the running tasks by their partitions; `limit` is buffered.records.per.partition."""
        self._reader = reader
        self._tasks = tasks
        self._limit = limit

    @property
    def wants_records(self) -> bool:
        """False while every partition has records, and one whose task waits for results has enough of them."""
        enough = False
        for place, task in self._tasks.items():
            buffered = task.partition_group.buffered(place)
            if not buffered:
                return True
            enough = enough or (task.calls is not None and buffered > self._limit)
        return not enough

    def pause(self) -> None:
        """Pause the partitions that have enough records, and resume the others."""
        self._reader.pause({place for place, task in self._tasks.items() if self._has_enough(place, task)})

    def _has_enough(self, place: TopicPartition, task: Task) -> bool:
        buffered = task.partition_group.buffered(place)
        if len(task.partitions) > 1:
            return buffered > self._limit
        if task.calls is None:
            return False
        return buffered > (RESUMED if self._reader.is_paused(place) else PAUSED) * self._limit
