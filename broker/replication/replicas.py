"""Replica host: creates, configures and removes the replicas on this broker (Kafka: ReplicaManager and LogManager).

Control requests (`replica_manager.py`) name topics and epochs; a log has neither. This module maps each partition to
its log directory and each topic's configuration to that of its logs.

A disk that fails under one log takes its whole directory offline (KIP-112): the replicas there reject all requests. The
broker runs while at least one directory is online. While a directory is offline, the broker creates no log for a
replica that is not new, because its records may be in that directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Final, Protocol

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.topic_config import effective_values
from odradek.broker.config.types import ConfigError
from odradek.broker.replication.alter_log_dirs import ReplicaMoves
from odradek.broker.replication.checkpoint_writes import CheckpointWrites, high_watermarks_of
from odradek.broker.replication.partition import AlterPartitionManager, Replica, Replicas, Worker
from odradek.broker.replication.scheduled_work import ScheduledWork
from odradek.broker.replication.state.partition import PartitionMachine, Role
from odradek.broker.runtime.purgatory import check_and_complete
from odradek.broker.runtime.scheduler import Parts
from odradek.broker.runtime.timers import Clock
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.absent import absent_log
from odradek.storage.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS
from odradek.storage.config import LogConfig
from odradek.storage.descriptors import is_exhausted
from odradek.storage.directories import Directories, emptiest
from odradek.storage.directory import Directory
from odradek.storage.log import Log
from odradek.storage.taking import taking

log = logging.getLogger(__name__)

NO_TOPIC_ID: Final = bytes(16)
REPLICAS_AT_ONCE: Final = 1000
"""Replicas of a scheduled task after which the event loop serves others."""
PART_NS: Final = 2_000_000
"""How long they may take, beside the last of them: retention rolls logs and renames their files, with tens of calls of
the system for each log."""
MOST_SCHEDULED: Final = 2
"""Calls of scheduled tasks that wait for the disk at a time, of which one at least has a thread."""
OF_THE_BROKER: Final = {"max_producer_ids": "odradek.max.producer.ids.per.partition"}
LOG_PROPERTIES = {
    field.name: field.name.replace("_", ".")
    for field in fields(LogConfig)
    if field.init and field.name not in OF_THE_BROKER
}


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The configuration of a topic's logs. Raises ConfigError for an invalid value."""
    values = effective_values(broker, overrides)
    chosen = {field: values[name] for field, name in LOG_PROPERTIES.items()}
    chosen |= {field: broker[name] for field, name in OF_THE_BROKER.items()}
    chosen["cleanup_policy"] = tuple(chosen["cleanup_policy"])  # type: ignore[arg-type]
    return LogConfig(**chosen)  # type: ignore[arg-type]


def min_isr(broker: BrokerConfig, overrides: Mapping[str, str]) -> int:
    """min.insync.replicas of a topic. Raises ConfigError for an invalid value."""
    return int(str(effective_values(broker, overrides)["min.insync.replicas"]))


class OnFailure(Protocol):
    """Listener for failures of log directories (Kafka: LogDirFailureChannel)."""

    def replicas_lost(self, replicas: list[Replica]) -> None:
        """The directory of these replicas is offline."""
        ...

    def all_lost(self, reason: str) -> None:
        """All directories are offline."""
        ...


