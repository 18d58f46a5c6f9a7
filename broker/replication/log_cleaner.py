"""Log cleaner: selects logs and compacts them in worker processes (Kafka: LogCleaner and LogCleanerManager).

Every log.cleaner.backoff.ms the cleaner selects the logs that are due and gives them to worker processes, those with
the largest share of dirty bytes first, at most log.cleaner.threads at a time. When a pass ends, the cleaner replaces
the segments and writes `cleaner-offset-checkpoint` in a thread, and starts the next pass at once. On the event loop it
only selects logs, in parts.

The cleaner skips a log that it cannot compact until the broker restarts: the broker continues to serve the partition,
logs the reason and counts the log in the metrics (`uncleanable`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Final, Protocol

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.replication.checkpoint_writes import CheckpointWrites, Written, high_watermarks_of
from odradek.broker.replication.partition import Replica, Replicas, Worker
from odradek.broker.runtime.timers import Clock
from odradek.protocol.errors import KafkaError
from odradek.storage.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, CorruptFile
from odradek.storage.cleanable import Cleanable, cleanable_part, request_for
from odradek.storage.compaction import Cleaned, CleanRequest, CleanStats, clean, clean_on_disk
from odradek.storage.descriptors import EXHAUSTED, is_exhausted
from odradek.storage.directory import Directory
from odradek.storage.disk import Disk
from odradek.storage.worker import WorkerDied, WorkerProcess

log = logging.getLogger(__name__)

_NICENESS: Final = 5
"""Nice value of a worker process, so that processes that serve clients have priority."""
PART_NS: Final = 2_000_000
"""How long a part of an examination of all logs holds the event loop, beside the last log of the part."""
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
        worker: Worker,
    ) -> None:
        """Starts no pass before `clean_due_logs`. `worker` runs what waits for the disk."""
        self._config = config
        self._directories = directories
        self._replicas = replicas
        self._cleaners = cleaners
        self._clock = clock
        self._random = random
        self._checkpoints = checkpoints
        self._worker = worker
        self._under_way: dict[str, Replica] = {}  # by the log's directory
        self._uncleanable: dict[str, Replica] = {}
        self._due: list[Replica] = []  # the most urgent one last
        self._examination: Iterator[None] | None = None
        self._recent: dict[str, tuple[Replica, CleanStats, float]] = {}  # the last pass over each log, and its seconds
        self._passes = 0
        self._closed = False
        self.metrics = CleanerMetrics()
        self._count()

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
        """Examine all logs, in parts, and start passes for those that are due, up to log.cleaner.threads.

        The others that are due wait in `_due`. When a pass ends, the next of them begins, without another examination
        of all logs: on 2,000 logs one takes tens of milliseconds.
        """
        if not self._closed:
            self._examination = self._examine()
            self._continue(self._examination)

    def _continue(self, examination: Iterator[None]) -> None:
        """Run a part of an examination, unless another one has begun; the event loop serves others before the next."""
        if self._closed or examination is not self._examination:
            return
        if next(examination, self) is self:
            self._examination = None
            self._begin_due()
        else:
            asyncio.get_running_loop().call_soon(self._continue, examination)

    def _examine(self) -> Iterator[None]:
        """Find the logs that are due: those whose delay is over first, then those with more dirty bytes."""
        due: list[tuple[tuple[bool, float], Replica]] = []
        dirty, delay_ms = 0.0, 0
        began_ns = self._clock.monotonic_ns()
        for replica in self._replicas:
            part = self._cleanable(replica)
            if part is not None:
                dirty, delay_ms = max(dirty, part.dirty_ratio), max(delay_ms, part.delay_ms)
                if part.is_due(replica.log.config.min_cleanable_dirty_ratio):
                    due.append(((part.delay_ms > 0, part.dirty_ratio), replica))
            if self._clock.monotonic_ns() - began_ns > PART_NS:
                yield
                began_ns = self._clock.monotonic_ns()
        due.sort(key=lambda each: each[0])
        self._due = [replica for _, replica in due]
        self._count(round(100 * dirty), delay_ms // 1000)

    def _begin_due(self) -> None:
        """Start passes over logs that an examination has found due, while threads are free."""
        while self._due and len(self._under_way) < int(self._config["log.cleaner.threads"]):
            replica = self._due.pop()
            if self._replicas.get(replica.topic, replica.partition) is replica:
                part = self._cleanable(replica)
                if part is not None and part.is_due(replica.log.config.min_cleanable_dirty_ratio):
                    self._begin(replica, part)

    def _next(self, replica: Replica) -> None:
        """A pass over a log has ended: the next one begins. The log itself may be due again."""
        if self._closed:
            return
        if self._due:
            self._due.insert(0, replica)
            self._begin_due()
        elif self._examination is None:
            self.clean_due_logs()

    def _cleanable(self, replica: Replica) -> Cleanable | None:
        """The part of a log that a pass can clean, None where there is none."""
        log = replica.log
        if not log.config.compacts or log.failure is not None or log.active.base_offset <= log.cleaned_to:
            return None
        if log.directory in self._under_way or self._uncleanable.get(log.directory) is replica:
            return None
        try:
            part = cleanable_part(log, last_stable_offset=replica.last_stable_offset, now_ms=self._clock.now_ms())
        except (OSError, CorruptFile, KafkaError) as error:
            self._give_up(replica, error)
            return None
        return part if part.dirty_bytes else None

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
                put = partial(self._put_in_place, replica, part, cleaned, seconds, release)
                self._checkpoint_high_watermark(replica, part.first_uncleanable, put)
                return
            if error is not None and not self._closed:
                self._failed(replica, request, error)
            release()

        def release() -> None:
            del self._under_way[directory]
            self._next(replica)

        self._cleaners.clean(request, ended)

    def _put_in_place(
        self,
        replica: Replica,
        part: Cleanable,
        cleaned: Cleaned,
        seconds: float,
        release: Callable[[], None],
        error: KafkaError | None,
    ) -> None:
        """Replace segments by the result of a pass, in a thread, then call `release`; not after an `error`."""
        removed = self._replicas.get(replica.topic, replica.partition) is not replica
        if error is not None or self._closed or removed:
            release()
            return
        try:
            change, swapped = replica.start_swap(cleaned), replica.log
        except KafkaError as failure:
            self._not_replaced(replica, failure)
            release()
            return
        if change is None:
            log.info("log changed during compaction, repeating topic=%s partition=%d", replica.topic, replica.partition)
            release()
            return

        def finish(_: BaseException | None) -> None:
            try:
                with replica.disk():
                    swapped.finish_change(change)
                replica.cleaned()
                self._checkpoint_cleaner_offset(replica)
                self._count_pass(replica, part, cleaned, seconds)
            except KafkaError as failure:
                self._not_replaced(replica, failure)
            release()

        self._worker.run(change.run, finish)

    def _not_replaced(self, replica: Replica, error: KafkaError) -> None:
        log.error("compaction failed topic=%s partition=%d error=%s", replica.topic, replica.partition, error.message)

    def _count_pass(self, replica: Replica, part: Cleanable, cleaned: Cleaned, seconds: float) -> None:
        stats = cleaned.stats
        self._recent[replica.log.directory] = replica, stats, seconds
        self._passes += 1
        self.metrics = replace(self.metrics, passes=self._passes)
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
                marks = high_watermarks_of(directory, self._replicas)
                self._checkpoints.write_now(
                    directory, directory.checkpoints.begin_in_parts(HIGH_WATERMARKS, marks), done
                )
                return
        done(None)

    def _checkpoint_cleaner_offset(self, replica: Replica) -> None:
        name = (replica.topic, replica.partition)
        for directory in self._directories:
            if name in directory.logs:
                self._checkpoints.write_soon(directory, CLEANER_OFFSETS, directory.checkpoints.begin_cleaner_offsets)

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
        self._count()

    def _count(self, dirty_percent: int = 0, delay_secs: int = 0) -> None:
        """Update the metrics; the arguments are the largest values of all logs."""
        self._uncleanable = {path: each for path, each in self._uncleanable.items() if self._is_at(each, path)}
        self._recent = {path: each for path, each in self._recent.items() if self._is_at(each[0], path)}
        uncleanable: dict[str, dict[str, int]] = {directory.path: {} for directory in self._directories}
        for path, each in self._uncleanable.items():
            uncleanable[path.rpartition("/")[0]][f"{each.topic}-{each.partition}"] = each.log.size
        before = sum(stats.bytes_before for _, stats, _ in self._recent.values())
        after = sum(stats.bytes_after for _, stats, _ in self._recent.values())
        self.metrics = CleanerMetrics(
            uncleanable,
            dirty_percent,
            delay_secs,
            round(100 * after / before) if before else 0,
            max((round(100 * stats.utilization) for _, stats, _ in self._recent.values()), default=0),
            max((seconds for _, _, seconds in self._recent.values()), default=0.0),
            self._passes,
        )

    def _is_at(self, replica: Replica, path: str) -> bool:
        """Whether the replica is still there, with its log in that folder."""
        return replica.log.directory == path and self._replicas.get(replica.topic, replica.partition) is replica
