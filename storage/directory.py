"""A data directory: its lock, its identity, its logs and the checkpoint files that speak of all of them (LogManager).

    .lock meta.properties .kafka_cleanshutdown
    recovery-point-offset-checkpoint replication-offset-checkpoint
    log-start-offset-checkpoint cleaner-offset-checkpoint
    TOPIC-PARTITION/                        a log
    TOPIC-PARTITION.32-HEX-DIGITS-delete/   a log of a deleted topic, removed after file.delete.delay.ms

Kafka and Odradek can take turns on one directory; the lock keeps them from doing so at once. Directories named
`…-stray` and `…-future` belong to moves that Kafka began; they are left alone.

A broker may have several directories; `emptiest` says where a new log goes. After an unclean stop the logs of all are
recovered side by side in worker processes (`parallel_recovery`), where that is worth it.

What a checkpoint says of records that are gone must not be believed of those that come in their place. So a checkpoint
is written anew before anything is appended to a log that was cut below it, and before a log begins whose name stands in
it since an earlier topic.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    START_OFFSETS,
    ZERO_UUID,
    CorruptFile,
    Offsets,
    decode_clean_shutdown,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_clean_shutdown,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
)
from odradek.storage.config import LogConfig
from odradek.storage.disk import Disk, Folder, Lock, OsDisk
from odradek.storage.log import Log
from odradek.storage.parallel_recovery import Outcome, Unclean, recover_in_parallel
from odradek.storage.recovery import LoadRequest, bytes_to_recover, do_nothing, no_jitter
from odradek.storage.worker import available_cores

_log = logging.getLogger(__name__)

_DELETE_SUFFIX: Final = "-delete"
_LEFT_ALONE: Final = ("-stray", "-future")
_NOT_LOGS: Final = frozenset({"remote-log-index-cache", "__cluster_metadata-0", "lost+found"})
_LOG_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")
_LONGEST_NAME: Final = 255

Name = tuple[str, int]


@dataclass(slots=True)
class DirectoryRequest:
    """What opening needs to know: who asks, how logs are configured, what time it is.

    `cluster_id` None takes the one that stands in the directory. `recovery_processes` is how many are to recover the
    logs of each directory after an unclean stop (num.recovery.threads.per.data.dir); None lets as many as there are
    cores work on all directories together.
    """

    broker_id: int
    cluster_id: str | None
    now_ms: int
    config_for: Callable[[str], LogConfig] = field(default=lambda topic: LogConfig())
    random: Random = field(default_factory=Random)
    recovery_processes: int | None = None


class Directory:
    """An open data directory.

    `logs` has every log by (topic, partition); `high_watermarks` and `cleaner_offsets` are what the checkpoints say;
    `was_clean` and `last_broker_epoch` say how the last owner left; `failure` says why the directory is offline, if it
    is.
    """

    __slots__ = (
        "_checkpoints",
        "_deleted",
        "_folder",
        "_found",
        "_lock",
        "_random",
        "failure",
        "high_watermarks",
        "identity",
        "last_broker_epoch",
        "logs",
        "was_clean",
    )

    def __init__(self, folder: Folder, lock: Lock, random: Random) -> None:
        """Made by `Directory.open`."""
        self._folder = folder
        self._lock = lock
        self._random = random
        self._deleted: list[tuple[int, str]] = []
        self._checkpoints: dict[str, Offsets] = {}
        self._found: list[tuple[Folder, Name, LoadRequest]] = []
        self.logs: dict[Name, Log] = {}
        self.identity: dict[str, str] = {}
        self.high_watermarks: Offsets = {}
        self.was_clean = False
        self.last_broker_epoch = -1
        self.failure: str | None = None

    @classmethod
    def open(cls, path: str, request: DirectoryRequest, disk: Disk | None = None) -> Directory:
        """Take the directory, created where missing, and load its logs; after an unclean stop they are recovered.

        Raises what `begin` and `load` raise.
        """
        return open_all([path], request, disk)[0]

    @classmethod
    def begin(cls, path: str, request: DirectoryRequest, disk: Disk | None = None) -> Directory:
        """Take the directory, created where missing, and look what is in it; `load` then loads the logs.

        Raises KafkaError: KAFKA_STORAGE_ERROR where somebody else has it or the disk fails, INCONSISTENT_CLUSTER_ID and
        INVALID_CONFIG where it belongs to another cluster or broker, or holds what is not a log.
        """
        disk = disk or OsDisk()
        try:
            disk.make_directory(path)
            lock = disk.lock(f"{path}/{LOCK}")
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot open the data directory {path}: {error}"
            ) from error
        if lock is None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Failed to acquire lock on file {LOCK} in {path}. "
                "A Kafka instance in another process or thread is using this directory.",
            )
        directory = cls(Folder(disk, path), lock, request.random)
        try:
            with directory._disk("opening"):
                directory._identify(request)
                directory._look(request)
        except BaseException:
            directory._release()
            raise
        return directory

    @property
    def path(self) -> str:
        """Where the directory is."""
        return self._folder.path

    @property
    def cleaner_offsets(self) -> Mapping[Name, int]:
        """The cleaner's checkpoint: below these offsets logs have been compacted, for good."""
        return self._noted(CLEANER_OFFSETS)

    # -- opening -------------------------------------------------------------------------------------------------------

    def _identify(self, request: DirectoryRequest) -> None:
        """Hold meta.properties against the broker, or write it; entries that Kafka added stay."""
        found = read_identity(self._folder.disk, self.path)
        cluster_id = request.cluster_id or found.get("cluster.id")
        if cluster_id is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{self.path} has no cluster id yet, and none was given")
        if found.get("cluster.id", cluster_id) != cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"{self.path} belongs to cluster {found['cluster.id']}, and this broker to {cluster_id}: the directory "
                f"is another cluster's, or the registry is",
            )
        if found.get("version", "0") != "0":
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{self.path}/{META_PROPERTIES} has version {found['version']}, which KRaft writes; 0 is right",
            )
        if found.get("broker.id", str(request.broker_id)) != str(request.broker_id):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{self.path} belongs to broker {found['broker.id']}, and broker.id is {request.broker_id}",
            )
        wanted = found | {"version": "0", "broker.id": str(request.broker_id), "cluster.id": cluster_id}
        if wanted != found:
            self._folder.replace(META_PROPERTIES, encode_properties(wanted, request.now_ms), sync=True)
        self.identity = wanted

    def _look(self, request: DirectoryRequest) -> None:
        """Read the checkpoints, and find the logs."""
        folder = self._folder
        mark = folder.read(CLEAN_SHUTDOWN)
        self.was_clean = mark is not None
        if mark is not None:
            self.last_broker_epoch = decode_clean_shutdown(mark)
        for checkpoint in (RECOVERY_POINTS, HIGH_WATERMARKS, START_OFFSETS, CLEANER_OFFSETS):
            offsets = self._read_offsets(checkpoint)
            if offsets is not None:
                self._checkpoints[checkpoint] = offsets
        self.high_watermarks = dict(self._noted(HIGH_WATERMARKS))
        configs: dict[str, LogConfig] = {}
        for entry in sorted(folder.list()):
            if not entry.is_directory or entry.name in _NOT_LOGS:
                continue
            if entry.name.endswith(_DELETE_SUFFIX):
                self._deleted.append((request.now_ms, entry.name))
                continue
            if entry.name.endswith(_LEFT_ALONE):
                _log.warning("%s is left alone", folder / entry.name)
                continue
            name = topic, _ = _parse_name(folder, entry.name)
            if topic not in configs:
                configs[topic] = request.config_for(topic)
            start = self._load_request(name, configs[topic], request.now_ms)
            self._found.append((Folder(folder.disk, folder / entry.name), name, start))

    def _load_request(self, name: Name, config: LogConfig, now_ms: int) -> LoadRequest:
        return LoadRequest(
            config=config,
            clean=self.was_clean,
            start_offset=self._noted(START_OFFSETS).get(name, 0),
            recovery_point=self._noted(RECOVERY_POINTS).get(name, 0),
            cleaned_to=self._noted(CLEANER_OFFSETS).get(name, -1),
            gaps_are_losses=CLEANER_OFFSETS in self._checkpoints,
            now_ms=now_ms,
            jitter_ms=self._jitter_ms,
            on_cut=self._log_was_cut,
        )

    def names(self) -> list[Name]:
        """Topic and partition of every log that `begin` has found."""
        return [name for _, name, _ in self._found] + list(self.logs)

    def unclean(self) -> list[Unclean]:
        """The logs that worker processes can recover, between `begin` and `load`: those on the real disk."""
        if self.was_clean or not isinstance(self._folder.disk, OsDisk):
            return []
        with self._disk("looking for what is to be recovered"):
            sizes = [bytes_to_recover(folder, each) for folder, _, each in self._found]
        return [
            # The two functions stay here: they cannot be told to another process.
            Unclean(folder.path, replace(each, jitter_ms=no_jitter, on_cut=do_nothing), size)
            for (folder, _, each), size in zip(self._found, sizes, strict=True)
            if size
        ]

    def load(self, recovered: Mapping[str, Outcome]) -> None:
        """Load the logs. Those that were recovered (path -> outcome) are as after a clean stop; others are recovered.

        Raises KafkaError: KAFKA_STORAGE_ERROR where the disk fails, UNSUPPORTED_FOR_MESSAGE_FORMAT.
        """
        with self._disk("opening"):
            if self.was_clean:
                # Before anything is written: whoever stops in the middle of loading must not look clean.
                self._folder.remove(CLEAN_SHUTDOWN)
                self._folder.sync()
            for folder, name, request in self._found:
                outcome = recovered.get(folder.path)
                if isinstance(outcome, Exception):
                    raise outcome
                self.logs[name] = _open_log(folder, name, replace(request, recovered=outcome) if outcome else request)
        self._found.clear()
        if self._cleaned() != self.cleaner_offsets or CLEANER_OFFSETS not in self._checkpoints:
            self.write_cleaner_offsets()
        if not self.was_clean:
            self.write_recovery_points()

    def _read_offsets(self, name: str) -> Offsets | None:
        """The offsets of a checkpoint. One that cannot be read counts as absent, which costs time but no records."""
        data = self._folder.read(name)
        if data == b"":
            return {}  # Kafka makes the file first, and writes it when it has something to say
        try:
            return None if data is None else decode_offsets(data)
        except CorruptFile as error:
            _log.warning("%s cannot be read and is taken as absent: %s", self._folder / name, error)
            return None

    def _noted(self, name: str) -> Offsets:
        """What stands in a checkpoint."""
        return self._checkpoints.get(name, {})

    def _jitter_ms(self, config: LogConfig) -> int:
        """How much earlier than `segment.ms` a new segment ends, so that not all logs roll at once."""
        most_ms = min(config.segment_jitter_ms, config.segment_ms)
        return self._random.randrange(most_ms) if most_ms > 0 else 0

    # -- logs ----------------------------------------------------------------------------------------------------------

    def create_log(self, name: Name, topic_id: bytes, config: LogConfig, *, now_ms: int) -> Log:
        """An empty log for (topic, partition). Raises KafkaError, also where there is one already."""
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} is offline: {self.failure}")
        if name in self.logs:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{self.path} has a log of {name[0]}-{name[1]} already")
        folder = Folder(self._folder.disk, self._folder / f"{name[0]}-{name[1]}")
        for checkpoint, noted in self._checkpoints.items():
            if name in noted:  # since a log that was deleted
                self._write_offsets(checkpoint, {each: noted[each] for each in noted if each in self.logs})
        with self._disk("creating a log"):
            folder.disk.make_directory(folder.path)
            request = LoadRequest(config=config, now_ms=now_ms, jitter_ms=self._jitter_ms, on_cut=self._log_was_cut)
            log = Log.open(folder, name, topic_id, request)
            if topic_id != ZERO_UUID:
                # Last, for it makes the names of the others durable, too.
                folder.replace(PARTITION_METADATA, encode_partition_metadata(topic_id), sync=True)
            else:
                folder.sync()
            self._folder.sync()
        self.logs[name] = log
        return log

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Give a log the id of its topic (KIP-516). Raises KafkaError INCONSISTENT_TOPIC_ID where it has another."""
        if log.topic_id == topic_id:
            return
        if log.topic_id != ZERO_UUID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.directory} has topic id {log.topic_id.hex()}, and the registry says {topic_id.hex()}",
            )
        with self._disk("writing a topic id"):
            folder = Folder(self._folder.disk, log.directory)
            folder.replace(PARTITION_METADATA, encode_partition_metadata(topic_id), sync=True)
        log.topic_id = topic_id

    def delete_log(self, name: Name, *, now_ms: int) -> None:
        """Take a log away: its directory is renamed at once and removed later, by `purge`. Raises KafkaError."""
        log = self.logs.pop(name, None)
        if log is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.path} has no log of {name[0]}-{name[1]}")
        self.high_watermarks.pop(name, None)
        suffix = f"-{name[1]}.{self._random.getrandbits(128):032x}{_DELETE_SUFFIX}"
        new_name = name[0][: _LONGEST_NAME - len(suffix)] + suffix
        try:
            log.move(self._folder / new_name)
        except KafkaError as error:
            # What is still there under its old name must not become part of a new log.
            self.failure = error.message
            raise
        self._deleted.append((now_ms + log.config.file_delete_delay_ms, new_name))

    def purge(self, now_ms: int) -> int | None:
        """Remove deleted logs whose delay is over; returns when the next one is due, None where none waits."""
        waiting = []
        with self._disk("removing deleted logs"):
            for due_ms, name in self._deleted:
                if due_ms <= now_ms:
                    self._folder.disk.remove_directory(self._folder / name)
                else:
                    waiting.append((due_ms, name))
        self._deleted = waiting
        return min(waiting)[0] if waiting else None

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def write_recovery_points(self) -> None:
        """Note up to where each log is on stable storage, so that recovery need not look below. Raises KafkaError."""
        self._write_offsets(RECOVERY_POINTS, {name: log.recovery_point for name, log in self.logs.items()})

    def write_start_offsets(self) -> None:
        """Note where logs start, as far as their segments do not say so themselves. Raises KafkaError."""
        starts = {name: log.start_offset for name, log in self.logs.items() if log.starts_within_segment}
        self._write_offsets(START_OFFSETS, starts)

    def write_cleaner_offsets(self) -> None:
        """Note up to where logs have been compacted. Raises KafkaError."""
        self._write_offsets(CLEANER_OFFSETS, self._cleaned())

    def _cleaned(self) -> Offsets:
        return {name: log.cleaned_to for name, log in self.logs.items() if log.cleaned_to >= 0}

    def write_high_watermarks(self, high_watermarks: Mapping[Name, int]) -> None:
        """Note the high watermarks, which belong to the replicas. Raises KafkaError."""
        self.high_watermarks = dict(high_watermarks)
        self._write_offsets(HIGH_WATERMARKS, high_watermarks)

    def _log_was_cut(self) -> None:
        """Write the checkpoints that say more of a log than still holds. Raises KafkaError."""
        logs = self.logs.items()
        if any(self._noted(RECOVERY_POINTS).get(name, 0) > log.recovery_point for name, log in logs):
            self.write_recovery_points()
        if any(self._noted(START_OFFSETS).get(name, 0) > log.start_offset for name, log in logs):
            self.write_start_offsets()
        if any(self._noted(CLEANER_OFFSETS).get(name, -1) > log.cleaned_to for name, log in logs):
            self.write_cleaner_offsets()

    def _write_offsets(self, name: str, offsets: Mapping[Name, int]) -> None:
        with self._disk(f"writing {name}"):
            self._folder.replace(name, encode_offsets(offsets), sync=True)
        self._checkpoints[name] = dict(offsets)

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, *, now_ms: int, clean: bool = True, broker_epoch: int = -1) -> None:
        """Flush and close all logs, write the checkpoints and the clean mark, and give the directory back.

        `clean` False only gives the files back, as a broker does that stops at once. A log or directory that failed
        leaves no mark. Raises KafkaError after everything that can be closed is closed.
        """
        failed: KafkaError | None = None
        try:
            for log in self.logs.values():
                try:
                    if clean:
                        log.close(now_ms=now_ms)
                    else:
                        log.close_files()
                except KafkaError as error:
                    failed = error
            if clean:
                self.write_recovery_points()
                self.write_start_offsets()
                if failed is None and all(log.failure is None for log in self.logs.values()):
                    with self._disk("writing the clean mark"):
                        self._folder.replace(CLEAN_SHUTDOWN, encode_clean_shutdown(broker_epoch), sync=True)
        finally:
            self._release()
        if failed is not None:
            raise failed

    def _release(self) -> None:
        for log in self.logs.values():
            log.close_files()
        self._lock.release()

    @contextmanager
    def _disk(self, what: str) -> Iterator[None]:
        """Take the directory offline where the disk fails within."""
        try:
            yield
        except OSError as error:
            self.failure = f"{what} in {self.path}: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure) from error


def read_identity(disk: Disk, path: str) -> dict[str, str]:
    """meta.properties of a directory, empty where there is none; asks for no lock. Raises KafkaError, OSError."""
    data = Folder(disk, path).read(META_PROPERTIES)
    try:
        return {} if data is None else decode_properties(data)
    except CorruptFile as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{path}/{META_PROPERTIES} cannot be read: {error}") from error


def emptiest(directories: Iterable[Directory]) -> Directory:
    """Where a new log goes: the directory with the fewest logs that is not offline. Raises KafkaError where all are."""
    online = [directory for directory in directories if directory.failure is None]
    if not online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every data directory is offline")
    return min(online, key=lambda directory: len(directory.logs))


def open_all(paths: Iterable[str], request: DirectoryRequest, disk: Disk | None = None) -> list[Directory]:
    """Open several directories of one broker. Raises KafkaError, also where two of them have a log of one partition."""
    directories: list[Directory] = []
    try:
        for path in paths:
            directories.append(Directory.begin(path, request, disk))  # noqa: PERF401 - those before it are to be closed
        _refuse_twins(directories)
        each = request.recovery_processes
        processes = available_cores() if each is None else each * len(directories)
        recovered = recover_in_parallel([log for directory in directories for log in directory.unclean()], processes)
        for directory in directories:
            directory.load(recovered)
    except BaseException:
        for directory in directories:
            directory.close(now_ms=request.now_ms, clean=False)
        raise
    return directories


def _refuse_twins(directories: Iterable[Directory]) -> None:
    owners: dict[Name, str] = {}
    for directory in directories:
        for name in directory.names():
            if name in owners:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{owners[name]} and {directory.path} both have a log of {name[0]}-{name[1]}; one of them must go",
                )
            owners[name] = directory.path


def _open_log(folder: Folder, name: Name, request: LoadRequest) -> Log:
    data = folder.read(PARTITION_METADATA)
    try:
        topic_id = ZERO_UUID if data is None else decode_partition_metadata(data)
    except CorruptFile as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{folder / PARTITION_METADATA}: {error}") from error
    return Log.open(folder, name, topic_id, request)


def _parse_name(folder: Folder, name: str) -> Name:
    match = _LOG_NAME.fullmatch(name)
    if match is None:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{folder / name} is not named TOPIC-PARTITION; a data directory holds logs and nothing else",
        )
    return match[1], int(match[2])
