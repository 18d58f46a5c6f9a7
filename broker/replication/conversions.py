"""Converts batches between message formats and codecs in threads (Kafka: LogValidator, LazyDownConversionRecords).

If a batch has to be converted before the append, or if its validation takes long, a copy of it waits while a thread
does the work (`storage.validation.prepare`). The thread also writes a large batch (`storage.staged`), and returns the
memory of its request to the system. Later batches of the same connection for the same partition queue behind it, so the
log has the batches in order of arrival; other connections and partitions continue. The append itself, with all its
checks, runs on the event loop afterwards, under the leadership at that time. Responses leave in the order of their
requests, as always.

Small compressed data can decompress to more than 100 MiB. A conversion that may take long by that runs in a queue of
its own, one at a time, so that it leaves a thread and most of the memory to those of other clients; in this queue,
connections take turns.

Down-conversion for responses runs in the same threads. The codecs and the functions that walk along the bytes release
the GIL, so the event loop runs in parallel.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from mmap import mmap
from typing import Final

from odradek.broker.replication.partition import Replica, Worker
from odradek.broker.replication.transactional_produce import HeldWrite, Written
from odradek.broker.runtime.timers import Clock
from odradek.broker.runtime.usage import charged, current_usage
from odradek.protocol.batch import ATTRIBUTES_POSITION, CODEC_MASK, MAGIC, MAGIC_POSITION, MAX_DECOMPRESSED, Buffer
from odradek.protocol.compression import DecompressedTooLarge
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.legacy import down_convert_batches
from odradek.protocol.release import shortened
from odradek.storage.segment import FileRange
from odradek.storage.staged import STAGED_BYTES
from odradek.storage.validation import Prepared, prepare

log = logging.getLogger(__name__)

CODEC_POSITION: Final = ATTRIBUTES_POSITION + 1
QUEUED_MICROSECONDS: Final = 100
"""A batch that waits behind a conversion and takes more than this runs in a thread, too: many can wait."""
SLOW_MICROSECONDS: Final = 20_000
"""Conversions that may take more than this run one at a time."""
QUICK_BYTES: Final = 8 << 20
"""What the other conversions decompress at most."""

Outcome = Written | HeldWrite | KafkaError
OnOutcome = Callable[["Conversion", Outcome], None]
Records = memoryview | Prepared
"""A batch as it was received, or as it will be written."""
Append = Callable[[Records], Written | HeldWrite]
Done = Callable[[BaseException | None], None]


class Conversion:
    """A batch that waits for its conversion and append."""

    __slots__ = (
        "append",
        "decompress",
        "in_thread",
        "is_slow",
        "on_outcome",
        "records",
        "replica",
        "rolls",
        "usage",
        "version",
    )

    def __init__(
        self,
        replica: Replica,
        records: Buffer,
        version: int,
        append: Append,
        decompress: Callable[[int, int], None],
        *,
        microseconds: int,
        in_thread: bool,
    ) -> None:
        """`append(records)` appends the converted batch; it raises KafkaError if the log or the leader rejects it.
        `decompress` counts bytes of the batch and what they decompress to; it raises KafkaError over the request's
        limit.

        `microseconds` bounds the time of the conversion (`storage.validation.microseconds`).
        """
        self.replica = replica
        self.records = records
        self.version = version
        self.append = append
        self.decompress = decompress
        self.in_thread = in_thread or microseconds > QUEUED_MICROSECONDS
        self.is_slow = microseconds > SLOW_MICROSECONDS
        self.rolls = False
        """Whether the batch is appended as it is, once a thread has created its segment."""
        self.on_outcome: OnOutcome | None = None
        self.usage = current_usage()
        """Of the request that has the batch."""

    def abandon(self) -> None:
        """The request is answered without this batch, so it must not be appended any more."""
        self.on_outcome = None


def is_cheap(records: memoryview, replica: Replica) -> bool:
    """Whether a batch needs no more than a validation of each record. The check is fast and positive for most batches.

    It is negative if the batch or the topic has a codec, if the batch is a message set, or if a thread writes it.
    """
    return (
        records[CODEC_POSITION] & CODEC_MASK == 0
        and records[MAGIC_POSITION] >= MAGIC
        and replica.log.config.compression_type == "producer"
        and len(records) <= STAGED_BYTES
    )


class OneAtATime:
    """Runs calls in the threads of a worker, each after the end of the one before; clients take turns."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiting: dict[Hashable, deque[tuple[Callable[[], None], Done]]] = {}
        """The calls of each client that has any, in the order of their turns."""
        self._is_running = False

    def run(self, work: Callable[[], None], done: Done, client: Hashable = None) -> None:
        """Run `work` in a thread, then call `done` as the worker does. Raises RuntimeError where it is closed; a call
        that waits already then ends with a KafkaError.
        """
        if self._is_running:
            self._waiting.setdefault(client, deque()).append((work, done))
        else:
            self._start(work, done)

    def _start(self, work: Callable[[], None], done: Done) -> None:
        self._is_running = True
        try:
            self._worker.run(work, partial(self._ended, done))
        except RuntimeError:
            self._is_running = False
            raise

    def _ended(self, done: Done, error: BaseException | None) -> None:
        self._is_running = False
        while self._waiting and not self._is_running:
            work, following = self._next()
            try:
                self._start(work, following)
            except RuntimeError:
                following(_stopping())
        done(error)

    def _next(self) -> tuple[Callable[[], None], Done]:
        """Take a call of the client whose turn it is; its turn comes again after those of the others."""
        client = next(iter(self._waiting))
        calls = self._waiting.pop(client)
        call = calls.popleft()
        if calls:
            self._waiting[client] = calls
        return call


