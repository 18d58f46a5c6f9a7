"""Log cleaner: selects logs and compacts them in worker processes (Kafka: LogCleaner and LogCleanerManager).

Every log.cleaner.backoff.ms the cleaner selects the logs that are due and gives those with the largest share of dirty
bytes to worker processes, at most log.cleaner.threads at a time. When a pass ends, the cleaner replaces the segments,
writes `cleaner-offset-checkpoint` in a thread and starts the next pass at once. On the event loop it only selects logs
and renames files.

The cleaner skips a log that it cannot compact until the broker restarts: the broker continues to serve the partition,
logs the reason and counts the log in the metrics (`uncleanable`).
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Protocol

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.replication.checkpoint_writes import CheckpointWrites, Written
from odradek.broker.replication.partition import Replica, Replicas, Worker
from odradek.broker.runtime.timers import Clock
from odradek.protocol.errors import KafkaError
from odradek.storage.checkpoints import HIGH_WATERMARKS, CorruptFile
from odradek.storage.cleanable import Cleanable, cleanable_part, request_for
from odradek.storage.compaction import Cleaned, CleanRequest, CleanStats, clean, clean_on_disk
from odradek.storage.descriptors import EXHAUSTED, is_exhausted
from odradek.storage.directory import Directory
from odradek.storage.disk import Disk
from odradek.storage.worker import WorkerDied, WorkerProcess

log = logging.getLogger(__name__)

_NICENESS: Final = 5
"""Nice value of a worker process, so that processes that serve clients have priority."""
_HASH_KEY_BITS: Final = 128
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT}) | EXHAUSTED


class CleanDone(Protocol):
    """Called with the result of a pass: one of the two arguments is None."""

    def __call__(self, cleaned: Cleaned | None, error: BaseException | None) -> None: ...


class Cleaners(Protocol):
    """Runs passes of the log cleaner, at most the given number at once."""

    def clean(self, request: CleanRequest, done: CleanDone) -> None:
        """Run a pass off the event loop, then call `done` on the loop with its result."""
        ...

    def close(self) -> None:
        """Interrupt the running passes."""
        ...


class CleanersHere:
    """Runs passes in this process, on any disk: for simulated disks."""

    def __init__(self, disk: Disk, worker: Worker) -> None:
        self._disk, self._worker = disk, worker

    def clean(self, request: CleanRequest, done: CleanDone) -> None:
        made: list[Cleaned] = []
        self._worker.run(
            lambda: made.append(clean(self._disk, request)), lambda error: done(made[0] if made else None, error)
        )

    def close(self) -> None:
        pass


class CleanerProcesses:
    """Runs passes in worker processes, each started when it is first needed."""

    def __init__(self, worker: Worker) -> None:
        """`worker` has one thread for each concurrent pass; the thread waits for the process."""
        self._worker = worker
        self._idle: list[WorkerProcess] = []
        self._busy: list[WorkerProcess] = []

    def clean(self, request: CleanRequest, done: CleanDone) -> None:
        process = self._idle.pop() if self._idle else WorkerProcess(nice=_NICENESS)
        self._busy.append(process)
        made: list[Cleaned] = []

        def ended(error: BaseException | None) -> None:
            self._busy.remove(process)
            self._idle.append(process)
            done(made[0] if made else None, error)

        self._worker.run(lambda: made.append(process.call(clean_on_disk, request)), ended)

    def close(self) -> None:
        for process in (*self._idle, *self._busy):
            process.close()


@dataclass(frozen=True, slots=True)
class CleanerMetrics:
    """Metrics of the log cleaner, with the names of Kafka's metrics.

    `uncleanable` has the bytes of each uncleanable partition by data directory; `max_dirty_percent` is the largest
    share of dirty bytes; times are in seconds.
    """

    uncleanable: dict[str, dict[str, int]] = field(default_factory=dict)
    max_dirty_percent: int = 0
    max_compaction_delay_secs: int = 0
    cleaner_recopy_percent: int = 0
    max_buffer_utilization_percent: int = 0
    max_clean_time_secs: float = 0.0
    passes: int = 0


class LogCleaner:
    """Selects logs, starts passes and replaces segments with the result (Kafka: LogCleaner)."""

    def __init__(
        self,
        config: BrokerConfig,
        directories: list[Directory],
        replicas: Replicas,
        cleaners: Cleaners,
        clock: Clock,
        random: Random,
        checkpoints: CheckpointWrites,
    ) -> None:
        """Starts no pass before `clean_due_logs`."""
        self._config = config
        self._directories = directories
        self._replicas = replicas
        self._cleaners = cleaners
        self._clock = clock
        self._random = random
        self._checkpoints = checkpoints
        self._under_way: dict[str, Replica] = {}  # by the log's directory
        self._uncleanable: dict[str, Replica] = {}
        self._recent: dict[str, tuple[CleanStats, float]] = {}  # the last pass over each log, and its seconds
        self._passes = 0
        self._closed = False
        self.metrics = CleanerMetrics()
        self._count([])

    def is_cleaning(self, directory: str) -> bool:
        """Whether a pass runs over the log in this directory, so that its segments must stay in place."""
        return directory in self._under_way

    def close(self) -> None:
        """Start no more passes and interrupt the running ones."""
        self._closed = True
        self._cleaners.close()

    def reconfigure(self) -> None:
        """Check again after a change of the configuration: more logs may be due, or more threads allowed."""
        if self._config["log.cleaner.enable"]:
            self.clean_due_logs()

    def clean_due_logs(self) -> None:
        """Start passes for the logs that are due, up to log.cleaner.threads."""
        if self._closed:
            return
        found = self._candidates()
        self._count(found)
        due = [each for each in found if each[1].is_due(each[0].log.config.min_cleanable_dirty_ratio)]
        due.sort(key=lambda each: (each[1].delay_ms > 0, each[1].dirty_ratio), reverse=True)
        free = int(self._config["log.cleaner.threads"]) - len(self._under_way)
        for replica, part in due[: max(free, 0)]:
            self._begin(replica, part)

    def _candidates(self) -> list[tuple[Replica, Cleanable]]:
        now_ms = self._clock.now_ms()
        found = []
        for replica in self._replicas:
            each = replica.log
            if not each.config.compacts or each.failure is not None or each.active.base_offset <= each.cleaned_to:
                continue
            if each.directory in self._under_way or self._uncleanable.get(each.directory) is replica:
                continue
            try:
                part = cleanable_part(each, last_stable_offset=replica.last_stable_offset, now_ms=now_ms)
            except (OSError, CorruptFile, KafkaError) as error:
                self._give_up(replica, error)
                continue
            if part.dirty_bytes:
                found.append((replica, part))
        return found

    def _begin(self, replica: Replica, part: Cleanable) -> None:
        config, threads = self._config, max(1, int(self._config["log.cleaner.threads"]))
        directory, began_ms = replica.log.directory, self._clock.monotonic_ms()
        try:
            request = request_for(
                replica.log,
                part,
                now_ms=self._clock.now_ms(),
                hash_key=self._random.getrandbits(_HASH_KEY_BITS).to_bytes(_HASH_KEY_BITS // 8, "little"),
                compacted_everywhere=replica.machine.compacted_everywhere,
                high_watermark=replica.machine.high_watermark,
                map_bytes=int(config["log.cleaner.dedupe.buffer.size"]) // threads,
                load_factor=float(config["log.cleaner.io.buffer.load.factor"]),
                bytes_per_second=float(config["log.cleaner.io.max.bytes.per.second"]) / threads,
                written_at_once=int(config["log.cleaner.io.buffer.size"]) // threads // 2,  # Kafka reads with one half
            )
        except (OSError, CorruptFile) as error:
            self._give_up(replica, error)
            return
        self._under_way[directory] = replica

        def ended(cleaned: Cleaned | None, error: BaseException | None) -> None:
            if cleaned is not None and not self._closed:
                seconds = (self._clock.monotonic_ms() - began_ms) / 1000
                done = partial(replace_segments, cleaned, seconds)
                self._checkpoint_high_watermark(replica, part.first_uncleanable, done)
                return
            del self._under_way[directory]
            if self._closed:
                return
            if error is not None:
                self._failed(replica, request, error)
            else:
                self.clean_due_logs()

        def replace_segments(cleaned: Cleaned, seconds: float, error: KafkaError | None) -> None:
            del self._under_way[directory]
            if self._closed:
                return
            if error is None:
                self._put_in_place(replica, part, cleaned, seconds)
            self.clean_due_logs()

        self._cleaners.clean(request, ended)

    def _put_in_place(self, replica: Replica, part: Cleanable, cleaned: Cleaned, seconds: float) -> None:
        if self._replicas.get(replica.topic, replica.partition) is not replica:
            return  # the partition was deleted meanwhile
        try:
            if not replica.swap_in(cleaned):
                log.info(
                    "log changed during compaction, repeating topic=%s partition=%d", replica.topic, replica.partition
                )
                return
            self._checkpoint_cleaner_offset(replica)
        except KafkaError as error:
            log.error(
                "compaction failed topic=%s partition=%d error=%s", replica.topic, replica.partition, error.message
            )
            return
        stats = cleaned.stats
        self._recent[replica.log.directory] = stats, seconds
        self._passes += 1
        log.info(
            "compacted log topic=%s partition=%d first_dirty=%d cleaned_to=%d seconds=%.1f bytes_before=%d "
            "bytes_after=%d records_before=%d records_after=%d",
            replica.topic,
            replica.partition,
            part.first_dirty,
            cleaned.cleaned_to,
            seconds,
            stats.bytes_before,
            stats.bytes_after,
            stats.records_before,
            stats.records_after,
        )

    def _checkpoint_high_watermark(self, replica: Replica, used: int, done: Written) -> None:
        """Make the high watermark durable before the segments are replaced; then call `done`.

        After a restart the leader must expose every record because of which compaction has removed others. Those
        records are below `used`, which was not above the high watermark when the pass began.
        """
        name = (replica.topic, replica.partition)
        for directory in self._directories:
            if name in directory.logs and directory.high_watermarks.get(name, -1) < used:
                marks = {**directory.high_watermarks, name: replica.machine.high_watermark}
                try:
                    write = directory.checkpoints.begin(HIGH_WATERMARKS, marks)
                except KafkaError as error:
                    done(error)
                else:
                    self._checkpoints.start(directory, write, done)
                return
        done(None)

    def _checkpoint_cleaner_offset(self, replica: Replica) -> None:
        name = (replica.topic, replica.partition)
        for directory in self._directories:
            if name in directory.logs:
                self._checkpoints.start(directory, directory.checkpoints.begin_cleaner_offsets())

    # ---- failures and metrics

    def _failed(self, replica: Replica, request: CleanRequest, error: BaseException) -> None:
        moved = replica.log.generation != request.generation or replica.log.directory != request.path
        if moved or isinstance(error, WorkerDied):
            log.warning("retrying interrupted compaction path=%s error=%s", request.path, error)
        elif isinstance(error, OSError) and error.errno in _PASSING:
            log.warning("retrying compaction after lack of resources path=%s error=%s", request.path, error)
        else:
            self._give_up(replica, error)

    def _give_up(self, replica: Replica, error: BaseException) -> None:
        if is_exhausted(error):
            return  # a file descriptor may be free at the next check
        self._uncleanable[replica.log.directory] = replica
        reason = error.message if isinstance(error, KafkaError) else error
        log.error(
            "marking log as uncleanable until restart topic=%s partition=%d error=%s",
            replica.topic,
            replica.partition,
            reason,
        )
        self._count([])

    def _count(self, found: list[tuple[Replica, Cleanable]]) -> None:
        """Update the metrics."""
        current = {each.log.directory: each for each in self._replicas}
        self._uncleanable = {path: each for path, each in self._uncleanable.items() if current.get(path) is each}
        self._recent = {path: each for path, each in self._recent.items() if path in current}
        uncleanable: dict[str, dict[str, int]] = {directory.path: {} for directory in self._directories}
        for path, each in self._uncleanable.items():
            uncleanable[path.rpartition("/")[0]][f"{each.topic}-{each.partition}"] = each.log.size
        before = sum(stats.bytes_before for stats, _ in self._recent.values())
        after = sum(stats.bytes_after for stats, _ in self._recent.values())
        self.metrics = CleanerMetrics(
            uncleanable,
            max((round(100 * part.dirty_ratio) for _, part in found), default=0),
            max((part.delay_ms // 1000 for _, part in found), default=0),
            round(100 * after / before) if before else 0,
            max((round(100 * stats.utilization) for stats, _ in self._recent.values()), default=0),
            max((seconds for _, seconds in self._recent.values()), default=0.0),
            self._passes,
        )
