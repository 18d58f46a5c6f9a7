"""What a consumer-protocol group decides is written, applied and answered, in this order, by its ledger.

A record is applied to the roster as soon as it is decided, by the same code that reads it back, so that the next
request decides on top of it. Every answer waits until all that was decided before it is durable, whoever decided it.

When the log refuses an append, nobody knows whether the records are in it: a timeout says no more than that they are
not on every replica yet. So the roster stays as it is, those who waited hear of the failure, and what was refused is
written again, as it then stands, with whatever is written next; nothing is answered well before that has succeeded.
Kafka's coordinator rolls back where its own log took nothing, and keeps the state where an answer is late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from odradek.broker.machines import consumer_group_records as records
from odradek.broker.machines.consumer_group_records import GroupRecord
from odradek.broker.machines.consumer_group_requests import LOG_ERRORS
from odradek.broker.machines.consumer_group_roster import Roster
from odradek.broker.machines.effects import Effect, Gathering, KeyValue, Reply
from odradek.protocol.errors import ErrorCode

LARGEST_APPEND: Final = 900_000
"""Bytes of keys and values in one batch; below what a log takes by default. What is larger goes in several batches, in
the order in which it was decided, which is the order in which a group may be found after a crash in between."""

Refused = Callable[[ErrorCode], Any]
"""Makes the answer of a request of which the records could not be written."""


class Written:
    """Token of an append: the records in it, and who waits for it."""

    __slots__ = ("keys", "waiting")

    def __init__(self, keys: dict[bytes, GroupRecord | None]) -> None:
        self.keys = keys
        self.waiting: list[tuple[Any, Any, Refused]] = []


class Ledger:
    """The roster of a group, and the effects of what becomes of it."""

    __slots__ = ("_answers", "_batch", "_in_flight", "_lost", "effects", "group_id", "roster")

    def __init__(self, group_id: str, roster: Roster | None = None) -> None:
        self.group_id = group_id
        self.roster = roster or Roster()
        self.effects = Gathering()
        # encoded key -> the record, None for one that is not of this kind of group: what this event has written
        self._batch: dict[bytes, tuple[GroupRecord | None, bytes | None]] = {}
        self._answers: list[tuple[Any, Any, Refused]] = []
        self._in_flight: list[Written] = []
        # the same for what the log refused and nobody has written since
        self._lost: dict[bytes, GroupRecord | None] = {}

    @property
    def owes(self) -> bool:
        """Whether the log has refused something that was not written again yet, so that it may lack it."""
        return bool(self._lost)

    @property
    def doubtful(self) -> list[bytes]:
        """The keys of this kind of group under which nobody knows yet what the log has."""
        unsettled = [*(each.keys for each in self._in_flight), self._lost]
        return [key for keys in unsettled for key, record in keys.items() if record is not None]

    def write(self, *written: GroupRecord) -> None:
        """Decide on records: they hold from now on, and are appended when the event ends."""
        for record in written:
            records.replay(self.roster, record)
            key, value = record.encode()
            self._batch.pop(key, None)
            self._batch[key] = (record, value)

    def write_beside(self, record: KeyValue) -> None:
        """Append a tombstone of another kind of group as well."""
        key, value = record
        self._batch[key] = (None, value)

    def answer(self, token: Any, result: Any, refused: Refused) -> None:
        """Answer a request as soon as everything that was decided up to now is durable."""
        self._answers.append((token, result, refused))

    def drain(self) -> list[Effect]:
        """The effects of an event that has ended."""
        if self._batch or (self._answers and self._lost):
            self._append()
        elif self._in_flight:
            self._in_flight[-1].waiting += self._answers
        else:
            for token, result, _ in self._answers:
                self.effects.reply(token, result)
        self._answers = []
        return self.effects.drain()

    def stored(self, token: Written, error: ErrorCode) -> None:
        """The outcome of an append."""
        if token in self._in_flight:  # else it is of a group that was turned into another kind, and back
            self._in_flight.remove(token)
            if error:
                newer = {key for each in self._in_flight for key in each.keys}
                self._lost.update((key, record) for key, record in token.keys.items() if key not in newer)
        for reply in settle(token, error):
            self.effects.reply(reply.token, reply.answer)

    def close(self, error: ErrorCode) -> None:
        """Nobody coordinates the group here any more: whoever waits hears so, and no timer stays."""
        for written in self._in_flight:
            for token, _, refused in written.waiting:
                self.effects.reply(token, refused(error))
            written.waiting = []
        for name in list(self.effects.armed):
            self.effects.disarm(name)

    def _append(self) -> None:
        batch: list[KeyValue] = []
        keys: dict[bytes, GroupRecord | None] = {}
        for key, lost in self._lost.items():
            if key not in self._batch:
                keys[key] = lost
                batch.append((key, None) if lost is None else records.as_it_stands(self.roster, lost).encode())
        self._lost = {}
        for key, (record, value) in self._batch.items():
            keys[key] = record
            batch.append((key, value))
        self._batch = {}
        *first, last = _in_pieces(batch)
        for piece in first:
            self._append_piece(piece, keys)
        self._append_piece(last, keys).waiting = self._answers

    def _append_piece(self, piece: list[KeyValue], keys: dict[bytes, GroupRecord | None]) -> Written:
        token = Written({key: keys[key] for key, _ in piece})
        self._in_flight.append(token)
        self.effects.append(piece, token)
        return token


def settle(token: Written, error: ErrorCode) -> list[Reply]:
    """The answers of everyone who waited for an append."""
    error = LOG_ERRORS.get(error, error)
    return [Reply(waiting, refused(error) if error else result) for waiting, result, refused in token.waiting]


def fits(record: KeyValue) -> bool:
    """Whether a log takes a record of this size."""
    key, value = record
    return len(key) + len(value or b"") <= LARGEST_APPEND


def _in_pieces(batch: list[KeyValue]) -> list[list[KeyValue]]:
    pieces: list[list[KeyValue]] = [[]]
    size = 0
    for key, value in batch:
        length = len(key) + len(value or b"")
        if pieces[-1] and size + length > LARGEST_APPEND:
            pieces.append([])
            size = 0
        pieces[-1].append((key, value))
        size += length
    return pieces
