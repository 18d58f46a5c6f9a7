"""Delayed produce: a Produce request that waits for the in-sync replicas or an fsync (Kafka: DelayedProduce).

The response is sent when every partition has an outcome. `HeldProduce` is a request with batches that are not appended
yet, because they have to be converted or their transaction has to be verified first. A request with acks=0 waits only
for its conversions (`UnacknowledgedProduce`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.replication.conversions import Conversion
from odradek.broker.replication.conversions import Outcome as WriteOutcome
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.transactional_produce import HeldWrite, TransactionalWrites, Written
from odradek.broker.runtime.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

NO_ERROR = ErrorCode.NONE
NOT_YET: Final = 2**63
"""The end offset of a batch that is not appended yet: no log ever reaches it."""
PartitionResponse = m.ProduceResponse.PartitionProduceResponse
Waiting = dict[Replica, list[tuple[PartitionResponse, int]]]
"""The appended batches of a request without an outcome: by partition, the answer and the end offset of each, in the
order of their offsets.
"""
Held = list[tuple[HeldWrite | Conversion, PartitionResponse]]
"""Batches of a request that are not appended yet."""


class ProduceResponder(Protocol):
    """Completes responses: translates errors, and adds the leaders that clients have to use instead."""

    def refuse(self, answer: PartitionResponse, error: KafkaError, replica: Replica | None) -> None:
        """Set the error of a partition whose batch was refused."""
        ...

    def name_leaders(self, call: Call, response: m.ProduceResponse) -> None:
        """Add the leader of each partition that this broker does not lead (KIP-951)."""
        ...


def fill(answer: PartitionResponse, appended: Written) -> None:
    """Set the offsets of an appended batch."""
    answer.base_offset = appended.first_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = appended.start_offset


class DelayedProduce(DelayedOperation[Replica]):
    """A request whose batches are appended. At the deadline the other partitions get REQUEST_TIMED_OUT."""

    __slots__ = ("_acks", "_call", "_failed", "_responder", "_response", "_waiting")

    def __init__(
        self, call: Call, response: m.ProduceResponse, waiting: Waiting, acks: int, responder: ProduceResponder
    ) -> None:
        super().__init__()
        self._responder = responder
        self._failed = False
        self._call = call
        self._response = response
        self._waiting = waiting
        self._acks = acks
        call.operation = self

    def try_complete_all(self) -> None:
        """Only a request with several partitions needs this: a write error of one partition takes other partitions on
        the same disk offline.
        """
        topics = self._response.responses
        if len(topics) > 1 or len(topics[0].partition_responses) > 1:
            super().try_complete_all()

    def try_complete(self, replica: Replica) -> None:
        entries = self._waiting.get(replica)
        if entries is not None and self._settle(replica, entries) and not self._is_waiting_for(replica):
            self._has_outcome(replica)

    def _settle(self, replica: Replica, entries: list[tuple[PartitionResponse, int]]) -> bool:
        """Set the outcomes that batches of a partition have now; returns whether it is that of its last batch."""
        settled_entries = 0
        for answer, end_offset in entries:
            settled = replica.settled(end_offset, self._acks)
            if settled is None:
                break
            answer.error_code = settled
            self._failed = self._failed or settled is not NO_ERROR
            settled_entries += 1
        if settled_entries < len(entries):
            del entries[:settled_entries]
            return False
        del self._waiting[replica]
        return True

    def _is_waiting_for(self, replica: Replica) -> bool:
        """Whether another batch of a partition has no outcome."""
        return replica in self._waiting

    def _has_outcome(self, replica: Replica) -> None:
        """All batches of a partition have an outcome."""
        if self._waiting:
            self.unwatch(replica)
        else:
            self.force_complete()

    def on_complete(self) -> None:
        self._call.operation = None
        for entries in self._waiting.values():
            for answer, _ in entries:
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._waiting = {}
        if self._failed:
            self._responder.name_leaders(self._call, self._response)
        self._call.reply(self._response)


class HeldProduce(DelayedProduce):
    """A request with batches that are not appended yet; the caller invokes `written` for each.

    The timeout does not include conversions: with them the timer starts after the last one, as in Kafka, where a
    request is not delayed before it has been converted.
    """

    __slots__ = ("_conversions", "_held", "_purgatory", "_timeout_ms", "_transactional")

    def __init__(
        self,
        call: Call,
        response: m.ProduceResponse,
        waiting: Waiting,
        acks: int,
        responder: ProduceResponder,
        held: Held,
        transactional: TransactionalWrites,
        purgatory: DelayedOperationPurgatory,
        timeout_ms: int,
    ) -> None:
        super().__init__(call, response, waiting, acks, responder)
        self._held: dict[Replica, dict[HeldWrite | Conversion, PartitionResponse]] = {}
        self._conversions = 0
        for write, answer in held:
            self._hold(write, answer)
        self._transactional = transactional
        self._purgatory = purgatory
        self._timeout_ms = timeout_ms

    def _hold(self, write: HeldWrite | Conversion, answer: PartitionResponse) -> None:
        self._held.setdefault(write.replica, {})[write] = answer
        self._conversions += isinstance(write, Conversion)

    def postpone_timer(self) -> None:
        """If there are conversions, wait without a deadline until the last one ends."""
        if self._conversions:
            self.cancel_timer()

    def try_complete(self, replica: Replica) -> None:
        held = self._held.get(replica)
        if held is not None:
            refusal = replica.settled(NOT_YET, self._acks)
            if refusal is None:  # its batches may still be appended
                entries = self._waiting.get(replica)
                if entries is not None:
                    self._settle(replica, entries)
                return
            for write, answer in held.items():
                answer.error_code = refusal
                write.abandon()
            self._conversions -= sum(isinstance(write, Conversion) for write in held)
            del self._held[replica]
            self._failed = True
            if replica not in self._waiting:
                self._has_outcome(replica)
                return
        super().try_complete(replica)

    def written(self, write: HeldWrite | Conversion, outcome: WriteOutcome) -> None:
        """Handle a batch that is now appended or refused, or that waits for its transaction."""
        replica = write.replica
        of_replica = self._held[replica]
        answer = of_replica.pop(write)
        self._conversions -= isinstance(write, Conversion)
        if isinstance(outcome, HeldWrite):
            self._hold(outcome, answer)
        elif not of_replica:
            del self._held[replica]
        if not self.has_timer and not self._conversions:
            self._purgatory.start_timer(self, self._timeout_ms)
        if isinstance(outcome, HeldWrite):
            self._transactional.hold([outcome], self.written)
        elif isinstance(outcome, KafkaError):
            self._responder.refuse(answer, outcome, replica)
            self._failed = True
            if not self._is_waiting_for(replica):
                self._has_outcome(replica)
        else:
            fill(answer, outcome)
            self._waiting.setdefault(replica, []).append((answer, outcome.last_offset + 1))
            self.try_complete(replica)
        if self._call.closed:
            self.client_left()

    def client_left(self) -> None:
        """Batches that are not appended yet are still appended, as they would be without a conversion."""
        if not self._held:
            self.cancel()

    def _is_waiting_for(self, replica: Replica) -> bool:
        return replica in self._waiting or replica in self._held

    def _has_outcome(self, replica: Replica) -> None:
        if self._held:
            self.unwatch(replica)
        else:
            super()._has_outcome(replica)

    def on_complete(self) -> None:
        for held in self._held.values():
            for write, answer in held.items():
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT
                write.abandon()
        self._held = {}
        super().on_complete()


class UnacknowledgedProduce:
    """A request with acks=0 whose batches have to be converted. It has no response, so the broker closes the connection
    if a batch is refused.
    """

    __slots__ = ("_call", "_left")

    def __init__(self, call: Call, batches: int) -> None:
        self._call = call
        self._left = batches

    def written(self, write: Conversion, outcome: WriteOutcome) -> None:
        """Handle a batch that is now appended or refused."""
        self._left -= 1
        if isinstance(outcome, KafkaError) and outcome.code:
            refuse_unacknowledged(self._call)
        elif not self._left:
            self._call.complete()


def refuse_unacknowledged(call: Call) -> None:
    """A write with acks=0 was refused: close the connection, the only way to notify the client."""
    call.connection.refuse("acks=0", "a write with acks=0 was refused")
