"""What a consumer-protocol group decides is written, applied and answered, in this order, by its ledger.

A record is applied to the roster as soon as it is decided, by the same code that reads it back, so that the next
request decides on top of it. Every answer waits until all that was decided before it is durable, whoever decided it.
When the log refuses an append, the roster goes back to what it was before (`pending_writes`), and those who waited
receive the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from odradek.broker.group.state import consumer_group_records as records
from odradek.broker.group.state.consumer_group_members import ConsumerGroupMembers
from odradek.broker.group.state.consumer_group_records import GroupRecord
from odradek.broker.group.state.consumer_group_requests import LOG_ERRORS
from odradek.broker.runtime.state.effects import Effect, Effects, KeyValue, Reply
from odradek.protocol.errors import ErrorCode

LARGEST_APPEND: Final = 900_000
"""Bytes of keys and values in one batch; below what a log takes by default. What is larger goes in several batches, in
the order in which it was decided, which is the order in which a group may be found after a crash in between."""

Refused = Callable[[ErrorCode], Any]
"""Makes the answer of a request of which the records could not be written."""
Undo = Callable[[], None]


class Written:
    """Token of an append: who waits for it, and whether its outcome is final."""

    __slots__ = ("is_final", "waiting")

    def __init__(self) -> None:
        self.is_final = False
        self.waiting: list[tuple[Any, Any, Refused]] = []


class ConsumerGroupWrites:
    """The roster of a group, and the effects of what becomes of it."""

    __slots__ = ("_answers", "_batch", "_in_flight", "_undo", "effects", "group_id", "group_members")

    def __init__(self, group_id: str, group_members: ConsumerGroupMembers | None = None) -> None:
        self.group_id = group_id
        self.group_members = group_members or ConsumerGroupMembers()
        self.effects = Effects()
        # what this event has decided: each record with what undoes it
        self._batch: list[tuple[KeyValue, tuple[Undo, ...]]] = []
        self._undo: list[Undo] = []
        self._answers: list[tuple[Any, Any, Refused]] = []
        self._in_flight: list[Written] = []

    def write(self, *written: GroupRecord) -> None:
        """Decide on records: they hold from now on, and are appended when the event ends."""
        for record in written:
            self._undo.append(records.undo_of(self.group_members, record))
            records.replay(self.group_members, record)
            self.write_beside(record.encode())

    def write_beside(self, record: KeyValue) -> None:
        """Append a record of another kind of group as well."""
        self._batch.append((record, tuple(self._undo)))
        self._undo.clear()

    def changes(self, undo: Undo) -> None:
        """The next record stands for one more change, beside those of the roster."""
        self._undo.append(undo)

    def discard(self) -> bool:
        """Undo what this event has decided: its request is refused. Returns whether it had decided anything."""
        if not self._batch and not self._undo:
            return False
        for _, undo in [*self._batch, (None, tuple(self._undo))][::-1]:
            for each in reversed(undo):
                each()
        self._batch.clear()
        self._undo.clear()
        return True

    def answer(self, token: Any, result: Any, refused: Refused) -> None:
        """Answer a request as soon as everything that was decided up to now is durable."""
        self._answers.append((token, result, refused))

    def drain(self) -> list[Effect]:
        """The effects of an event that has ended."""
        if self._batch:
            record, undo = self._batch[-1]
            self._batch[-1] = (record, (*undo, *self._undo))
            *first, last = _in_pieces(self._batch)
            for piece in first:
                self._append(piece)
            self._append(last).waiting = self._answers
            self._batch = []
        elif self._unsettled():
            self._in_flight[-1].waiting += self._answers
        else:
            for token, result, _ in self._answers:
                self.effects.reply(token, result)
        self._answers = []
        self._undo.clear()
        return self.effects.drain()

    def _unsettled(self) -> list[Written]:
        self._in_flight = [written for written in self._in_flight if not written.is_final]
        return self._in_flight

    def close(self, error: ErrorCode) -> None:
        """Nobody coordinates the group here any more: whoever waits hears so, and no timer stays."""
        for written in self._in_flight:
            for token, _, refused in written.waiting:
                self.effects.reply(token, refused(error))
            written.waiting = []
        for name in list(self.effects.armed):
            self.effects.disarm(name)

    def _append(self, piece: list[tuple[KeyValue, tuple[Undo, ...]]]) -> Written:
        token = Written()
        self._in_flight = [*self._unsettled(), token]
        undo = tuple(each for _, changes in piece for each in changes)
        self.effects.append([record for record, _ in piece], token, undo)
        return token


def settle(token: Written, error: ErrorCode) -> list[Reply]:
    """The answers of everyone who waits for an append, which has this outcome now."""
    token.is_final = error is not ErrorCode.REQUEST_TIMED_OUT
    error = LOG_ERRORS.get(error, error)
    waiting, token.waiting = token.waiting, []
    return [Reply(token, refused(error) if error else result) for token, result, refused in waiting]


def fits(record: KeyValue) -> bool:
    """Whether a log takes a record of this size."""
    key, value = record
    return len(key) + len(value or b"") <= LARGEST_APPEND


def _in_pieces(batch: list[tuple[KeyValue, tuple[Undo, ...]]]) -> list[list[tuple[KeyValue, tuple[Undo, ...]]]]:
    pieces: list[list[tuple[KeyValue, tuple[Undo, ...]]]] = [[]]
    size = 0
    for entry in batch:
        key, value = entry[0]
        length = len(key) + len(value or b"")
        if pieces[-1] and size + length > LARGEST_APPEND:
            pieces.append([])
            size = 0
        pieces[-1].append(entry)
        size += length
    return pieces
