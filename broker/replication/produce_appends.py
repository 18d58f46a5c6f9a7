"""Produce appends: append the batches of Produce requests, and wait for the outcomes (Kafka:
ReplicaManager.handleProduceAppend).

A batch is appended at once, unless it has to be converted first (`conversions`), or it begins a transaction that the
coordinator has to verify first (`transactional_produce`). Such a batch is held: a copy of it is appended later. The
response waits for held batches, and with acks=all for the in-sync replicas (`delayed_produce`).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from mmap import mmap
from typing import TYPE_CHECKING, Final

from odradek.broker.replication.conversions import Conversion, Conversions, Records
from odradek.broker.replication.delayed_produce import (
    DelayedProduce,
    Held,
    HeldProduce,
    ProduceResponder,
    UnacknowledgedProduce,
    Waiting,
)
from odradek.broker.replication.partition import Replica, SegmentFull
from odradek.broker.replication.transactional_produce import HeldWrite, Sender, TransactionalWrites, Written
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.timers import Clock
from odradek.protocol import messages as m
from odradek.protocol.batch import MAX_DECOMPRESSED, Buffer
from odradek.protocol.compression import DecompressedTooLarge
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.staged import STAGED_BYTES
from odradek.storage.validation import LONG_MICROSECONDS, decompressed_size, microseconds

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

DECOMPRESSED_BYTES: Final = 4 * MAX_DECOMPRESSED
"""The limit for what all large compressed batches of one request decompress to; small ones do not count."""
DECOMPRESSED_RATIO: Final = 32
"""A request may decompress to that many times its own size, if that is more."""
REQUEST_MICROSECONDS: Final = 4 * LONG_MICROSECONDS
"""The limit for all batches of one request that are decompressed or converted on the event loop."""


class Spent:
    """The limits of the batches of one request, all together: how long they take on the event loop, and how many bytes
    they decompress to.
    """

    __slots__ = ("_compressed", "_decompressed", "_microseconds")

    def __init__(self) -> None:
        self._microseconds = self._compressed = self._decompressed = 0

    def decompress(self, compressed: int, decompressed: int) -> None:
        """Count a batch that decompresses to no more than this. Raises KafkaError MESSAGE_TOO_LARGE."""
        self._compressed += compressed
        self._decompressed += decompressed
        limit = max(DECOMPRESSED_BYTES, DECOMPRESSED_RATIO * self._compressed)
        if self._decompressed > limit:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batches of the request may decompress to {self._decompressed} bytes, at most {limit} are allowed",
            )

    def exceeded_by(self, microseconds: int) -> bool:
        """Whether another batch takes too long, alone or with the earlier ones; if not, it is counted."""
        if microseconds > LONG_MICROSECONDS or self._microseconds + microseconds > REQUEST_MICROSECONDS:
            return True
        self._microseconds += microseconds
        return False


class ProduceAppends:
    """Appends batches to the partitions that this broker leads."""

    def __init__(
        self,
        transactional: TransactionalWrites,
        conversions: Conversions,
        purgatory: DelayedOperationPurgatory,
        clock: Clock,
    ) -> None:
        self.conversions = conversions
        self._transactional = transactional
        self._purgatory = purgatory
        self._clock = clock

    def append(
        self,
        connection: Hashable,
        replica: Replica,
        records: memoryview | None,
        sender: Sender,
        now_ms: int,
        spent: Spent,
    ) -> Written | HeldWrite | Conversion:
        """Append a batch, or return it as one that is appended after a call of `wait`.

        `spent` is that of the request. The caller can use `Replica.produce` for a batch without transactional id that
        `is_cheap`, while `conversions.waiting` is empty. Raises KafkaError as `Replica.produce`.
        """
        if records is None:
            return self._transactional.write(sender, replica, records, now_ms)
        work = microseconds(records, replica.log.config, sender.version)
        in_thread, rolls = spent.exceeded_by(work), False
        if not in_thread and not self.conversions.is_behind_another(connection, replica):
            try:
                return self._transactional.write(sender, replica, records, now_ms, may_roll=False)
            except DecompressedTooLarge:
                in_thread = True
            except SegmentFull:
                rolls = True
        append = partial(self._converted, replica, sender)
        conversion = Conversion(
            replica, _kept(records), sender.version, append, spent.decompress, microseconds=work, in_thread=in_thread
        )
        conversion.rolls = rolls
        if conversion.is_slow:
            spent.decompress(len(records), decompressed_size(records, sender.version, MAX_DECOMPRESSED))
        return conversion

    def _converted(self, replica: Replica, sender: Sender, records: Records) -> Written | HeldWrite:
        return self._transactional.write(sender, replica, records, self._clock.now_ms())

    def wait(
        self,
        call: Call,
        request: m.ProduceRequest,
        response: m.ProduceResponse,
        waiting: Waiting,
        held: Held,
        responder: ProduceResponder,
    ) -> None:
        """Send the response when every batch in `waiting` and `held` has an outcome, or after the timeout of the
        request.
        """
        timeout_ms, acks = max(0, request.timeout_ms), request.acks
        if not held:
            appended = DelayedProduce(call, response, waiting, acks, responder)
            self._purgatory.try_complete_else_watch(appended, tuple(waiting), timeout_ms)
            return
        replicas = tuple(dict.fromkeys((*waiting, *(write.replica for write, _ in held))))
        operation = HeldProduce(
            call, response, waiting, acks, responder, held, self._transactional, self._purgatory, timeout_ms
        )
        self._purgatory.try_complete_else_watch(operation, replicas, timeout_ms)
        if operation.is_completed:
            return
        operation.postpone_timer()
        unverified = [write for write, _ in held if isinstance(write, HeldWrite)]
        if unverified:
            self._transactional.hold(unverified, operation.written)
        for write, _ in held:
            if isinstance(write, Conversion):
                self.conversions.add(call.connection, write, operation.written)

    def append_unacknowledged(self, call: Call, held: Held) -> None:
        """Append the held batches of a request with acks=0."""
        operation = UnacknowledgedProduce(call, len(held))
        for write, _ in held:
            if isinstance(write, Conversion):  # a batch that waits for its verification is refused with acks=0
                self.conversions.add(call.connection, write, operation.written)


def _kept(records: memoryview) -> Buffer:
    """The records for later: a copy, but of a large batch the memory of the request itself (`NetworkReceive`), which is
    counted as held until the response. A copy of 100 MB would hold the event loop for 80 milliseconds.
    """
    return records if len(records) > STAGED_BYTES and isinstance(records.obj, mmap) else bytearray(records)
