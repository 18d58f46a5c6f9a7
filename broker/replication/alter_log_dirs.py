"""Moves replicas between data directories (KIP-113; Kafka: ReplicaAlterLogDirsManager, ReplicaAlterLogDirsThread).

An AlterReplicaLogDirs request creates a future log in the other directory. A thread copies the batches of the replica's
log into it in pieces, as a follower would; producers and consumers continue to use the current log meanwhile. When the
future log has nearly caught up, the event loop copies the rest in one step, so that no append comes in between, and
exchanges the two logs (`Directories.exchange`).

One replica moves at a time, in the order of the requests. If the current log was truncated meanwhile, its `generation`
has changed. The future log is then truncated to the point where the leader epochs of both logs diverge, as a follower's
log is (KIP-101). The same happens to a future log that is incomplete because the broker was stopped. If a move fails
for lack of disk space or because the log is damaged, the future log stays and DescribeLogDirs shows its lag. The broker
retries such a move periodically.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from odradek.broker.quota.replication_quota_manager import ReplicationQuotaManager
from odradek.broker.quota.state.rates import MS_PER_SECOND
from odradek.broker.replication.partition import Replica, Replicas, Worker
from odradek.broker.replication.state.follower import truncation_offset
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol.batch import HEADER_SIZE, read_header
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.descriptors import is_exhausted
from odradek.storage.directories import Directories
from odradek.storage.directory import Directory
from odradek.storage.log import Epochs, Log
from odradek.storage.recovery import do_nothing
from odradek.storage.segment import FileRange
from odradek.storage.segments import LogSlice

log = logging.getLogger(__name__)

MOST_PREFERRED: Final = 10_000
"""Partitions whose next log has a requested directory. Beyond them the oldest request has no effect: a client may name
partitions that never exist.
"""
PIECE_BYTES: Final = 1 << 20
GROWS_TO: Final = 32
"""The largest piece, as a multiple of the first one, for a move that does not catch up with the producers."""
THROTTLED_MS: Final = 100
"""The time until the quota of moves is looked at again while it is exceeded."""
NO_LIMIT: Final = 2**63 - 1
LONGEST_NAME: Final = 255
FUTURE_NAME_SIZE: Final = len(f".{0:032x}-future")


class _Move:
    """The move of one replica. The copied records were compacted below `cleaned_to`.

    `piece_bytes` is the number of bytes to copy at a time, and the most that may be left for the last step. It grows
    whenever a piece or a flush has not reduced the lag of the future log. At the maximum, pieces are copied on the
    event loop, where appends have to wait: so every move ends, even under continuous writes.
    """

    __slots__ = ("cleaned_to", "future", "generation", "is_flushed", "lag", "most_bytes", "piece_bytes", "replica")

    def __init__(self, replica: Replica, future: Log, cleaned_to: int, piece_bytes: int) -> None:
        self.replica = replica
        self.future = future
        self.cleaned_to = cleaned_to
        self.generation = -1
        self.is_flushed = False
        self.lag = NO_LIMIT
        self.piece_bytes = piece_bytes
        self.most_bytes = piece_bytes * GROWS_TO

    def check_lag(self) -> None:
        """Double the size of pieces if the lag has not become smaller."""
        lag = self.replica.log.end_offset - self.future.end_offset
        if lag >= self.lag:
            self.piece_bytes = min(2 * self.piece_bytes, self.most_bytes)
        self.lag = lag


class ReplicaMoves:
    """All moves of this broker (Kafka: ReplicaAlterLogDirsManager)."""

    def __init__(self, directories: Directories, replicas: Replicas, clock: Clock, worker: Worker) -> None:
        """Starts no move before `alter_log_dir`, or before `made` finds an interrupted one."""
        self._directories = directories
        self._replicas = replicas
        self._clock = clock
        self._worker = worker
        self._preferred: dict[TopicPartition, Directory] = {}
        self._moves: dict[TopicPartition, _Move] = {}  # the first one is running
        self._stuck: dict[TopicPartition, _Move] = {}
        self._is_busy = False
        self._closed = False
        self._quota: ReplicationQuotaManager | None = None
        self._timers: Timers | None = None
        self._timer: Timer | None = None
        self.piece_bytes = PIECE_BYTES

    def limit(self, quota: ReplicationQuotaManager, timers: Timers) -> None:
        """Copy no more bytes a second than `quota` allows (replica.alter.log.dirs.io.max.bytes.per.second)."""
        self._quota = quota
        self._timers = timers

    # ---- requests

    def alter_log_dir(self, name: TopicPartition, path: str) -> None:
        """Move the replica of (topic, partition) to the directory with this path. If the replica does not exist yet,
        it will be created there.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION for a name that is too long, LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR,
        REPLICA_NOT_AVAILABLE if the replica does not exist yet.
        """
        if len(f"{name[0]}-{name[1]}") + FUTURE_NAME_SIZE > LONGEST_NAME:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        destination = self._directories.at(path)
        if destination is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        if destination.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        replica = self._replicas.get(*name)
        if replica is not None and replica.log.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {name[0]}-{name[1]} is offline")
        going_to = self._directories.expecting(name)
        if replica is not None and going_to is not None and going_to is not destination:
            self.cancel(name)
            going_to = None
        if name not in destination.logs and name not in destination.futures:
            self._preferred[name] = destination
            if len(self._preferred) > MOST_PREFERRED:
                del self._preferred[next(iter(self._preferred))]
        if replica is None:
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"this broker has no replica of {name[0]}-{name[1]}; a new one will be created in {path}",
            )
        if name in destination.logs:
            self._preferred.pop(name, None)
            return
        if going_to is None:
            if self._directories.offline:
                # The offline directory may have another future log of this partition.
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{name[0]}-{name[1]} cannot move while a log directory is offline"
                )
            self._begin(replica, destination)
        elif name in self._stuck:
            self._moves[name] = self._stuck.pop(name)
        self._go_on()

    def preferred(self, name: TopicPartition) -> Directory | None:
        """The directory for a new log of (topic, partition), None if none was requested; removes the entry. Raises
        KafkaError if the directory is offline.
        """
        directory = self._preferred.pop(name, None)
        if directory is not None and directory.failure is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{name[0]}-{name[1]} cannot be created in {directory.path}, which is offline",
            )
        return directory

    def made(self, replica: Replica) -> None:
        """A replica was created: continue its move if a stop of the broker has interrupted one."""
        name = (replica.topic, replica.partition)
        destination = self._directories.expecting(name)
        if destination is None or name in self._moves:
            return
        future = destination.futures[name]
        if future.topic_id not in (replica.topic_id, bytes(16)) or destination.failure is not None:
            self.cancel(name)
            return
        self._moves[name] = _Move(replica, future, -1, self.piece_bytes)
        self._go_on()

    def cancel(self, name: TopicPartition) -> None:
        """Cancel a move, if there is one, and delete its future log. Raises KafkaError when the disk fails."""
        self._moves.pop(name, None)
        self._stuck.pop(name, None)
        for directory in self._directories:
            if name in directory.futures and directory.failure is None:
                directory.delete_log(name, now_ms=self._clock.now_ms(), is_future=True)

    def deleted(self, name: TopicPartition) -> None:
        """The replica is deleted from this broker. Raises KafkaError when the disk fails."""
        self._preferred.pop(name, None)
        self.cancel(name)

    def failed(self, directory: Directory) -> None:
        """A directory is offline: end the moves from and to it."""
        gone = [name for name in (*self._moves, *self._stuck) if name in directory.logs or name in directory.futures]
        for name in gone:
            self._moves.pop(name, None)
            self._stuck.pop(name, None)

    def retry(self) -> None:
        """Retry the moves that failed."""
        for name in [name for name, move in self._stuck.items() if move.future.failure is None]:
            self._moves[name] = self._stuck.pop(name)
        self._go_on()

    def close(self) -> None:
        """End all moves; the broker continues them after its next start."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # ---- steps of a move

    def _begin(self, replica: Replica, destination: Directory) -> None:
        name = (replica.topic, replica.partition)
        self._preferred.pop(name, None)
        source, now_ms = replica.log, self._clock.now_ms()
        future = destination.create_log(name, replica.topic_id, source.config, now_ms=now_ms, is_future=True)
        log.info(
            "moving replica topic=%s partition=%d source=%s destination=%s", *name, source.directory, destination.path
        )
        self._moves[name] = _Move(replica, future, source.cleaned_to, self.piece_bytes)

    def _go_on(self) -> None:
        """Start the next step of the first move, unless a step is running."""
        while self._moves and not self._is_busy and not self._closed:
            if self._quota is not None and self._quota.is_exceeded():
                self._wait()
                return
            name, move = next(iter(self._moves.items()))
            try:
                self._step(name, move)
            except (KafkaError, _ReadError) as error:
                self._broke_off(name, move, error)

    def _wait(self) -> None:
        """Look at the quota again a little later."""
        if self._timer is None and self._timers is not None:
            self._timer = self._timers.at(self._clock.monotonic_ms() + THROTTLED_MS, self._waited)

    def _waited(self) -> None:
        self._timer = None
        self._go_on()

    def _piece_bytes(self, move: _Move) -> int:
        """How many bytes to copy next: with a quota no more than it allows until it is looked at again, unless the move
        does not catch up.
        """
        if self._quota is None:
            return move.piece_bytes
        allowed = self._quota.bound * THROTTLED_MS / MS_PER_SECOND
        return int(min(move.piece_bytes, max(1, allowed) * GROWS_TO * move.piece_bytes / move.most_bytes))

    def _count(self, size: int) -> None:
        if self._quota is not None:
            self._quota.record(size)

    def _step(self, name: TopicPartition, move: _Move) -> None:
        replica, future = move.replica, move.future
        if replica.log.failure is not None:
            del self._moves[name]
            return
        source = replica.log
        future.config = source.config
        if move.generation != source.generation or future.end_offset < source.start_offset:
            self._align(move)
        offset = max(future.end_offset, source.start_offset)
        piece_bytes = self._piece_bytes(move)
        part = replica.read(offset, piece_bytes, upper=NO_LIMIT, at_least_one=True)
        records = part.records
        is_rest = _bytes_from(source, part) < piece_bytes
        if isinstance(records, FileRange) and not is_rest:
            self._copy(name, move, records)
        elif move.is_flushed:
            self._finish(name, move)
        else:
            self._flush(name, move)

    def _copy(self, name: TopicPartition, move: _Move, records: FileRange) -> None:
        now_ms, future = self._clock.now_ms(), move.future
        epochs = move.replica.log.epochs.entries()
        move.is_flushed = False
        before = future.size

        def copied(error: BaseException | None) -> None:
            if error is not None:
                raise error
            self._count(future.size - before)  # of the last batch a piece may have only a part, which is not copied
            move.check_lag()

        if move.piece_bytes < move.most_bytes:
            self._run(name, move, lambda: _append(future, records, now_ms, epochs), copied)
        else:
            _append(future, records, now_ms, epochs)
            self._run(name, move, do_nothing, copied)

    def _flush(self, name: TopicPartition, move: _Move) -> None:
        future, destination = move.future, self._directories.expecting(name)
        assert destination is not None
        flush, mark, source = future.start_flush(), destination.marking(name), self._directories.holding(name)
        present = move.replica.log
        failed: list[OSError] = []

        def work() -> None:
            flush.run()
            try:
                present.sync_names()  # that it has no mark: of two logs with a mark neither replaces the other
            except OSError as error:
                failed.append(error)
                return
            mark()

        def flushed(error: BaseException | None) -> None:
            if error is not None and not isinstance(error, OSError):
                raise error
            future.finish_flush(flush, error, now_ms=self._clock.now_ms())
            if failed:
                if source is not None and not is_exhausted(failed[0]):
                    source.fail(f"syncing {source.path}: {failed[0]}")
                return
            move.is_flushed = True
            move.check_lag()

        self._run(name, move, work, flushed)

    def _run(
        self, name: TopicPartition, move: _Move, work: Callable[[], None], then: Callable[[BaseException | None], None]
    ) -> None:
        """Run `work` in a thread, then call `then` and start the next step."""
        self._is_busy = True

        def done(error: BaseException | None) -> None:
            self._is_busy = False
            if self._moves.get(name) is move:
                try:
                    then(error)
                except (KafkaError, _ReadError) as failure:
                    self._broke_off(name, move, failure)
            self._go_on()

        self._worker.run(work, done)

    def _finish(self, name: TopicPartition, move: _Move) -> None:
        """Copy the remaining records and exchange the two logs."""
        replica, future = move.replica, move.future
        source, now_ms = replica.log, self._clock.now_ms()
        while future.end_offset < source.end_offset:
            offset = max(future.end_offset, source.start_offset)
            part = replica.read(offset, move.piece_bytes, upper=NO_LIMIT, at_least_one=True)
            if not isinstance(part.records, FileRange):
                break  # compaction has removed the last records
            before = future.size
            _append(future, part.records, now_ms, source.epochs.entries())
            self._count(future.size - before)
        if source.config.flushes or future.recovery_point < source.recovery_point:
            future.flush(now_ms=now_ms)
        was, left = source.directory, self._directories.holding(name)
        replica.log = self._directories.exchange(name, move.cleaned_to, now_ms)
        replica.cleaned()
        self._moves.pop(name, None)
        log.info("moved replica topic=%s partition=%d source=%s destination=%s", *name, was, future.directory)
        if left is not None and left.failure is None:
            self._worker.run(left.sync_names, lambda error: self._left(name, future, left, error))

    def _left(self, name: TopicPartition, new: Log, directory: Directory, error: BaseException | None) -> None:
        """The rename of the old log is durable, or its directory has failed."""
        if error is not None:
            directory.fail(f"syncing {directory.path}: {error}")
            return
        try:
            self._directories.settled(name, new)
        except KafkaError as failure:
            log.error("failed to complete move topic=%s partition=%d error=%s", *name, failure.message)

    def _align(self, move: _Move) -> None:
        """Make the future log a part of the current log: truncate it where the logs diverge, or restart it at the start
        of the current log if they do not overlap.
        """
        source, future, now_ms = move.replica.log, move.future, self._clock.now_ms()
        if move.generation != source.generation:
            move.generation = source.generation
            move.cleaned_to = min(move.cleaned_to, source.cleaned_to)
            move.is_flushed = False
        first = _first_offset(source)
        while future.end_offset > first and future.epochs.latest >= 0:
            epoch, end = source.epochs.end_offset(future.epochs.latest, source.end_offset)
            offset = truncation_offset(epoch, end, future.epochs, future.end_offset, first)
            if offset >= future.end_offset:
                break
            future.truncate_to(offset, now_ms=now_ms)
        meets = first <= future.end_offset <= source.end_offset and future.start_offset <= source.start_offset
        if future.end_offset != first and (not meets or future.epochs.latest < 0):
            future.truncate_fully(first, now_ms=now_ms)
            move.is_flushed = False

    def _broke_off(self, name: TopicPartition, move: _Move, error: KafkaError | _ReadError) -> None:
        """A step has failed: the log was truncated meanwhile, a directory has failed, or the move waits for a retry."""
        replica, future = move.replica, move.future
        if self._moves.get(name) is move and move.generation != replica.log.generation and future.failure is None:
            return  # the records that were being copied were truncated
        log.error("move failed topic=%s partition=%d destination=%s error=%s", *name, future.directory, error)
        self._moves.pop(name, None)
        source, destination = self._directories.holding(name), self._directories.expecting(name)
        if isinstance(error, _ReadError) and source is not None:
            source.fail(str(error))
        elif future.failure is not None and destination is not None:
            destination.fail(future.failure)
        elif replica.log.failure is None:
            move.generation = -1
            self._stuck[name] = move


class _ReadError(Exception):
    """The current log of a move cannot be read."""


def _bytes_from(source: Log, part: LogSlice) -> int:
    """The number of bytes from the start of a slice to the end of the log."""
    behind = sum(each.size for each in source.segments if each.base_offset >= part.segment_base)
    return behind - part.position


def _append(future: Log, records: FileRange, now_ms: int, epochs: Epochs) -> None:
    """Copy batches. Raises KafkaError, _ReadError."""
    try:
        data = records.read()
    except OSError as error:
        raise _ReadError(f"cannot read the log of a replica to move: {error}") from error
    future.append_replicated(data, now_ms=now_ms, epochs=epochs)


def _first_offset(source: Log) -> int:
    """The start offset of a copy of the log: that of the batch with the log start offset. Raises KafkaError,
    _ReadError.
    """
    part = source.read(source.start_offset, HEADER_SIZE)
    if not isinstance(part.records, FileRange):
        return source.start_offset
    try:
        return min(source.start_offset, read_header(part.records.read()).base_offset)
    except OSError as error:
        raise _ReadError(f"cannot read the log of a replica to move: {error}") from error
