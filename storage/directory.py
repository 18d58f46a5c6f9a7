"""A data directory: its lock, its identity, its logs and the checkpoint files that cover all of them (LogManager).

    .lock meta.properties .kafka_cleanshutdown
    recovery-point-offset-checkpoint replication-offset-checkpoint
    log-start-offset-checkpoint cleaner-offset-checkpoint
    TOPIC-PARTITION/                        a log
    TOPIC-PARTITION.32-HEX-DIGITS-delete/   a log of a deleted topic, removed after file.delete.delay.ms
    TOPIC-PARTITION.32-HEX-DIGITS-future/   a log that is moving here from another directory of this broker (KIP-113)
    __cluster_metadata-0/quarantine/        what recoveries have removed from logs (`quarantine.py`)

Kafka and Odradek can use one directory alternately; the lock keeps them from using it at once. `directories.py` decides
when a future log becomes the log; the checkpoints list it under the name that it will have. Directories named
`…-stray` stay untouched.

After an unclean stop worker processes recover the logs of all directories of a broker in parallel
(`parallel_recovery`), where there is enough to recover.

A directory on which the disk fails goes offline as a whole (KIP-112): all its logs answer KAFKA_STORAGE_ERROR, and
the broker writes nothing more there until it restarts. A lack of room is no such failure where the same data can be
written later.

An entry of a checkpoint about removed records must not apply to the records that replace them. So a checkpoint is
written anew before anything is appended to a log that was truncated below its entry, and before a log is created
whose name is in the checkpoint since an earlier topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    START_OFFSETS,
    ZERO_UUID,
    CorruptFile,
    Offsets,
    decode_clean_shutdown,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_partition_metadata,
)
from odradek.storage.config import LogConfig
from odradek.storage.directory_failure import DirectoryFailure
from odradek.storage.directory_identity import identify
from odradek.storage.disk import Disk, Folder, Lock, OsDisk, make_durable_directory
from odradek.storage.found_logs import REPLACES, FoundLogs
from odradek.storage.log import Log
from odradek.storage.log_names import delete_name, future_name, log_name
from odradek.storage.logs_to_delete import LogsToDelete
from odradek.storage.offset_checkpoints import CheckpointWrite, OffsetCheckpoints
from odradek.storage.parallel_recovery import Outcome, Unclean, recover_in_parallel
from odradek.storage.quarantine import prune, quarantined_bytes
from odradek.storage.recovery import LoadRequest
from odradek.storage.worker import available_cores


@dataclass(slots=True)
class DirectoryRequest:
    """The input of opening a directory: the broker, the configuration of logs, the time.

    `cluster_id` None takes the one that the directory has. `recovery_processes` is the number of processes that recover
    the logs of each directory after an unclean stop (num.recovery.threads.per.data.dir); with None as many processes as
    there are cores work on all directories together.
    """

    broker_id: int
    cluster_id: str | None
    now_ms: int
    config_for: Callable[[str], LogConfig] = field(default=lambda topic: LogConfig())
    random: Random = field(default_factory=Random)
    recovery_processes: int | None = None


class Directory:
    """An open data directory.

    `logs` has every log by (topic, partition), `futures` the future logs, and `found` those that `load` will load;
    `high_watermarks` and `cleaner_offsets` are the contents of the checkpoints; `was_clean` and `last_broker_epoch`
    describe the stop of the last owner; `quarantined_bytes` is what the quarantine has since `load`; `on_failure` is
    called when the directory goes offline.
    """

    __slots__ = (
        "_deleted",
        "_failure",
        "_folder",
        "_lock",
        "_random",
        "checkpoints",
        "found",
        "futures",
        "high_watermarks",
        "identity",
        "last_broker_epoch",
        "logs",
        "on_failure",
        "quarantined_bytes",
        "was_clean",
    )

    def __init__(self, folder: Folder, lock: Lock | None, random: Random) -> None:
        """Made by `Directory.open`; without a lock it cannot be used."""
        self._folder = folder
        self._lock = lock
        self._random = random
        self._failure = DirectoryFailure(folder.path, self._go_offline)
        self.checkpoints = OffsetCheckpoints(folder, self._failure, self._all_logs)
        self._deleted = LogsToDelete(folder)
        self.found = FoundLogs()
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        self.identity: dict[str, str] = {}
        self.high_watermarks: Offsets = {}
        self.was_clean = False
        self.last_broker_epoch = -1
        self.quarantined_bytes = 0
        self.on_failure: Callable[[Directory], None] = _notify_none

    @classmethod
    def open(cls, path: str, request: DirectoryRequest, disk: Disk | None = None) -> Directory:
        """Lock the directory, create it where missing, and load its logs; after an unclean stop they are recovered.

        Raises what `begin` and `load` raise, and KafkaError KAFKA_STORAGE_ERROR where the disk fails.
        """
        directory = cls.begin(path, request, disk)
        processes = available_cores() if request.recovery_processes is None else request.recovery_processes
        directory.load(recover_in_parallel(directory.unclean(), processes))
        if directory.failure is not None:
            directory.release()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, directory.failure)
        return directory

    @classmethod
    def begin(cls, path: str, request: DirectoryRequest, disk: Disk | None = None) -> Directory:
        """Lock the directory, create it where missing, and list its logs; `load` then loads them.

        Where the disk fails the directory is offline from the start. Raises KafkaError: KAFKA_STORAGE_ERROR where
        another process or thread has the lock, INCONSISTENT_CLUSTER_ID and INVALID_CONFIG where the directory belongs
        to another cluster or broker, or holds a folder that is not a log.
        """
        disk = disk or OsDisk()
        try:
            make_durable_directory(disk, path)
            lock = disk.lock(f"{path}/{LOCK}")
        except OSError as error:
            offline = cls(Folder(disk, path), None, request.random)
            offline.fail(f"cannot open the data directory {path}: {error}")
            return offline
        if lock is None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Failed to acquire lock on file {LOCK} in {path}. "
                "A Kafka instance in another process or thread is using this directory.",
            )
        directory = cls(Folder(disk, path), lock, request.random)
        try:
            with directory._failure.guard_opening():
                directory.identity = identify(directory._folder, request.broker_id, request.cluster_id, request.now_ms)
                directory._look(request)
        except BaseException:
            directory.release()
            raise
        return directory

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self._folder.path

    @property
    def failure(self) -> str | None:
        """The reason why the directory is offline; None while it is online."""
        return self._failure.reason

    @property
    def cleaner_offsets(self) -> Mapping[TopicPartition, int]:
        """The cleaner's checkpoint: below these offsets logs have been compacted."""
        return self.checkpoints.offsets(CLEANER_OFFSETS)

    # -- opening -------------------------------------------------------------------------------------------------------

    def _look(self, request: DirectoryRequest) -> None:
        """Read the checkpoints and find the logs."""
        folder = self._folder
        mark = folder.read(CLEAN_SHUTDOWN)
        self.was_clean = mark is not None
        if mark is not None:
            self.last_broker_epoch = decode_clean_shutdown(mark)
        prune(folder.disk, folder.path, request.now_ms)
        self.checkpoints.read()
        self.high_watermarks = dict(self.checkpoints.offsets(HIGH_WATERMARKS))
        config_for = cache(request.config_for)

        def load_request(name: TopicPartition) -> LoadRequest:
            return self._load_request(name, config_for(name[0]), request.now_ms)

        self.found.find(folder, load_request, self._deleted, request.now_ms)

    def _load_request(self, name: TopicPartition, config: LogConfig, now_ms: int) -> LoadRequest:
        return LoadRequest(
            config=config,
            clean=self.was_clean,
            start_offset=self.checkpoints.offsets(START_OFFSETS).get(name, 0),
            recovery_point=self.checkpoints.offsets(RECOVERY_POINTS).get(name, 0),
            cleaned_to=self.checkpoints.offsets(CLEANER_OFFSETS).get(name, -1),
            high_watermark=self.checkpoints.offsets(HIGH_WATERMARKS).get(name, 0),
            gaps_are_losses=CLEANER_OFFSETS in self.checkpoints,
            now_ms=now_ms,
            jitter_ms=self._jitter_ms,
            on_cut=self.checkpoints.on_truncation,
        )

    def marking(self, name: TopicPartition) -> Callable[[], None]:
        """A function that marks a future log, durably, as the replacement of all others of its partition.

        The caller runs it in a thread; it raises OSError.
        """
        folder = Folder(self._folder.disk, self.futures[name].directory)
        return lambda: folder.replace(REPLACES, b"", sync=True)

    def unmark(self, name: TopicPartition) -> None:
        """Remove the mark: there is no other log of the partition any more. Raises KafkaError."""
        log = self.futures.get(name) or self.logs[name]
        with self._failure.guard("writing to a log's folder"):
            Folder(self._folder.disk, log.directory).remove(REPLACES)

    def give_up(self, name: TopicPartition, now_ms: int) -> None:
        """Remove the logs of a partition that `begin` has found instead of loading them; another has replaced them."""
        with self._failure.guard_opening():
            for log in self.found.take(name):
                new_name = delete_name(name, self._random)
                self._folder.disk.rename(log.folder.path, self._folder / new_name)
                self._deleted.add(new_name, now_ms)
            self._folder.sync()

    def unclean(self) -> list[Unclean]:
        """The logs that worker processes can recover, between `begin` and `load`: those on the real disk."""
        if self.was_clean or self.failure is not None or not isinstance(self._folder.disk, OsDisk):
            return []
        with self._failure.guard("listing the logs to recover"):
            return self.found.unclean()

    def load(self, recovered: Mapping[str, Outcome]) -> None:
        """Load the logs. Those in `recovered` (path -> outcome) load as after a clean stop; the others are recovered.

        Where the disk fails the directory goes offline. Raises KafkaError UNSUPPORTED_FOR_MESSAGE_FORMAT, after the
        directory is released.
        """
        if self.failure is not None:
            return
        try:
            with self._failure.guard_opening():
                self._load(recovered)
        except BaseException:
            self.release()
            raise

    def _load(self, recovered: Mapping[str, Outcome]) -> None:
        if self.was_clean:
            # Before any write: a process that stops in the middle of loading must not look clean.
            self._folder.remove(CLEAN_SHUTDOWN)
            self._folder.sync()
        for log in self.found:
            outcome = recovered.get(log.folder.path)
            if isinstance(outcome, Exception):
                raise outcome
            row = self.futures if log.is_future else self.logs
            request = replace(log.request, recovered=outcome) if outcome else log.request
            row[log.partition] = _open_log(log.folder, log.partition, request)
        self.found.clear()
        self.quarantined_bytes = quarantined_bytes(self._folder.disk, self._folder.path)
        self.checkpoints.on_truncation()  # of the rejected start offsets, among others: before the log reaches them
        if self.checkpoints.cleaner_offsets_differ():
            self.checkpoints.write_cleaner_offsets()
        if not self.was_clean:
            self.checkpoints.write_recovery_points()

    def _jitter_ms(self, config: LogConfig) -> int:
        """By how much a new segment ends before `segment.ms`, so that not all logs roll at once."""
        most_ms = min(config.segment_jitter_ms, config.segment_ms)
        return self._random.randrange(most_ms) if most_ms > 0 else 0

    # -- logs ----------------------------------------------------------------------------------------------------------

    def create_log(
        self, name: TopicPartition, topic_id: bytes, config: LogConfig, *, now_ms: int, is_future: bool = False
    ) -> Log:
        """An empty log for (topic, partition), or a future log, which becomes its log when it has caught up.

        Raises KafkaError, also where there is one already.
        """
        self._failure.refuse_if_offline()
        if name in self.logs or name in self.futures:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{self.path} has a log of {name[0]}-{name[1]} already")
        new_name = future_name(name, self._random) if is_future else log_name(name)
        folder = Folder(self._folder.disk, self._folder / new_name)
        self.checkpoints.remove_stale(name, lambda: self.logs.keys() | self.futures.keys())
        self.high_watermarks.pop(name, None)
        with self._failure.guard("creating a log"):
            try:
                log = self._create(folder, name, topic_id, config, now_ms)
            except OSError:
                with suppress(OSError):  # another directory may get the log, and a partition has only one
                    folder.disk.remove_directory(folder.path)
                raise
        (self.futures if is_future else self.logs)[name] = log
        return log

    def _create(self, folder: Folder, name: TopicPartition, topic_id: bytes, config: LogConfig, now_ms: int) -> Log:
        folder.disk.make_directory(folder.path)
        request = LoadRequest(
            config=config, now_ms=now_ms, jitter_ms=self._jitter_ms, on_cut=self.checkpoints.on_truncation
        )
        log = Log.open(folder, name, topic_id, request)
        if topic_id != ZERO_UUID:
            # Last, because its sync makes the names of the others durable, too.
            folder.replace(PARTITION_METADATA, encode_partition_metadata(topic_id), sync=True)
        else:
            folder.sync()
        self._folder.sync()
        return log

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Set the topic id of a log (KIP-516). Raises KafkaError INCONSISTENT_TOPIC_ID where it has another."""
        if log.topic_id == topic_id:
            return
        if log.topic_id != ZERO_UUID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.directory} has topic id {log.topic_id.hex()}, and the metadata store {topic_id.hex()}",
            )
        with self._failure.guard("writing a topic id"):
            folder = Folder(self._folder.disk, log.directory)
            folder.replace(PARTITION_METADATA, encode_partition_metadata(topic_id), sync=True)
        log.topic_id = topic_id

    def delete_log(self, name: TopicPartition, *, now_ms: int, is_future: bool = False) -> None:
        """Delete a log: its directory is renamed at once and removed later (`take_due`). Raises KafkaError."""
        self._failure.refuse_if_offline()
        log = (self.futures if is_future else self.logs).pop(name, None)
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.path} has no log of {name[0]}-{name[1]}")
        if not is_future:
            self.high_watermarks.pop(name, None)
        self.discard(log, now_ms=now_ms)

    def discard(self, log: Log, *, now_ms: int) -> None:
        """Rename the directory of a log that is in no list, to be removed later (`take_due`). Raises KafkaError."""
        new_name = delete_name((log.topic, log.partition), self._random)
        try:
            log.move(self._folder / new_name)
        except KafkaError as error:
            # The files under the old name must not become part of a new log.
            self.fail(error.message)
            raise
        self._deleted.add(new_name, now_ms + log.config.file_delete_delay_ms)

    def move_in(self, name: TopicPartition) -> Log:
        """Make a future log the log of its partition, durably; the caller guarantees that there is no other one.

        Raises KafkaError.
        """
        self._failure.refuse_if_offline()
        log = self.futures[name]
        with self._failure.guard("renaming a future log"):
            try:
                log.move(self._folder / log_name(name))
            except KafkaError as error:
                self.fail(error.message)
                raise
            self._folder.sync()
        self.logs[name] = self.futures.pop(name)
        return log

    def sync_names(self) -> None:
        """Make the names of the logs durable. May be called in a thread. Raises OSError."""
        self._folder.sync()

    def take_due(self, now_ms: int) -> Callable[[], None] | None:
        """A function that removes the deleted logs whose delay is over, safe in a thread; None where none is. It raises
        OSError.
        """
        self._failure.refuse_if_offline()
        return self._deleted.take_due(now_ms)

    def _all_logs(self) -> list[tuple[TopicPartition, Log]]:
        return [*self.logs.items(), *self.futures.items()]

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks, which the replicas provide. Raises KafkaError."""
        self.high_watermarks = dict(high_watermarks)
        self.checkpoints.write(HIGH_WATERMARKS, high_watermarks)

    def finish_checkpoint(self, write: CheckpointWrite, error: BaseException | None) -> None:
        """Receive the outcome of a checkpoint that was written in a thread. Raises KafkaError where the disk failed."""
        self.checkpoints.finish(write, error)
        if write.name == HIGH_WATERMARKS:
            self.high_watermarks = dict(self.checkpoints.offsets(HIGH_WATERMARKS))

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, *, now_ms: int, clean: bool = True, broker_epoch: int = -1) -> None:
        """Flush and close all logs, write the checkpoints and the clean shutdown file, and release the directory.

        `clean` False only releases the files, for a broker that stops at once. A failed log or directory prevents the
        clean shutdown file. A released directory stays as it is. Raises KafkaError after everything that can be closed
        is closed.
        """
        if self._lock is None:
            return
        failed: KafkaError | None = None
        clean = clean and self.failure is None
        try:
            for _, log in self._all_logs():
                try:
                    if clean:
                        log.close(now_ms=now_ms)
                    else:
                        log.close_files()
                except KafkaError as error:
                    failed = error
            if clean:
                self.checkpoints.write_recovery_points()
                self.checkpoints.write_start_offsets()
                if failed is None and all(log.failure is None for _, log in self._all_logs()):
                    with self._failure.guard("writing the clean mark"):
                        self._folder.replace(CLEAN_SHUTDOWN, encode_clean_shutdown(broker_epoch), sync=True)
        finally:
            self.release()
        if failed is not None:
            raise failed

    def release(self) -> None:
        """Release the files and the lock, and write nothing more."""
        self.checkpoints.close()
        for _, log in self._all_logs():
            log.close_files()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def fail(self, reason: str) -> None:
        """Take the directory offline, with all that is in it."""
        self._failure.fail(reason)

    def _go_offline(self, reason: str) -> None:
        for _, log in self._all_logs():
            log.failure = log.failure or reason
        self.on_failure(self)


def _open_log(folder: Folder, name: TopicPartition, request: LoadRequest) -> Log:
    data = folder.read(PARTITION_METADATA)
    try:
        topic_id = ZERO_UUID if data is None else decode_partition_metadata(data)
    except CorruptFile as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{folder / PARTITION_METADATA}: {error}") from error
    return Log.open(folder, name, topic_id, request)


def _notify_none(directory: Directory) -> None:
    pass
