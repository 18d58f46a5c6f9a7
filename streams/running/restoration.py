"""Stores get back what their changelogs say, and standbys follow them (StoreChangelogReader).

A thread restores many stores at once, by one consumer of its own, a step at a time between its other work: heartbeats
go on, and tasks that are ready run. A store is restored when the end is reached that its changelog had when it began;
nobody else writes it meanwhile. The stores of a standby have no end, and wait while there are others to restore. What a
rebalance takes away is dropped where it is, and what it brings back goes on from there: positions live with the stores
(`task_state.py`), so nothing is read twice when a standby becomes active.

Exactly once, only what is committed is restored, but the end is that of all that is written. A commit reaches the
group's offsets and the changelogs one after the other; who goes on from the new offsets needs the state that belongs to
them, so it waits until every transaction before the end is decided, as Kafka Streams does.

    restorer.add(state)                 the stores of an active task, opened
    restorer.add(state, standby=True)   those of a standby, which follow until they are dropped
    done = restorer.step(0.1)           restores for at most about so long; the active tasks that are whole now
    restorer.drop(task_id)              the task goes elsewhere, or changes its role: add it again

A table's source topic can be the changelog of its store. Such a store goes no further than the group has read the topic
(for a standby: had read it when last asked), since the records behind are still to be processed.

A changelog that no longer has what a store's checkpoint speaks of raises TaskCorruptedError: the store is wiped, and
restored from the beginning. While the cluster cannot say where changelogs begin and end, their tasks wait.
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

from odradek.streams.errors import StreamsError, TaskCorruptedError
from odradek.streams.records import TaskId
from odradek.streams.running.record_reader import by_partition
from odradek.streams.running.task_state import TaskState, TopicPartition

log = logging.getLogger(__name__)

BATCH: Final = 5_000
PROGRESS_S: Final = 10.0
"""How often a long restoration says how far it is."""
CHECKPOINT_S: Final = 30.0
"""How often checkpoints of what is restored or followed are looked at; written where the stores have moved far."""
GROUP_S: Final = 10.0
"""How often a standby asks how far the group has read a source topic that it follows."""
GIVE_UP_S: Final = 300.0
_ASK_S: Final = 1.0
"""How long to wait for offsets at first; then twice as long each time, where nothing else waits meanwhile."""
_AGAIN_S: Final = 0.5
_GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
_FATAL: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION})
CONSUMER: Final[Mapping[str, Any]] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}
"""What the consumer has to be set to."""

Read = Mapping[TopicPartition, int]
"""How far a group has read: the offset that it goes on at."""


class RestoreListener:
    """Told how restoration goes on (StateRestoreListener). Override what is of interest; called by stream threads."""

    def on_restore_start(self, changelog: TopicPartition, store: str, start: int, end: int) -> None:
        """Begins at offset `start`; `end` is the first offset that is not restored."""

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        """So many records more; `batch_end` is the offset of the last of them."""

    def on_restore_end(self, changelog: TopicPartition, store: str, total: int) -> None:
        """The store is whole, after so many records."""

    def on_restore_suspended(self, changelog: TopicPartition, store: str, total: int) -> None:
        """The task goes elsewhere before the store is whole."""


@dataclass(slots=True)
class _Changelog:
    """One store on its way."""

    state: TaskState
    store: Any
    standby: bool
    limit: int | None
    """The first offset that may not be restored, where the changelog is a source topic."""
    begun: bool = False
    reading: bool = False
    end: int = 0
    """An active task's: the first offset that is not restored."""
    next: int = 0
    total: int = 0


