"""Source worker: reads a source and writes its records with their offsets (Kafka Connect: WorkerSourceTask,
ExactlyOnceWorkerSourceTask, KIP-618).

The tasks of a connector are the partitions of its topic of offsets. The group assigns tasks to processes; a task reads
the source partitions whose keys hash to it. Opening a task fences the producer of its previous owner, which also ends
that producer's transaction, and reads the committed offsets afterwards. So the offsets are final: nothing that the
previous owner still writes becomes visible.

The worker uses the group and the tasks through two interfaces and has no clock of its own; `source_clients.py`
implements them with Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from odradek.streams.connectors.conversions import Convert
from odradek.streams.connectors.errors import ConnectError
from odradek.streams.connectors.interface import Source, SourceOffset, SourcePartition, SourceRecord
from odradek.streams.connectors.retries import Retries
from odradek.streams.connectors.source_offsets import offset_key, offset_value, task_of
from odradek.streams.records import Headers

log = logging.getLogger(__name__)


class OutputRecord(NamedTuple):
    """A record as it is written; `timestamp` in ms, None for the time of the write."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers
    partition: int | None


class TaskOutput(Protocol):
    """The output of one task."""

    @property
    def offsets(self) -> Mapping[bytes, SourceOffset]:
        """The committed offsets by key, as of the opening of the task."""

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Write records; they become visible with the next commit. Raises FencedError, RetriableError, ConnectError."""

    def commit(self, offsets: Mapping[bytes, bytes]) -> None:
        """Write offsets by key, and make them visible in one step with the records. Raises FencedError,
        RetriableError, ConnectError.
        """

    def close(self) -> None:
        """Release the output; records that were not committed are aborted. Does not raise."""


class TaskGroup(Protocol):
    """The group that shares the tasks among processes."""

    @property
    def tasks(self) -> int:
        """The number of all tasks."""

    def poll(self, timeout_s: float) -> None:
        """Serve the group; calls the listener that the group was made with."""

    def open_tasks(self, tasks: Collection[int]) -> Mapping[int, TaskOutput]:
        """Take over tasks that were assigned. Raises FencedError, RetriableError, ConnectError."""

    def close(self) -> None:
        """Leave the group, without calls to the listener. Does not raise."""


class TaskListener(Protocol):
    """What a group calls within `poll`."""

    def tasks_assigned(self, tasks: Collection[int]) -> None:
        """These tasks belong to this process from now on, and no others."""

    def tasks_revoked(self, lost: bool) -> None:
        """None does. `lost` where other processes may own them already."""


class SourceSettings(NamedTuple):
    """What the configuration states about a source worker; times in seconds."""

    connector: str
    key: Convert
    value: Convert
    max_records: int
    poll_s: float
    commit_s: float
    refresh_s: float


class _OpenPartition(NamedTuple):
    key: bytes
    output: TaskOutput
    pending: dict[bytes, bytes]
    """The offsets of the task that are not committed yet, by key."""


_Name = tuple[tuple[str, Any], ...]


def _name_of(partition: SourcePartition) -> _Name:
    return tuple(sorted(partition.items()))


class SourceWorker:
    """One session of a source: from joining the group to leaving it. Any exception of `step` ends the session."""

    def __init__(
        self,
        source: Source,
        settings: SourceSettings,
        make_group: Callable[[TaskListener], TaskGroup],
        retries: Retries,
        clock: Callable[[], float],
    ) -> None:
        self._source = source
        self._settings = settings
        self._retries = retries
        self._clock = clock
        self._assigned: frozenset[int] = frozenset()
        self._outputs: dict[int, tuple[TaskOutput, dict[bytes, bytes]]] = {}
        self._open: dict[_Name, _OpenPartition] = {}
        self._refresh_at = clock()
        self._commit_at = clock() + settings.commit_s
        self.commits = 0
        """Commits that wrote something."""
        self._group = make_group(self)

    @property
    def is_assigned(self) -> bool:
        """Whether the group has assigned tasks to this process."""
        return bool(self._assigned)

    # ---- called by the group

    def tasks_assigned(self, tasks: Collection[int]) -> None:
        """See TaskListener; the next step opens them."""
        log.info("source tasks assigned connector=%s tasks=%s", self._settings.connector, sorted(tasks))
        self._assigned = frozenset(tasks)
        self._refresh_at = self._clock()

    def tasks_revoked(self, lost: bool) -> None:
        """See TaskListener. Commits before, unless the tasks are lost."""
        log.info("source tasks revoked connector=%s lost=%s", self._settings.connector, lost)
        if not lost:
            self.commit()
        self._release()

    # ---- the loop

    def step(self) -> None:
        """Poll the group and the source once, and commit if it is time. Raises what ends the session."""
        self._group.poll(0)
        now = self._clock()
        if self._assigned and now >= self._refresh_at:
            self._open_partitions()
            self._refresh_at = now + self._settings.refresh_s
        records = self._poll_source() if self._open else ()
        if records:
            self._write(records)
        if self._clock() >= self._commit_at:
            self.commit()
        if not records:
            self._group.poll(self._settings.poll_s)

    def commit(self) -> None:
        """Commit every task that has written. Raises FencedError, RetriableError, ConnectError."""
        for output, pending in self._outputs.values():
            if pending:
                output.commit(pending)
                pending.clear()
                self.commits += 1
        self._commit_at = self._clock() + self._settings.commit_s

    def close(self) -> None:
        """Close the source and leave the group; what was not committed is aborted."""
        self._release()
        self._group.close()

    # ---- internals

    def _release(self) -> None:
        self._assigned = frozenset()
        self._open.clear()
        self._source.close()
        for output, _ in self._outputs.values():
            output.close()
        self._outputs.clear()

    def _open_partitions(self) -> None:
        """Open the source partitions of the assigned tasks that are not open yet."""
        found: list[tuple[SourcePartition, bytes, int]] = []
        for partition in self._retries.call("partitions", self._source.partitions):
            key = offset_key(self._settings.connector, partition)
            task = task_of(key, self._group.tasks)
            if task in self._assigned and _name_of(partition) not in self._open:
                found.append((partition, key, task))
        fresh = {task for _, _, task in found} - self._outputs.keys()
        if fresh:
            self._outputs.update((task, (each, {})) for task, each in self._group.open_tasks(fresh).items())
        for partition, key, task in found:
            output, pending = self._outputs[task]
            offset = output.offsets.get(key)
            log.info("source partition opened partition=%s task=%d offset=%s", dict(partition), task, offset)
            self._retries.call("open", lambda given=partition, at=offset: self._source.open(given, at))  # type: ignore[misc]
            self._open[_name_of(partition)] = _OpenPartition(key, output, pending)

    def _poll_source(self) -> Sequence[SourceRecord]:
        settings = self._settings
        return self._retries.call("poll", lambda: self._source.poll(settings.max_records, settings.poll_s))

    def _write(self, records: Sequence[SourceRecord]) -> None:
        settings = self._settings
        batches: dict[int, tuple[TaskOutput, list[OutputRecord]]] = {}
        last: SourcePartition | None = None
        for record in records:
            if record.source_partition is not last:
                last = record.source_partition
                opened = self._opened(last)
                _, batch = batches.setdefault(id(opened.output), (opened.output, []))
            topic = record.topic
            batch.append(
                OutputRecord(
                    topic,
                    settings.key(record.key, topic),
                    settings.value(record.value, topic),
                    record.timestamp,
                    record.headers,
                    record.partition,
                )
            )
        for output, batch in batches.values():
            output.write(batch)
        for record in records:  # the latest of each partition stays
            opened = self._open[_name_of(record.source_partition)]
            opened.pending[opened.key] = offset_value(record.source_offset)

    def _opened(self, partition: SourcePartition) -> _OpenPartition:
        opened = self._open.get(_name_of(partition))
        if opened is None:
            raise ConnectError(f"the source returned a record of partition {dict(partition)}, which is not open")
        return opened
