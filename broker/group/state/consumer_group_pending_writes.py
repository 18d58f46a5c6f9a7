"""Pending writes of a consumer-protocol group: writes, applies and answers its decisions, in this order.

A record is applied to the members at once, by the code that also replays it, so that the next request sees it. Every
answer waits until all earlier records are durable, including those of other requests. When the log refuses an append,
the members return to their state before it (`pending_writes`), and the waiting requests are answered with the error.
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
"""Bytes of keys and values in one batch; below the default limit of a log. Larger writes are split into several
batches, in the order of the decisions: after a crash in between, a load finds the group as of one of them."""

Refused = Callable[[ErrorCode], Any]
"""Makes the answer of a request whose records could not be written."""
Undo = Callable[[], None]


class AppendToken:
    """Token of an append: the requests that wait for it, and whether its outcome is final."""

    __slots__ = ("is_final", "waiting")

    def __init__(self) -> None:
        self.is_final = False
        self.waiting: list[tuple[Any, Any, Refused]] = []


class ConsumerGroupWrites:
    """The members of a group, and the effects of changes to them."""

    __slots__ = ("_answers", "_batch", "_in_flight", "_undo", "effects", "group_id", "group_members")

    def __init__(self, group_id: str, group_members: ConsumerGroupMembers | None = None) -> None:
        self.group_id = group_id
        self.group_members = group_members or ConsumerGroupMembers()
        self.effects = Effects()
        # the records of the present event: each with the functions that undo it
        self._batch: list[tuple[KeyValue, tuple[Undo, ...]]] = []
        self._undo: list[Undo] = []
        self._answers: list[tuple[Any, Any, Refused]] = []
        self._in_flight: list[AppendToken] = []

    def write(self, *written: GroupRecord) -> None:
        """Apply records now, and append them when the event ends."""
        for record in written:
            self._undo.append(records.undo_of(self.group_members, record))
            records.replay(self.group_members, record)
            self.write_beside(record.encode())

    def write_beside(self, record: KeyValue) -> None:
        """Append also a record of another kind of group."""
        self._batch.append((record, tuple(self._undo)))
        self._undo.clear()

    def changes(self, undo: Undo) -> None:
        """Add one more change to the next record, beside those of the members."""
        self._undo.append(undo)

    def discard(self) -> bool:
        """Undo the changes of the present event, whose request is refused. Returns whether there were any."""
        if not self._batch and not self._undo:
            return False
        for _, undo in [*self._batch, (None, tuple(self._undo))][::-1]:
            for each in reversed(undo):
                each()
        self._batch.clear()
        self._undo.clear()
        return True

    def answer(self, token: Any, result: Any, refused: Refused) -> None:
        """Answer a request as soon as all records up to now are durable."""
        self._answers.append((token, result, refused))

    def drain(self) -> list[Effect]:
        """Return the effects of an event that has ended."""
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

    def _unsettled(self) -> list[AppendToken]:
        self._in_flight = [written for written in self._in_flight if not written.is_final]
        return self._in_flight

    def close(self, error: ErrorCode) -> None:
        """Answer every waiting request with the error and cancel all timers, as coordination ends."""
        for written in self._in_flight:
            for token, _, refused in written.waiting:
                self.effects.reply(token, refused(error))
            written.waiting = []
        for name in list(self.effects.armed):
            self.effects.disarm(name)

    def _append(self, piece: list[tuple[KeyValue, tuple[Undo, ...]]]) -> AppendToken:
        token = AppendToken()
        self._in_flight = [*self._unsettled(), token]
        undo = tuple(each for _, changes in piece for each in changes)
        self.effects.append([record for record, _ in piece], token, undo)
        return token


def settle(token: AppendToken, error: ErrorCode) -> list[Reply]:
    """The answers of all requests that wait for an append with this outcome."""
    token.is_final = error is not ErrorCode.REQUEST_TIMED_OUT
    error = LOG_ERRORS.get(error, error)
    waiting, token.waiting = token.waiting, []
    return [Reply(token, refused(error) if error else result) for token, result, refused in waiting]


def fits(record: KeyValue) -> bool:
    """Whether a log accepts a record of this size."""
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
