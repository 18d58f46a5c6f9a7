"""Changelog reader: restores stores from their changelogs and updates standbys (Kafka: StoreChangelogReader).

A thread restores many stores at once with one consumer of its own, a step at a time between its other work: heartbeats
continue, and tasks that are ready run. A store is restored when the reader reaches the end offset that its changelog
had at the start; no other producer writes the changelog meanwhile. The stores of a standby have no end offset, and they
wait while active tasks restore. When a rebalance revokes a task, its restoration stops at its position, and it
continues from that position when a later rebalance assigns the task again: positions belong to the stores
(`task_state.py`), so nothing is read twice when a standby becomes active.

With exactly-once processing the reader restores committed records only, but up to the end offset of all records. A
commit reaches the offsets of the group and the changelogs one after the other. A task that continues from the new
offsets needs the state that belongs to them, so the reader waits until every transaction before the end offset is
decided, as Kafka Streams does.

    restorer.add(state)                 the stores of an active task, opened
    restorer.add(state, standby=True)   those of a standby, which follow until they are dropped
    done = restorer.step(0.1)           restores for about so long; returns the active tasks that are restored
    restorer.drop(task_id)              the task moves to another thread or changes its role: add it again

A table's source topic can be the changelog of its store. The reader restores such a store up to the group's committed
offset of the topic (for a standby: the offset committed at the last request), because the tasks have yet to process the
records behind it.

A changelog that no longer contains the position of a store's checkpoint raises TaskCorruptedError: the task wipes the
store and restores it from the beginning. While the cluster does not return the first and end offsets of changelogs,
their tasks wait.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError, TaskCorruptedError
from odradek.streams.records import TaskId
from odradek.streams.running.client import by_partition, has_errors, take_batch
from odradek.streams.running.standby_listener import StandbyUpdateListener, SuspendReason
from odradek.streams.running.task_state import TaskState

log = logging.getLogger(__name__)

BATCH: Final = 2_000
PROGRESS_S: Final = 10.0
"""How often a long restoration logs its progress."""
CHECKPOINT_S: Final = 30.0
"""How often the reader checks for due checkpoints; it writes one for stores that have moved far."""
GROUP_S: Final = 10.0
"""How often a standby requests the committed offset of a source topic that it follows."""
GIVE_UP_S: Final = 300.0
_ASK_S: Final = 1.0
"""The first timeout of an offset request; it doubles with each retry while no other work waits."""
_AGAIN_S: Final = 0.5
_GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
_FATAL: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION})
CONSUMER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
"""Required consumer configs."""

Read = Mapping[TopicPartition, int]
"""The committed offset of a group: the offset at which it continues."""


class RestoreListener:
    """Receives the progress of restoration (Kafka: StateRestoreListener). Override what is of interest; stream threads
    call it.
    """

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """Restoration begins at offset `start`; `end` is the first offset that is not restored."""

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """A batch of `count` records is restored; `batch_end` is the offset of the last of them."""

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        """The store is completely restored, after `total` records."""

    def on_restore_suspended(self, changelog: TopicPartition, store: str, total: int) -> None:
        """The task moves to another thread before the store is completely restored."""


@dataclass(slots=True)
class _Changelog:
    """One store that is being restored."""

    state: TaskState
    store: Any
    standby: bool
    limit: int | None
    """The first offset that must not be restored, where the changelog is a source topic."""
    begun: bool = False
    reading: bool = False
    end: int = 0
    """For an active task: the first offset that is not restored."""
    next: int = 0
    total: int = 0


class Restorer:
    """Restores the stores of a thread's tasks. Only that thread calls its methods."""

    def __init__(
        self,
        consumer: Consumer,
        timeout_s: float,
        listener: RestoreListener | None = None,
        *,
        committed: Callable[[Sequence[TopicPartition]], Read] = lambda places: {},
        written: Callable[[Sequence[TopicPartition], float], Read] | None = None,
        give_up_s: float = GIVE_UP_S,
        checkpoint_s: float = CHECKPOINT_S,
        standby_listener: StandbyUpdateListener | None = None,
    ) -> None:
        """`consumer` belongs to this restorer alone and has the configs of CONSUMER; with exactly-once processing it
        reads committed records only.

        `timeout_s` bounds one request to the cluster, `give_up_s` the duration of its retries (task.timeout.ms).
        `committed` fetches the committed offsets of source topics that standbys follow. `written` fetches the high
        watermarks of changelogs, as far as brokers return them within so many seconds; it is required where `consumer`
        reads committed records only.
        """
        self.guard: AbstractContextManager[Any] = contextlib.nullcontext()
        """The thread holds it while stores change here; a query of standby stores acquires it."""
        self.paused = False
        """Whether restoration is paused, for active tasks and for standbys (KIP-834)."""
        self._consumer = consumer
        self._timeout_s = timeout_s
        self._give_up_s = give_up_s
        self._checkpoint_s = checkpoint_s
        self._listener = listener or RestoreListener()
        self._standby_listener = standby_listener or StandbyUpdateListener()
        self._committed = committed
        self._written = written or (lambda changelogs, timeout_s: self._ask(changelogs, OFFSET_END, timeout_s))
        self._changelogs: dict[TopicPartition, _Changelog] = {}
        self._waiting: dict[TaskId, TaskState] = {}
        """Active tasks that are not completely restored."""
        self._done: list[TaskState] = []
        self._ask_s, self._ask_again = _ASK_S, 0.0
        self._unanswered_since: float | None = None
        self._restored = 0
        now = time.monotonic()
        self._notified_at, self._reported_restored = now, 0
        self._next_checkpoint = now + checkpoint_s
        self._next_group = now

    @property
    def active(self) -> bool:
        """Whether an active task or a standby has something to restore."""
        return bool(self._waiting or self._done)

    @property
    def remaining(self) -> int:
        """The remaining records, counted by offsets, of the stores whose restoration has begun."""
        return sum(each.end - each.next for each in self._changelogs.values() if each.begun and not each.standby)

    def left(self, task_id: TaskId) -> int:
        """The remaining records of one task. Any thread may call it."""
        mine = [each for each in list(self._changelogs.values()) if each.state.task_id == task_id]
        return sum(max(0, each.end - each.next) for each in mine if each.begun and not each.standby)

    @property
    def restored(self) -> int:
        """Records restored so far, those of standbys included."""
        return self._restored

    def add(self, state: TaskState, standby: bool = False) -> None:
        """Restore these stores from the next step on; none beyond `state.limits`."""
        if not standby:
            self._waiting[state.task_id] = state
        for changelog, store in state.wanting.items():
            limit = state.limits.get(changelog, 0) if changelog in state.source_changelogs else None
            self._changelogs[changelog] = _Changelog(state, store, standby, limit)
        self._check_restored(state)

    def drop(self, task_id: TaskId, reason: SuspendReason = SuspendReason.MIGRATED) -> None:
        """Stop restoring this task; its stores and positions stay unchanged. The listener of a standby receives
        `reason`.
        """
        for changelog, each in self._forget(task_id).items():
            if each.begun and each.standby:
                self._standby_listener.on_update_suspended(
                    changelog, each.store.name, each.next - 1, self._end_of(changelog), reason
                )
            elif each.begun:
                self._listener.on_restore_suspended(changelog, each.store.name, each.total)
                log.info("restoration suspended changelog=%s", _name(changelog))

    def step(self, timeout_s: float, beside: bool = False) -> list[TaskState]:
        """Restore for about `timeout_s`, at least a batch if one is available. Returns the active tasks that are
        restored.

        `beside` is whether other tasks of the thread run already. A transaction of theirs may be open and ends soon by
        itself (after 10 s by default): they do not wait long for a response that does not arrive.

        Raises StreamsError, and TaskCorruptedError where a changelog lacks records to restore.
        """
        now = time.monotonic()
        deadline = now + timeout_s
        self._begin(now, _ASK_S if beside else self._ask_s)
        self._turn_to_what_waits()
        while self._changelogs and not self._done and not self.paused:
            self._take(take_batch(self._consumer, BATCH, deadline - now))
            now = time.monotonic()
            if now >= deadline:
                break
        self._log_progress(now)
        self._write_checkpoints(now)
        done, self._done = self._done, []
        return done

    def lag(self, state: TaskState) -> int:
        """How many records the stores of a standby are behind, as far as the end offsets have been fetched."""
        behind = 0
        for changelog in state.wanting:
            behind += max(0, self._end_of(changelog) - 1 - state.positions.get(changelog, -1))
        return behind

    def _end_of(self, changelog: TopicPartition) -> int:
        """The end offset as of the last fetch, -1 where there was none."""
        known = self._consumer.get_watermark_offsets(Position(*changelog), cached=True)
        return -1 if known is None else max(-1, known[1])

    def ends(self, changelogs: Sequence[TopicPartition], timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """The current end offsets of changelogs; with exactly-once processing those of committed records. Raises
        StreamsError.
        """
        timeout_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        found = self._ask(changelogs, OFFSET_END, timeout_s)
        if len(found) < len(changelogs):
            missing = ", ".join(_name(each) for each in changelogs if each not in found)
            raise StreamsError(f"the brokers did not return the end offsets of {missing} within {timeout_s:g} s")
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    # ---- first and end offsets

    def _begin(self, now: float, ask_s: float) -> None:
        """Fetch the first and end offsets of new changelogs; a changelog without an answer waits for the next step."""
        fresh = [changelog for changelog, each in self._changelogs.items() if not each.begun]
        self._ask_the_group(now, fresh)
        if not fresh or now < self._ask_again:
            return
        lows = self._ask(fresh, OFFSET_BEGINNING, ask_s)
        highs = self._written(list(lows), ask_s) if lows else {}
        corrupted: dict[TaskId, str] = {}
        for changelog in lows.keys() & highs.keys():
            each = self._changelogs[changelog]
            why = self._begin_one(changelog, each, lows[changelog], highs[changelog])
            if why is not None:
                corrupted[each.state.task_id] = why
        self._count_failures(now, [each for each in fresh if each not in lows or each not in highs])
        for state in list(self._waiting.values()):
            if state.task_id not in corrupted:
                self._check_restored(state)
        self._give_back(corrupted)

    def _begin_one(self, changelog: TopicPartition, each: _Changelog, low: int, high: int) -> str | None:
        """Returns what is wrong with the store's position, or None."""
        last = each.state.positions.get(changelog)
        if last is not None and not low <= last + 1 <= high:
            store = each.store.name
            return f"{store} is at offset {last} of {_name(changelog)}, which contains {low} to {high - 1}"
        each.begun = True
        each.next = low if last is None else last + 1
        if each.standby:
            self._standby_listener.on_update_start(changelog, each.store.name, each.next)
            return None
        each.end = high if each.limit is None else min(high, each.limit)
        if each.next >= each.end:
            del self._changelogs[changelog]
            return None
        self._listener.on_restore_start(changelog, each.store.name, each.next, each.end)
        log.info(
            "restoring store=%s changelog=%s first_offset=%d last_offset=%d",
            each.store.name,
            _name(changelog),
            each.next,
            each.end - 1,
        )
        return None

    def _ask(self, changelogs: Sequence[TopicPartition], where: int, timeout_s: float) -> dict[TopicPartition, int]:
        """The first or the end offsets of these changelogs, as far as brokers return them: one request to each
        broker.
        """
        if not changelogs:
            return {}
        found: list[Position] = []
        try:
            # As in the protocol, -1 and -2 stand for the end and the beginning where a time is expected.
            found = self._consumer.offsets_for_times(
                [Position(*changelog, where) for changelog in changelogs], timeout=timeout_s
            )
        except KafkaException as error:
            log.warning("cannot list offsets of changelogs error=%s", error.args[0].str())
        for place in found:
            if place.error is not None:
                log.warning(
                    "cannot list offsets topic=%s partition=%d error=%s",
                    place.topic,
                    place.partition,
                    place.error.str(),
                )
        # While leaders change, an answer can be missing with no error: the requested offset stands there unchanged.
        found_offsets = {
            (each.topic, each.partition): each.offset for each in found if each.error is None and each.offset >= 0
        }
        if len(found_offsets) < len(changelogs):
            # A client that has read nothing lately waits for the leader in its metadata, even after that leader has
            # moved.
            with contextlib.suppress(KafkaException):
                self._consumer.list_topics(timeout=timeout_s)
        return found_offsets

    def _count_failures(self, now: float, unanswered: Sequence[TopicPartition]) -> None:
        """Raises StreamsError once the cluster has not answered for too long."""
        if not unanswered:
            self._unanswered_since, self._ask_s = None, _ASK_S
            return
        self._ask_s, self._ask_again = min(2 * self._ask_s, self._timeout_s), now + _AGAIN_S
        self._unanswered_since = self._unanswered_since or now
        if now - self._unanswered_since > self._give_up_s:
            names = ", ".join(map(_name, unanswered))
            raise StreamsError(
                f"the brokers did not return the offsets of {names} within {self._give_up_s:g} s (task.timeout.ms)"
            )

    def _ask_the_group(self, now: float, fresh: Sequence[TopicPartition]) -> None:
        """Fetch the committed offsets of the source topics that standbys follow."""
        followed = {
            changelog: each
            for changelog, each in self._changelogs.items()
            if each.standby and each.limit is not None and (now >= self._next_group or changelog in fresh)
        }
        if followed:
            self._next_group = now + GROUP_S
            read = self._committed(list(followed))
            for changelog, each in followed.items():
                each.limit = max(each.limit or 0, read.get(changelog, 0))

    def _turn_to_what_waits(self) -> None:
        """Pause standbys while active tasks restore, and everything while the client is paused.

        Partitions are unassigned and assigned again: a partition that was paused stays paused when librdkafka gets it
        back.
        """
        waiting = any(not each.standby for each in self._changelogs.values())
        start: list[Position] = []
        stop: list[Position] = []
        for changelog, each in self._changelogs.items():
            if not each.begun:
                continue
            stands_back = each.standby and (waiting or (each.limit is not None and each.next >= each.limit))
            wanted = not (self.paused or stands_back)
            if wanted is not each.reading:
                each.reading = wanted
                # Always an explicit offset, even for the beginning: for a partition that it had before, librdkafka uses
                # an old one.
                (start if wanted else stop).append(Position(*changelog, each.next))
        if stop:
            self._consumer.incremental_unassign(stop)
        if start:
            self._consumer.incremental_assign(start)

    # ---- records

    def _take(self, messages: list[Message]) -> None:
        """Restore received records into the stores, a batch for each. Errors are raised after all stores have their
        batch.
        """
        failed: list[Message] = []
        if messages and has_errors(messages):
            failed = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        if messages:
            for changelog, batch in by_partition(messages).items():
                each = self._changelogs.get(changelog)
                if each is not None:
                    self._restore(changelog, each, batch)
        corrupted: dict[TaskId, str] = {}
        for message in failed:
            self._note(message, corrupted)
        self._give_back(corrupted)

    def _restore(self, changelog: TopicPartition, each: _Changelog, batch: list[Message]) -> None:
        end = each.limit if each.standby else each.end
        last: int = batch[-1].offset()  # type: ignore[assignment]
        if end is not None and last >= end:
            batch = [message for message in batch if message.offset() < end]  # type: ignore[operator]
            last = end - 1
        kind = type(batch[0])  # that of the client; no lookup a record
        columns = (map(get, batch) for get in (kind.key, kind.value, kind.timestamp))
        records = [
            (key, value, timestamp, None)
            for key, value, (_, timestamp) in zip(*columns, strict=True)
            if key is not None
        ]
        if records:
            try:
                with self.guard:
                    each.store.restore(records)
            except Exception as error:
                where = f"{_name(changelog)}, offsets {batch[0].offset()} to {last}"
                raise each.state.not_restored(each.store.name, where, error) from error
        each.state.positions[changelog] = last
        each.next = last + 1
        each.total += len(records)
        self._restored += len(records)
        each.state.restored.record(0.0, len(records))
        if each.standby:
            self._standby_listener.on_batch_loaded(
                changelog, each.store.name, each.state.task_id, last, len(records), self._end_of(changelog)
            )
        else:
            self._listener.on_batch_restored(changelog, each.store.name, last, len(records))
            if each.next >= each.end:
                self._finish(changelog, each)

    def _reached(self, changelog: TopicPartition, each: _Changelog, offset: int) -> None:
        """The reader is at `offset`; behind the last record the log may hold transaction markers or aborted records."""
        if each.standby:
            each.next = max(each.next, offset if each.limit is None else min(offset, each.limit))
            if each.next > 0:
                each.state.positions[changelog] = each.next - 1
        elif offset >= each.end:
            self._finish(changelog, each)

    def _finish(self, changelog: TopicPartition, each: _Changelog) -> None:
        each.state.positions[changelog] = each.end - 1
        del self._changelogs[changelog]
        self._consumer.incremental_unassign([Position(*changelog)])
        self._listener.on_restore_end(changelog, each.store.name, each.total)
        log.info("store restored store=%s changelog=%s records=%d", each.store.name, _name(changelog), each.total)
        self._check_restored(each.state)

    def _check_restored(self, state: TaskState) -> None:
        """Check whether a task is completely restored."""
        if self._waiting.get(state.task_id) is state and all(
            each.state is not state for each in self._changelogs.values()
        ):
            del self._waiting[state.task_id]
            self._done.append(state)

    def _forget(self, task_id: TaskId) -> dict[TopicPartition, _Changelog]:
        self._waiting.pop(task_id, None)
        self._done = [state for state in self._done if state.task_id != task_id]
        mine = {changelog: each for changelog, each in self._changelogs.items() if each.state.task_id == task_id}
        reading = [Position(*changelog) for changelog, each in mine.items() if each.reading]
        if reading:
            self._consumer.incremental_unassign(reading)
        for changelog in mine:
            del self._changelogs[changelog]
        return mine

    # ---- errors, progress and checkpoints

    def _note(self, message: Message, corrupted: dict[TaskId, str]) -> None:
        """Handle an end of partition or an error. Raises StreamsError for an error that is not transient."""
        error = message.error()
        assert error is not None
        partition = message.partition()
        changelog = (str(message.topic()), partition if partition is not None else -1)
        each = self._changelogs.get(changelog)
        if error.code() == KafkaError._PARTITION_EOF:
            if each is not None:
                self._reached(changelog, each, message.offset() or 0)
        elif each is not None and error.code() in _GONE:
            corrupted[each.state.task_id] = f"{_name(changelog)}: {error.str()}"
        elif error.fatal() or error.code() in _FATAL:
            raise StreamsError(f"cannot restore {_name(changelog)}: {error.str()}")
        else:
            log.warning(
                "error while restoring changelog=%s error=%s", _name(changelog), error.str()
            )  # the client retries

    def _give_back(self, corrupted: Mapping[TaskId, str]) -> None:
        """Raises TaskCorruptedError for these tasks, if there are any."""
        if corrupted:
            for task_id in corrupted:
                self._forget(task_id)
            raise TaskCorruptedError(set(corrupted), "; ".join(corrupted.values()))

    def _log_progress(self, now: float) -> None:
        if now - self._notified_at < PROGRESS_S:
            return
        rate = (self._restored - self._reported_restored) / (now - self._notified_at)
        stores = sum(not each.standby for each in self._changelogs.values())
        if stores:
            log.info(
                "restoring stores=%d records_left=%s records_per_second=%s",
                stores,
                f"{self.remaining:,}",
                f"{rate:,.0f}",
            )
        self._notified_at, self._reported_restored = now, self._restored

    def _write_checkpoints(self, now: float) -> None:
        """Write due checkpoints, so that a long restoration continues after a crash instead of starting anew. Raises
        OSError.
        """
        if now >= self._next_checkpoint:
            self._next_checkpoint = now + self._checkpoint_s
            with self.guard:
                for state in _states(self._changelogs.values()):
                    state.checkpoint()


def _states(changelogs: Iterable[_Changelog]) -> list[TaskState]:
    return list({each.state.task_id: each.state for each in changelogs}.values())


def _name(changelog: TopicPartition) -> str:
    return f"{changelog[0]}-{changelog[1]}"
