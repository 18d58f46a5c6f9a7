"""Delayed produce: appends of one request that wait for the in-sync replicas or an fsync (Kafka: DelayedProduce).

`DelayedProduce` is a client's Produce request; its response is sent when every partition has an outcome.
`DelayedAppend` is a request of which each append receives its own outcome as soon as it is final: transaction markers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.replication.conversions import Conversion
from odradek.broker.replication.conversions import Outcome as WriteOutcome
from odradek.broker.replication.partition import ACKS_ALL, Replica
from odradek.broker.replication.transactional_produce import HeldWrite, TransactionalWrites, Written
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

NO_ERROR = ErrorCode.NONE
NOT_YET: Final = 2**63
"""The end offset of a batch that is not appended yet: no log ever reaches it."""
PartitionResponse = m.ProduceResponse.PartitionProduceResponse
Held = list[tuple[HeldWrite | Conversion, PartitionResponse]]
"""Batches of a request that are not written yet."""
Outcome = Callable[[ErrorCode], None]
Refuse = Callable[[PartitionResponse, KafkaError, Replica | None], None]
NameLeaders = Callable[["Call", m.ProduceResponse], None]


class DelayedAppend:
    """The appends of one request without an outcome. Call `add` for every append, then `start`."""

    __slots__ = ("_done", "_timer", "_waiting")

    def __init__(self, done: Callable[[], None]) -> None:
        """`done` is called once, when every append has an outcome; perhaps during `start`."""
        self._done = done
        self._timer: Timer | None = None
        self._waiting: list[tuple[Replica, int, Outcome]] = []

    def add(self, replica: Replica, end_offset: int, outcome: Outcome) -> None:
        """Add an append that ends at `end_offset`; `outcome` receives NONE or an error, perhaps before this returns."""
        settled = replica.settled(end_offset, ACKS_ALL)
        if settled is None:
            self._waiting.append((replica, end_offset, outcome))
        else:
            outcome(settled)

    def start(self, clock: Clock, timers: Timers, timeout_ms: int) -> None:
        """Wait for the appends without an outcome; after the timeout the remaining ones receive REQUEST_TIMED_OUT."""
        if not self._waiting:
            self._done()
            return
        self._timer = timers.at(clock.monotonic_ms() + timeout_ms, self._time_out)
        replicas = dict.fromkeys(replica for replica, _, _ in self._waiting)
        for replica in replicas:
            replica.watch(self)
        for replica in replicas:
            # A later append of the same request may have decided this one, for example because the disk failed.
            self.wake(replica)

    def wake(self, replica: Replica) -> None:
        """The replica's end offset, high watermark or role has changed."""
        if not self._waiting:
            return
        left, received = [], []
        for entry in self._waiting:
            waited, end_offset, outcome = entry
            settled = waited.settled(end_offset, ACKS_ALL) if waited is replica else None
            if settled is None:
                left.append(entry)
            else:
                received.append((outcome, settled))
        self._waiting = left
        if all(waited is not replica for waited, _, _ in left):
            replica.unwatch(self)
        for outcome, settled in received:
            outcome(settled)
        if received and not left:
            if self._timer is not None:
                self._timer.cancel()
            self._done()

    def _time_out(self) -> None:
        waiting, self._waiting = self._waiting, []
        for replica, _, outcome in waiting:
            replica.unwatch(self)
            outcome(ErrorCode.REQUEST_TIMED_OUT)
        self._done()


def fill(answer: PartitionResponse, appended: Written) -> None:
    """Set the offsets of an appended batch."""
    answer.base_offset = appended.first_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = appended.start_offset


class DelayedProduce:
    """A write that waits for its followers or its fsync, or to be written (Kafka: DelayedProduce)."""

    __slots__ = (
        "_acks",
        "_call",
        "_failed",
        "_held",
        "_name_leaders",
        "_refuse",
        "_response",
        "_set_timer",
        "_timer",
        "_transactional",
        "_waiting",
    )

    def __init__(
        self,
        call: Call,
        response: m.ProduceResponse,
        waiting: list[tuple[PartitionResponse, Replica, int]],
        acks: int,
        name_leaders: NameLeaders,
    ) -> None:
        self._name_leaders = name_leaders
        self._failed = False
        self._call = call
        self._response = response
        self._waiting = waiting
        self._acks = acks
        self._held: Held = []
        self._refuse: Refuse | None = None
        self._transactional: TransactionalWrites | None = None
        self._timer: Timer | None = None

    def start(self, set_timer: Callable[[Callable[[], None]], Timer]) -> None:
        """Start the timer; at the deadline, unsettled partitions get REQUEST_TIMED_OUT.

        The timeout does not include conversions: with them the timer starts after the last one, as in Kafka, where a
        request is not delayed before it has been converted.
        """
        self._set_timer = set_timer
        for _, replica, _ in self._waiting:
            replica.watch(self)
        self._timer = set_timer(self._time_out)

    def check(self) -> None:
        """Answer for the partitions that were settled before this object was registered with them.

        Only a request with several partitions needs it: a write error of one partition takes other partitions on the
        same disk offline.
        """
        settled = [replica for _, replica, end in self._waiting if replica.settled(end, self._acks) is not None]
        for replica in settled:
            self.wake(replica)

    def hold(self, held: Held, refuse: Refuse, transactional: TransactionalWrites) -> None:
        """Register batches that are not written yet; the caller invokes `written` for each."""
        self._held = held
        self._refuse = refuse
        self._transactional = transactional
        if self._converts and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _converts(self) -> bool:
        return any(isinstance(write, Conversion) for write, _ in self._held)

    def written(self, write: HeldWrite | Conversion, outcome: WriteOutcome) -> None:
        """Handle a held batch that is now appended or refused, or that waits for its transaction."""
        answer = next(answer for each, answer in self._held if each is write)
        self._held = [entry for entry in self._held if entry[0] is not write]
        replica = write.replica
        if isinstance(outcome, HeldWrite):
            self._held.append((outcome, answer))
        if self._timer is None and not self._converts:
            self._timer = self._set_timer(self._time_out)
        if isinstance(outcome, HeldWrite):
            if self._transactional is not None:
                self._transactional.hold([outcome], self.written)
            return
        if isinstance(outcome, KafkaError):
            if self._refuse is not None:
                self._refuse(answer, outcome, replica)
                self._failed = True
            self._keep([entry for entry in self._waiting if entry[0] is not answer], replica)
            return
        fill(answer, outcome)
        end_offset = outcome.last_offset + 1
        self._waiting = [(each, at, end_offset if each is answer else end) for each, at, end in self._waiting]
        self.wake(replica)

    def wake(self, replica: Replica) -> None:
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

    def _keep(self, left: list[tuple[PartitionResponse, Replica, int]], replica: Replica) -> None:
        """Keep only these unanswered partitions; one of `replica` was answered."""
        self._waiting = left
        if self._held:
            self._abandon()
        if all(waited is not replica for _, waited, _ in left):
            replica.unwatch(self)
        if not left:
            if self._timer is not None:
                self._timer.cancel()
            self._reply()

    def _reply(self) -> None:
        if self._failed:
            self._name_leaders(self._call, self._response)
        self._call.reply(self._response)

    def _abandon(self) -> None:
        """Cancel the writes of batches that have been answered."""
        for write, answer in self._held:
            if all(each is not answer for each, _, _ in self._waiting):
                write.abandon()

    def _time_out(self) -> None:
        for answer, replica, _ in self._waiting:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            replica.unwatch(self)
        self._waiting = []
        self._abandon()
        self._reply()
