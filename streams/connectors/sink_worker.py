"""Sink worker: reads topics and writes their records to a sink (Kafka Connect: WorkerSinkTask).

Where the sink stores offsets with the records, the worker begins there, and what the group has committed is for
monitoring only. Records that cannot be converted, or that the sink cannot write, end the connector, or go to a
dead-letter topic (errors.tolerance=all): the worker halves a batch that the sink rejects until it has found them.

The worker reads through an interface and has no clock of its own; `sink_clients.py` implements it with Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.connectors.conversions import Convert
from odradek.streams.connectors.dead_letters import ErrorStage, dead_letter
from odradek.streams.connectors.errors import ConnectError
from odradek.streams.connectors.interface import Sink, SinkRecord
from odradek.streams.connectors.retries import Retries
from odradek.streams.errors import DeadLetter

log = logging.getLogger(__name__)


class SinkInput(Protocol):
    """The records of the partitions that a group assigns to this process."""

    def poll(self, max_records: int, timeout_s: float) -> Sequence[SinkRecord]:
        """The next records, as bytes. Calls the listener that the input was made with. Raises ConnectError."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets to the group. Raises FencedError; another failure is only logged."""

    def send_dead_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Write records; they are acknowledged on return. Raises ConnectError."""

    def close(self) -> None:
        """Leave the group, without calls to the listener. Does not raise."""


class PartitionListener(Protocol):
    """What an input calls within `poll`."""

    def partitions_assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """These partitions belong to this process from now on, and no others. Returns the offsets to begin at."""

    def partitions_revoked(self, lost: bool) -> None:
        """None does. `lost` where other processes may own them already."""


class SinkSettings(NamedTuple):
    """What the configuration states about a sink worker; times in seconds."""

    connector: str
    group: str
    key: Convert
    value: Convert
    max_records: int
    poll_s: float
    commit_s: float
    tolerant: bool
    dead_letter_topic: str | None
    dead_letter_headers: bool


class _Converted(NamedTuple):
    """A record as it was read, and as the sink gets it."""

    raw: SinkRecord
    record: SinkRecord


class SinkWorker:
    """One session of a sink: from joining the group to leaving it. Any exception of `step` ends the session."""

    def __init__(
        self,
        sink: Sink,
        settings: SinkSettings,
        make_input: Callable[[PartitionListener], SinkInput],
        retries: Retries,
        clock: Callable[[], float],
    ) -> None:
        self._sink = sink
        self._settings = settings
        self._retries = retries
        self._clock = clock
        self._positions: dict[TopicPartition, int] = {}
        """The next offset of each partition of which records were put, or rejected, since the last commit."""
        self._commit_at = clock() + settings.commit_s
        self._is_assigned = False
        self.rejected = 0
        """Records that were dropped, or written to the dead-letter topic."""
        self.commits = 0
        """Commits of at least one offset."""
        self._input = make_input(self)

    @property
    def is_assigned(self) -> bool:
        """Whether the group has assigned partitions to this process."""
        return self._is_assigned

    # ---- called by the input

    def partitions_assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See PartitionListener. Raises ConnectError."""
        log.info("sink partitions assigned connector=%s partitions=%s", self._settings.connector, sorted(partitions))
        self._positions.clear()
        starts = self._retries.call("open", lambda: self._sink.open(self._settings.group, partitions))
        if starts:
            log.info("sink continues at its own offsets connector=%s offsets=%s", self._settings.connector, starts)
        self._positions.update(starts)  # the process before may have ended before it committed them
        self._is_assigned = bool(partitions)
        return starts

    def partitions_revoked(self, lost: bool) -> None:
        """See PartitionListener. Flushes and commits before, unless the partitions are lost."""
        log.info("sink partitions revoked connector=%s lost=%s", self._settings.connector, lost)
        if not lost:
            self.commit()
        self._release()

    # ---- the loop

    def step(self) -> None:
        """Poll once, put the records, and commit if it is time. Raises what ends the session."""
        settings = self._settings
        records = self._input.poll(settings.max_records, settings.poll_s)
        if records:
            self._put([each for each in map(self._convert, records) if each is not None])
            self._positions.update((each.topic_partition, each.offset + 1) for each in records)
        if self._clock() >= self._commit_at:
            self.commit()

    def commit(self) -> None:
        """Flush the sink and commit what was put. Raises FencedError, ConnectError."""
        if self._positions:
            self._retries.call("flush", self._sink.flush)
            self._input.commit(dict(self._positions))
            self._positions.clear()
            self.commits += 1
        self._commit_at = self._clock() + self._settings.commit_s

    def close(self) -> None:
        """Close the sink and leave the group; what was not committed is read again later."""
        self._release()
        self._input.close()

    # ---- internals

    def _release(self) -> None:
        self._is_assigned = False
        self._positions.clear()
        self._sink.close()

    def _convert(self, raw: SinkRecord) -> _Converted | None:
        """None for a record that was rejected."""
        stage, convert = ErrorStage.KEY_CONVERTER, self._settings.key
        try:
            key = convert(raw.key, raw.topic)
            stage, convert = ErrorStage.VALUE_CONVERTER, self._settings.value
            value = convert(raw.value, raw.topic)
        except Exception as error:
            self._reject(raw, error, stage, type(convert).__name__)
            return None
        record = SinkRecord(raw.topic, raw.partition, raw.offset, key, value, raw.timestamp, raw.headers)
        return _Converted(raw, record)

    def _put(self, converted: Sequence[_Converted]) -> None:
        """Put records; of a batch that the sink rejects, put each half by itself."""
        if not converted:
            return
        records = [each.record for each in converted]
        try:
            self._retries.call("put", lambda: self._sink.put(records))
        except ConnectError:
            raise
        except Exception as error:
            if len(converted) == 1 or not self._settings.tolerant:
                self._reject(
                    converted[0].raw, error, ErrorStage.TASK_PUT, type(self._sink).__qualname__, len(converted)
                )
                return
            middle = len(converted) // 2
            self._put(converted[:middle])
            self._put(converted[middle:])

    def _reject(self, raw: SinkRecord, error: Exception, stage: ErrorStage, executed: str, count: int = 1) -> None:
        """Drop a record, or write it to the dead-letter topic. Raises ConnectError where that is not allowed."""
        settings = self._settings
        where = f"topic={raw.topic}, partition={raw.partition}, offset={raw.offset}"
        if not settings.tolerant:
            of = "the record at" if count == 1 else f"one of {count} records from"
            raise ConnectError(
                f"{stage.name} failed for {of} {where}: {error!r}. errors.tolerance=all continues after such records"
            ) from error
        self.rejected += 1
        log.warning("record rejected stage=%s context=%s error=%r", stage.name, where, error)
        if settings.dead_letter_topic is not None:
            letter = dead_letter(
                raw,
                error,
                stage,
                settings.dead_letter_topic,
                settings.connector,
                executed=executed,
                with_headers=settings.dead_letter_headers,
            )
            self._input.send_dead_letters([letter])