class Conversions:
    """The batches that wait for their conversion, and the threads that convert them."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self.worker = worker
        self._clock = clock
        self.waiting: dict[tuple[Hashable, Replica], deque[Conversion]] = {}
        self.slow = OneAtATime(worker)
        """For work that takes long: one call at a time."""

    def is_behind_another(self, connection: Hashable, replica: Replica) -> bool:
        """Whether a batch has to wait because an earlier batch of the connection is waiting."""
        return bool(self.waiting) and (connection, replica) in self.waiting

    def add(self, connection: Hashable, conversion: Conversion, on_outcome: OnOutcome) -> None:
        """Convert and append a batch after the earlier ones; `on_outcome` is called once, perhaps before this returns,
        unless the conversion is abandoned.
        """
        conversion.on_outcome = on_outcome
        key = connection, conversion.replica
        queue = self.waiting.get(key)
        if queue is not None:
            queue.append(conversion)
            return
        self.waiting[key] = deque((conversion,))
        self._go_on(key)

    def _go_on(self, key: tuple[Hashable, Replica]) -> None:
        queue = self.waiting[key]
        while queue:
            conversion = queue[0]
            if conversion.on_outcome is None:
                pass  # the request is answered without this batch
            elif conversion.rolls:
                if self._roll(key, conversion):
                    return
                self._append(conversion, memoryview(conversion.records))
            elif not conversion.in_thread:
                self._append(conversion, memoryview(conversion.records))
            elif self._begin(key, conversion):
                return
            queue.popleft()
        del self.waiting[key]

    def _begin(self, key: tuple[Hashable, Replica], conversion: Conversion) -> bool:
        """Start the conversion in a thread. Returns False after the threads are closed; the client then receives an
        error.
        """
        made: list[Prepared] = []
        target, now_ms = conversion.replica.log, self._clock.now_ms()
        config, folder = target.config, target.folder
        limit = MAX_DECOMPRESSED if conversion.is_slow else QUICK_BYTES

        def work() -> None:
            made.append(prepare(memoryview(conversion.records), config, conversion.version, now_ms, limit, folder))

        def done(error: BaseException | None) -> None:
            if isinstance(error, DecompressedTooLarge) and not conversion.is_slow:
                conversion.is_slow = True  # gzip that has announced too little
                try:
                    conversion.decompress(len(conversion.records), MAX_DECOMPRESSED)
                except KafkaError as refusal:
                    self._deliver(conversion, refusal)
                else:
                    if self._begin(key, conversion):
                        return
            elif isinstance(error, KafkaError):
                self._deliver(conversion, error)
            elif error is not None:
                log.error(
                    "batch conversion failed topic=%s partition=%d error=%r",
                    conversion.replica.topic,
                    conversion.replica.partition,
                    error,
                )
                self._deliver(conversion, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch cannot be converted"))
            else:
                self._append(conversion, made.pop())
            self._free_memory_of(conversion)
            self.waiting[key].popleft()
            self._go_on(key)

        try:
            measured = charged(work, conversion.usage)
            if conversion.is_slow:
                self.slow.run(measured, done, client=key[0])
            else:
                self.worker.run(measured, done)
        except RuntimeError:  # the threads are closed, because the broker is stopping
            self._deliver(conversion, _stopping())
            return False
        return True

    def _roll(self, key: tuple[Hashable, Replica], conversion: Conversion) -> bool:
        """Create the segment of the batch in a thread, then append it. Returns False where another batch has begun the
        segment meanwhile, or no thread can: the append then creates it where it has to.
        """
        target = conversion.replica.log
        try:
            with conversion.replica.disk():
                roll = target.start_roll(self._clock.now_ms())
        except KafkaError:
            return False  # the log is offline, as the append finds out, too
        if roll is None:
            return False

        def done(_: BaseException | None) -> None:
            try:
                with conversion.replica.disk():
                    target.finish_roll(roll)
            except KafkaError as error:
                self._deliver(conversion, error)
            else:
                self._append(conversion, memoryview(conversion.records))
            self.waiting[key].popleft()
            self._go_on(key)

        try:
            self.worker.run(roll.run, done)
        except RuntimeError:  # the threads are closed, because the broker is stopping
            return False
        return True

    def _free_memory_of(self, conversion: Conversion) -> None:
        """Return the memory of a large request in a thread: for 100 MB that takes 20 milliseconds."""
        records, conversion.records = conversion.records, b""
        memory = records.obj if isinstance(records, memoryview) else None
        if isinstance(memory, mmap):
            records = b""
            with suppress(RuntimeError):  # the threads are closed, because the broker is stopping
                self.worker.run(partial(_shorten, memory), _ignore)

    def _append(self, conversion: Conversion, records: Records) -> None:
        if conversion.on_outcome is None:
            return
        outcome: Outcome
        try:
            outcome = conversion.append(records)
        except KafkaError as error:
            outcome = error
        self._deliver(conversion, outcome)

    def _deliver(self, conversion: Conversion, outcome: Outcome) -> None:
        if conversion.on_outcome is not None:
            conversion.on_outcome(conversion, outcome)


def _shorten(memory: mmap) -> None:
    """Return memory of the system in parts, between which other threads run, as far as nothing else uses it."""
    while shortened(memory):
        pass


def _ignore(error: BaseException | None) -> None:
    """Nothing depends on the end of this."""


def _stopping() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")


def down_convert(records: object, magic: int, fetch_offset: int) -> bytes | KafkaError:
    """The records of a response down-converted to messages of `magic`, or the error. Runs in any thread."""
    try:
        data = records.read() if isinstance(records, FileRange) else bytes(records or b"")  # type: ignore[call-overload]
        return down_convert_batches(data, magic, fetch_offset)
    except KafkaError as error:
        return error
    except OSError as error:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