class ReplicaHost:
    """Creates replicas and the logs under them."""

    def __init__(
        self,
        config: BrokerConfig,
        directories: Directories,
        replicas: Replicas,
        clock: Clock,
        worker: Worker,
        alter_partition_manager: AlterPartitionManager,
        on_failure: OnFailure,
    ) -> None:
        """Registers for failures of the directories."""
        self._config = config
        self._directories = directories
        self._replicas = replicas
        self._clock = clock
        self._worker = worker
        self._alter_partition_manager = alter_partition_manager
        self._on_failure = on_failure
        self._scheduled = ScheduledWork(worker, MOST_SCHEDULED)
        self.checkpoints = CheckpointWrites(worker)
        self.moves = ReplicaMoves(directories, replicas, clock, worker)
        for directory in directories:
            directory.on_failure = self._directory_failed

    def obtain(
        self, name: TopicPartition, topic_id: bytes, overrides: Mapping[str, str], *, is_new: bool = True
    ) -> Replica:
        """The replica of (topic, partition). Creates the replica and its log if they do not exist.

        `is_new` means that the replica has never been on this broker. Raises KafkaError: KAFKA_STORAGE_ERROR if the
        disk fails or the log may be in an offline directory, INCONSISTENT_TOPIC_ID if the log belongs to another topic
        of this name.
        """
        replica = self._replicas.get(*name)
        if replica is None:
            config = log_config(self._config, overrides)
            try:
                found = self._find_log(name, topic_id, config, is_new=is_new)
            except KafkaError as error:
                lost = error.code is ErrorCode.KAFKA_STORAGE_ERROR and not is_exhausted(error)
                if lost and self._directories.offline:
                    self._make(absent_log(name, topic_id, config, error.message), -1, overrides)
                raise
            replica = self._make(found, self._high_watermark(name), overrides)
            self.moves.made(replica)
        elif replica.topic_id != topic_id and topic_id != NO_TOPIC_ID:
            directory = self._directories.holding(name)
            if directory is not None:
                directory.assign_topic_id(replica.log, topic_id)
            replica.topic_id = topic_id
        return replica

    def _find_log(self, name: TopicPartition, topic_id: bytes, config: LogConfig, *, is_new: bool) -> Log:
        """The log of a partition; creates it if it does not exist."""
        directory = self._directories.holding(name)
        if directory is not None:
            if directory.failure is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline: {directory.failure}")
            found = directory.logs[name]
            found.config = config
            if topic_id != NO_TOPIC_ID:
                directory.assign_topic_id(found, topic_id)
        else:
            offline = self._directories.offline
            if offline and not is_new:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"Can not create log for {name[0]}-{name[1]} because log directories "
                    f"{','.join(each.path for each in offline)} are offline",
                )
            self.moves.cancel(name)  # a future log of a current log that does not exist any more
            directory = self.moves.preferred(name) or emptiest(self._directories)
            found = directory.create_log(name, topic_id, config, now_ms=self._clock.now_ms())
        return found

    def _high_watermark(self, name: TopicPartition) -> int:
        """The checkpointed high watermark of a log, -1 if there is none."""
        directory = self._directories.holding(name)
        return -1 if directory is None else directory.high_watermarks.get(name, -1)

    def _make(self, found: Log, checkpointed: int, overrides: Mapping[str, str]) -> Replica:
        """Create the replica of a log.

        The cleaner compacts only below the high watermark, so the high watermark was at least `cleaned_to`. A lower one
        would hide from consumers the records because of which compaction has removed others.
        """
        machine = PartitionMachine(
            self._config.broker_id,
            high_watermark=max(found.start_offset if checkpointed < 0 else checkpointed, found.cleaned_to),
            local_end=found.end_offset,
            min_isr=min_isr(self._config, overrides),
            max_lag_ms=int(self._config["replica.lag.time.max.ms"]),
            name=(found.topic, found.partition),
        )
        replica = Replica(
            found, machine, self._clock, self._worker, self._alter_partition_manager, self._replica_failed
        )
        self._replicas.add(replica)
        return replica

    # ---- disk failures

    def _replica_failed(self, replica: Replica) -> None:
        directory = self._directories.holding((replica.topic, replica.partition))
        if directory is not None:
            directory.fail(replica.log.failure or "a log has failed")

    def _directory_failed(self, directory: Directory) -> None:
        """Take the replicas in this directory offline."""
        lost = [replica for name in directory.logs if (replica := self._replicas.get(*name)) is not None]
        log.error("log directory offline path=%s replicas=%d error=%s", directory.path, len(lost), directory.failure)
        for replica in lost:
            replica.retire()
        self.moves.failed(directory)
        self._on_failure.replicas_lost(lost)
        if len(self._directories.offline) == len(self._directories):
            paths = ", ".join(each.path for each in self._directories)
            self._on_failure.all_lost(f"Shutdown broker because all log dirs in {paths} have failed")

    def has_log(self, name: TopicPartition) -> bool:
        """Whether a log of this (topic, partition) is in one of the directories."""
        return any(name in each.logs for each in self._directories)

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply changed configuration overrides of a topic to its logs."""
        try:
            config, least = log_config(self._config, overrides), min_isr(self._config, overrides)
        except ConfigError as error:
            log.error("rejecting invalid topic config topic=%s error=%s", topic, error.message)
            return
        for replica in self._replicas.of_topic(topic):
            replica.log.config = config
            replica.machine.min_isr = least
            check_and_complete(replica)

    def release(self, name: TopicPartition, *, delete: bool) -> None:
        """Remove the replica; with `delete`, delete its log, too. Raises KafkaError when the disk fails."""
        replica = self._replicas.get(*name)
        if replica is not None:
            self._replicas.remove(replica)  # first, so that its delayed operations find it unknown
            replica.retire()
        if delete:
            self.moves.deleted(name)
            directory = self._directories.holding(name)
            if directory is not None:
                found = directory.logs[name]
                try:
                    directory.delete_log(name, now_ms=self._clock.now_ms())
                except KafkaError:
                    directory.logs[name] = found  # the log still exists: a repeated deletion fails, too
                    raise

    # ---- scheduled tasks

    def delete_old_segments(self, is_cleaning: Callable[[str], bool]) -> Parts:
        """Apply retention to every log except those that the cleaner is compacting, and remove the files of logs and
        segments that were deleted before.
        """
        now_ms = self._clock.now_ms()
        for replica in self._in_parts():
            if replica is None:
                yield None
            elif replica.log.failure is None and not is_cleaning(replica.log.directory):
                yield from self._scheduled.until_free()
                if not is_cleaning(replica.log.directory):
                    quietly(self._delete_old_segments, replica, now_ms, is_cleaning)
        yield from self.purge()

    def _delete_old_segments(self, replica: Replica, now_ms: int, is_cleaning: Callable[[str], bool]) -> None:
        changed = replica.log
        with replica.disk():
            roll = changed.start_retention_roll(high_watermark=replica.machine.high_watermark, now_ms=now_ms)
        if roll is None:
            self._remove_old_segments(replica, now_ms)
            return

        def rolled(_: BaseException | None) -> None:
            with replica.disk():
                changed.finish_roll(roll)
            is_here = replica.log is changed and replica.machine.role is not Role.OFFLINE
            if is_here and not is_cleaning(changed.directory):
                self._remove_old_segments(replica, now_ms)

        self._scheduled.run(roll.run, partial(quietly, rolled))

    def _remove_old_segments(self, replica: Replica, now_ms: int) -> None:
        change, changed = replica.start_retention(now_ms), replica.log
        if change is None:
            return

        def finish(_: BaseException | None) -> None:
            with replica.disk():
                changed.finish_change(change)

        self._scheduled.run(change.run, partial(quietly, finish))

    def purge(self) -> Parts:
        """Remove the files and logs whose delay (`file.delete.delay.ms`) is over, and retry moves that failed for lack
        of disk space.
        """
        now_ms = self._clock.now_ms()
        for directory in self._directories:
            if directory.failure is not None:
                continue
            remove = directory.take_due(now_ms)
            if remove is not None:
                yield from self._scheduled.until_free()
                self._scheduled.run(remove, partial(self._deleted, directory))
            logs = [*directory.logs.values(), *directory.futures.values()]
            for number, each in enumerate(taking(logs), 1):
                delete = each.deletions.take_due(now_ms)
                if delete is not None:
                    yield from self._scheduled.until_free()
                    self._scheduled.run(delete, partial(self._deleted, directory))
                elif not number % REPLICAS_AT_ONCE:
                    yield None
        self.moves.retry()

    def _deleted(self, directory: Directory, error: BaseException | None) -> None:
        if is_exhausted(error):
            log.warning("keeping deleted files until restart path=%s error=%s", directory.path, error)
        elif error is not None:
            directory.fail(f"cannot remove deleted files in {directory.path}: {error}")

    def _online(self) -> list[Directory]:
        return [each for each in self._directories if each.failure is None]

    def _in_parts(self) -> Iterator[Replica | None]:
        """The replicas, and None between two parts of a scheduled task: after REPLICAS_AT_ONCE, or PART_NS. Replicas
        that are removed meanwhile are not returned.
        """
        began_ns = self._clock.monotonic_ns()
        for number, replica in enumerate(taking(list(self._replicas))):
            if number and (not number % REPLICAS_AT_ONCE or self._clock.monotonic_ns() - began_ns > PART_NS):
                yield None
                began_ns = self._clock.monotonic_ns()
            if self._replicas.get(replica.topic, replica.partition) is replica:
                yield replica

    def flush_due_logs(self) -> Parts:
        """Flush the logs whose `flush.ms` is over."""
        now_ms = self._clock.now_ms()
        for replica in self._in_parts():
            if replica is None:
                yield None
                continue
            yield from self._scheduled.until_free()
            replica.flush_if_due(now_ms, self._scheduled)

    def expire_producers(self) -> Parts:
        """Remove the state of producers that have not written for `producer.id.expiration.ms`."""
        now_ms, age_ms = self._clock.now_ms(), int(self._config["producer.id.expiration.ms"])
        for replica in self._in_parts():
            if replica is None:
                yield None
                continue
            replica.log.producers.expire(now_ms, age_ms)

    def shrink_isrs(self) -> Parts:
        """Request ISRs without the followers that have fallen behind."""
        for replica in self._in_parts():
            if replica is None:
                yield None
                continue
            replica.shrink_isr()

    def write_recovery_points(self) -> Parts:
        """Checkpoint the recovery points, in threads."""
        for directory in self._online():
            yield from self.checkpoints.run(directory, RECOVERY_POINTS, directory.checkpoints.begin_recovery_points())

    def write_start_offsets(self) -> Parts:
        """Checkpoint the start offsets of the logs, in threads."""
        for directory in self._online():
            yield from self.checkpoints.run(directory, START_OFFSETS, directory.checkpoints.begin_start_offsets())

    def write_high_watermarks(self) -> Parts:
        """Checkpoint the high watermarks, in threads."""
        for directory in self._online():
            marks = high_watermarks_of(directory, self._replicas)
            parts = directory.checkpoints.begin_in_parts(HIGH_WATERMARKS, marks, if_changed=True)
            yield from self.checkpoints.run(directory, HIGH_WATERMARKS, parts)

    def retire(self) -> None:
        """The broker stops: take the replicas offline and end moves between directories."""
        self.moves.close()
        for replica in self._replicas:
            replica.retire()

    def close(self, broker_epoch: int = -1) -> None:
        """Flush and close every log, write the checkpoints and the clean shutdown files. Call `retire` before."""
        for directory in self._online():
            marks = high_watermarks_of(directory, self._replicas)
            for _ in _quiet_parts(directory.checkpoints.write_in_parts(HIGH_WATERMARKS, marks, if_changed=True)):
                pass
        for directory in self._directories:
            quietly(partial(directory.close, now_ms=self._clock.now_ms(), broker_epoch=broker_epoch))


def _quiet_parts(parts: Parts) -> Parts:
    """The parts of a task that may raise KafkaError, as `quietly`."""
    try:
        yield from parts
    except KafkaError as error:
        log.error("log operation failed error=%s", error.message)


def quietly(work: Callable[..., object], *arguments: object) -> None:
    """Call `work`, which may raise KafkaError because of a failed disk. The log or directory is then offline, and the
    caller continues with the others.
    """
    try:
        work(*arguments)
    except KafkaError as error:
        log.error("log operation failed error=%s", error.message)
