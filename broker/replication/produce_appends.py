"""Produce appends: append the batches of Produce requests, and wait for the outcomes (Kafka:
ReplicaManager.handleProduceAppend).

A batch is appended at once, unless it has to be converted first (`conversions`), or it begins a transaction that the
coordinator has to verify first (`transactional_produce`). Such a batch is held: a copy of it is appended later. The
response waits for held batches, and with acks=all for the in-sync replicas (`delayed_produce`).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.replication.conversions import Conversion, Conversions, Records
from odradek.broker.replication.delayed_produce import (
    DelayedProduce,
    Held,
    HeldProduce,
    ProduceResponder,
    UnacknowledgedProduce,
    Waiting,
)
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.transactional_produce import HeldWrite, Sender, TransactionalWrites, Written
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.timers import Clock
from odradek.protocol import messages as m

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


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
    ) -> Written | HeldWrite | Conversion:
        """Append a batch, or return a copy of it that is appended after a call of `wait`.

        The caller can use `Replica.produce` for a batch without transactional id that is small or `is_cheap`, while
        `conversions.waiting` is empty. Raises KafkaError as `Replica.produce`.
        """
        if records is not None and self.conversions.must_wait(connection, replica, records, sender.version):
            return Conversion(replica, bytearray(records), sender.version, partial(self._converted, replica, sender))
        return self._transactional.write(sender, replica, records, now_ms)

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
        """Send the response when every partition in `waiting` has an outcome, or after the timeout of the request.

        `waiting` includes the partitions of the batches in `held`.
        """
        timeout_ms, acks = max(0, request.timeout_ms), request.acks
        replicas = [replica for _, replica, _ in waiting]
        if not held:
            appended = DelayedProduce(call, response, waiting, acks, responder)
            self._purgatory.try_complete_else_watch(appended, replicas, timeout_ms)
            return
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
