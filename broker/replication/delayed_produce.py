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
Waiting = list[tuple[PartitionResponse, Replica, int]]
"""The partitions of a request without an outcome, and the end offset of the batch of each."""
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
        left = []
        for entry in self._waiting:
            answer, waited, end_offset = entry
            settled = waited.settled(end_offset, self._acks) if waited is replica else None
            if settled is None:
                left.append(entry)
            else:
                answer.error_code = settled
                self._failed = self._failed or settled is not NO_ERROR
        if len(left) < len(self._waiting):
            self._keep(left, replica)

    def _keep(self, left: Waiting, replica: Replica) -> None:
        """Keep only these partitions; one of `replica` has an outcome."""
        self._waiting = left
        if not left:
            self.force_complete()
        elif all(waited is not replica for _, waited, _ in left):
            self.unwatch(replica)

    def on_complete(self) -> None:
        self._call.operation = None
        for answer, _, _ in self._waiting:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._waiting = []
        if self._failed:
            self._responder.name_leaders(self._call, self._response)
        self._call.reply(self._response)


class HeldProduce(DelayedProduce):
    """A request with batches that are not appended yet; the caller invokes `written` for each.

    The timeout does not include conversions: with them the timer starts after the last one, as in Kafka, where a
    request is not delayed before it has been converted.
    """

    __slots__ = ("_held", "_purgatory", "_timeout_ms", "_transactional")

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
        self._held = held
        self._transactional = transactional
        self._purgatory = purgatory
        self._timeout_ms = timeout_ms

    def postpone_timer(self) -> None:
        """If there are conversions, wait without a deadline until the last one ends."""
        if self._converts:
            self.cancel_timer()

    @property
    def _converts(self) -> bool:
        return any(isinstance(write, Conversion) for write, _ in self._held)

    def written(self, write: HeldWrite | Conversion, outcome: WriteOutcome) -> None:
        """Handle a batch that is now appended or refused, or that waits for its transaction."""
        answer = next(answer for each, answer in self._held if each is write)
        self._held = [entry for entry in self._held if entry[0] is not write]
        if isinstance(outcome, HeldWrite):
            self._held.append((outcome, answer))
        if not self.has_timer and not self._converts:
            self._purgatory.start_timer(self, self._timeout_ms)
        if isinstance(outcome, HeldWrite):
            self._transactional.hold([outcome], self.written)
        elif isinstance(outcome, KafkaError):
            self._responder.refuse(answer, outcome, write.replica)
            self._failed = True
            self._keep([entry for entry in self._waiting if entry[0] is not answer], write.replica)
        else:
            fill(answer, outcome)
            end_offset = outcome.last_offset + 1
            self._waiting = [(each, at, end_offset if each is answer else end) for each, at, end in self._waiting]
            self.try_complete(write.replica)
        if self._call.closed:
            self.client_left()

    def client_left(self) -> None:
        """Batches that are not appended yet are still appended, as they would be without a conversion."""
        if not self._held:
            self.cancel()

    def _keep(self, left: Waiting, replica: Replica) -> None:
        for write, answer in self._held:
            if all(each is not answer for each, _, _ in left):
                write.abandon()
        super()._keep(left, replica)

    def on_complete(self) -> None:
        for write, _ in self._held:
            write.abandon()
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