class Restorer:
    """Restores the stores of a thread's tasks. All methods are called by that thread."""

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
    ) -> None:
        """`consumer` is this restorer's alone, and made with CONSUMER; exactly once it reads what is committed.

        `timeout_s` bounds one question to the cluster, `give_up_s` how long it is asked again (task.timeout.ms).
        `committed` asks the group how far it has read source topics that standbys follow. `written` asks for the high
        watermarks of changelogs, as far as they are told in so many seconds; it is needed where `consumer` reads what
        is committed.
        """
        self.guard: AbstractContextManager[Any] = contextlib.nullcontext()
        """Held while stores change here; who queries those of standbys takes it."""
        self.paused = False
        """Whether nothing is read, neither for active tasks nor for standbys (KIP-834)."""
        self._consumer = consumer
        self._timeout_s = timeout_s
        self._give_up_s = give_up_s
        self._checkpoint_s = checkpoint_s
        self._listener = listener or RestoreListener()
        self._committed = committed
        self._written = written or (lambda changelogs, timeout_s: self._ask(changelogs, OFFSET_END, timeout_s))
        self._changelogs: dict[TopicPartition, _Changelog] = {}
        self._waiting: dict[TaskId, TaskState] = {}
        """Active tasks that are not whole."""
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
        """Whether there is something to restore."""
        return bool(self._waiting or self._done)

    @property
    def remaining(self) -> int:
        """Records left, counted by offsets, of the stores that have begun."""
        return sum(each.end - each.next for each in self._changelogs.values() if each.begun and not each.standby)

    def left(self, task_id: TaskId) -> int:
        """The same of one task. From any thread."""
        mine = [each for each in list(self._changelogs.values()) if each.state.task_id == task_id]
        return sum(max(0, each.end - each.next) for each in mine if each.begun and not each.standby)

    @property
    def restored(self) -> int:
        """Records restored so far, those that standbys followed among them."""
        return self._restored

    def add(self, state: TaskState, standby: bool = False) -> None:
        """Restore these stores from the next step on; none goes beyond `state.limits`."""
        if not standby:
            self._waiting[state.task_id] = state
        for changelog, store in state.wanting.items():
            limit = state.limits.get(changelog, 0) if changelog in state.source_changelogs else None
            self._changelogs[changelog] = _Changelog(state, store, standby, limit)
        self._look(state)

    def drop(self, task_id: TaskId) -> None:
        """Read nothing more for this task; its stores and positions stay as they are."""
        for changelog, each in self._forget(task_id).items():
            if each.begun and not each.standby:
                self._listener.on_restore_suspended(changelog, each.store.name, each.total)
                log.info("%s is restored no further: its task goes elsewhere", _name(changelog))

    def step(self, timeout_s: float, beside: bool = False) -> list[TaskState]:
        """Restore for about so long, at least a batch if one is there. Returns the active tasks that are whole now.

        `beside` is whether other tasks of the thread run already. A transaction of theirs may be open, which ends soon
        by itself (after 10 s by default): they do not wait long for an answer that does not come.

        Raises TaskCorruptedError where a changelog lacks what is to be restored, StreamsError.
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
        self._tell_progress(now)
        self._write_checkpoints(now)
        done, self._done = self._done, []
        return done

    def lag(self, state: TaskState) -> int:
        """How many records the stores of a standby are behind, as far as this is known."""
        behind = 0
        for changelog in state.wanting:
            known = self._consumer.get_watermark_offsets(Position(*changelog), cached=True)
            high = known[1] if known is not None else -1
            behind += max(0, high - 1 - state.positions.get(changelog, -1))
        return behind

    def ends(self, changelogs: Sequence[TopicPartition], timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """The end offsets of changelogs now: of what is committed, exactly once. Raises StreamsError."""
        timeout_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        found = self._ask(changelogs, OFFSET_END, timeout_s)
        if len(found) < len(changelogs):
            missing = ", ".join(_name(each) for each in changelogs if each not in found)
            raise StreamsError(f"the ends of {missing} were not told within {timeout_s:g} s")
        return found

    def close(self) -> None:
        """Give the consumer up."""
        self._consumer.close()

    # ---- from where to where

    def _begin(self, now: float, ask_s: float) -> None:
        """Find out where changelogs begin and end that are new; those that are not told of wait for the next step."""
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
                self._look(state)
        self._give_back(corrupted)

    def _begin_one(self, changelog: TopicPartition, each: _Changelog, low: int, high: int) -> str | None:
        """Returns what is wrong with the store's position."""
        last = each.state.positions.get(changelog)
        if last is not None and not low <= last + 1 <= high:
            store = each.store.name
            return f"{store} has {_name(changelog)} up to offset {last}, the changelog has {low} to {high - 1}"
        each.begun = True
        each.next = low if last is None else last + 1
        if each.standby:
            return None
        each.end = high if each.limit is None else min(high, each.limit)
        if each.next >= each.end:
            del self._changelogs[changelog]
            return None
        self._listener.on_restore_start(changelog, each.store.name, each.next, each.end)
        log.info("restoring %s from %s, offsets %d to %d", each.store.name, _name(changelog), each.next, each.end - 1)
        return None

    def _ask(self, changelogs: Sequence[TopicPartition], where: int, timeout_s: float) -> dict[TopicPartition, int]:
        """The first or the end offsets of these, as far as they are told: one request to each broker."""
        if not changelogs:
            return {}
        found: list[Position] = []
        try:
            # As in the protocol, -1 and -2 stand for the end and the beginning where a time is expected.
            found = self._consumer.offsets_for_times(
                [Position(*changelog, where) for changelog in changelogs], timeout=timeout_s
            )
        except KafkaException as error:
            log.warning("the offsets of changelogs cannot be had: %s", error.args[0].str())
        for place in found:
            if place.error is not None:
                log.warning("the offsets of %s-%d cannot be had: %s", place.topic, place.partition, place.error.str())
        # While leaders change an answer can be missing with no error: what was asked stands there still.
        found_offsets = {
            (each.topic, each.partition): each.offset for each in found if each.error is None and each.offset >= 0
        }
        if len(found_offsets) < len(changelogs):
            # A client that has read nothing lately waits for the leader that it knows, though that one is gone.
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
            raise StreamsError(f"the offsets of {names} were not told within {self._give_up_s:g} s (task.timeout.ms)")

    def _ask_the_group(self, now: float, fresh: Sequence[TopicPartition]) -> None:
        """How far the source topics have been read that standbys follow."""
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
        """Standbys stand back while active tasks wait for their stores, and all do in a pause.

        They are given up and taken again: a partition that was paused is still so when it comes back to librdkafka.
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
                # A number even for the beginning: of a partition that it knew before, librdkafka takes an old one.
                (start if wanted else stop).append(Position(*changelog, each.next))
        if stop:
            self._consumer.incremental_unassign(stop)
        if start:
            self._consumer.incremental_assign(start)

    # ---- records

    def _take(self, messages: list[Message]) -> None:
        """Hand what came to the stores, a batch each. What has gone wrong waits until all have theirs."""
        failed: list[Message] = []
        if any(map(Message.error, messages)):
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
        records = [
            (key, message.value(), message.timestamp()[1], None)
            for message in batch
            if (key := message.key()) is not None
        ]
        if records:
            try:
                with self.guard:
                    each.store.restore(records)
            except Exception as error:
                first = batch[0].offset()
                raise StreamsError(
                    f"task {each.state.task_id}: {each.store.name} cannot be restored from {_name(changelog)}, "
                    f"offsets {first} to {last}: {error!r}"
                ) from error
        each.state.positions[changelog] = last
        each.next = last + 1
        each.total += len(records)
        self._restored += len(records)
        each.state.restored.record(0.0, len(records))
        if not each.standby:
            self._listener.on_batch_restored(changelog, each.store.name, last, len(records))
            if each.next >= each.end:
                self._finish(changelog, each)

    def _reached(self, changelog: TopicPartition, each: _Changelog, offset: int) -> None:
        """Read to the end; behind the last record there may be markers of transactions, or what was aborted."""
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
        log.info("restored %s from %s: %d records", each.store.name, _name(changelog), each.total)
        self._look(each.state)

    def _look(self, state: TaskState) -> None:
        """Whether a task is whole."""
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

    # ---- what else is told

    def _note(self, message: Message, corrupted: dict[TaskId, str]) -> None:
        """An end that was reached, or an error. Raises StreamsError for one that does not pass."""
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
            raise StreamsError(f"restoring {_name(changelog)}: {error.str()}")
        else:
            log.warning("restoring %s: %s", _name(changelog), error.str())  # the client tries again by itself

    def _give_back(self, corrupted: Mapping[TaskId, str]) -> None:
        """Raises TaskCorruptedError, if there is anything."""
        if corrupted:
            for task_id in corrupted:
                self._forget(task_id)
            raise TaskCorruptedError(set(corrupted), "; ".join(corrupted.values()))

    def _tell_progress(self, now: float) -> None:
        if now - self._notified_at < PROGRESS_S:
            return
        rate = (self._restored - self._reported_restored) / (now - self._notified_at)
        stores = sum(not each.standby for each in self._changelogs.values())
        if stores:
            log.info("restoring %d stores: %s records left, %s a second", stores, f"{self.remaining:,}", f"{rate:,.0f}")
        self._notified_at, self._reported_restored = now, self._restored

    def _write_checkpoints(self, now: float) -> None:
        """A crash in a long restoration need not have it begin anew. Raises OSError."""
        if now >= self._next_checkpoint:
            self._next_checkpoint = now + self._checkpoint_s
            with self.guard:
                for state in _states(self._changelogs.values()):
                    state.checkpoint()


def take_batch(consumer: Consumer, most: int, timeout_s: float) -> list[Message]:
    """What is at hand, or else what comes first; `consume` with a timeout would wait until the batch is full."""
    messages: list[Message] = consumer.consume(most, 0)
    if not messages and timeout_s > 0:
        first = consumer.poll(timeout_s)
        if first is not None:
            messages = [first, *consumer.consume(most - 1, 0)]
    return messages


def _states(changelogs: Iterable[_Changelog]) -> list[TaskState]:
    return list({each.state.task_id: each.state for each in changelogs}.values())


def _name(changelog: TopicPartition) -> str:
    return f"{changelog[0]}-{changelog[1]}"
