"""Three replicas of one partition without a byte: the partition machines over lists, a controller that is a tuple, and
a network that loses, delays and repeats.

The model takes any event at any time and checks the invariants of replication after each. `test_replication.py` lets
hypothesis choose the events; the scenarios there spell some out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.broker.replication.state.follower import truncation_offset
from odradek.broker.replication.state.partition import LeaderAndIsr, PartitionMachine, PendingIsr, Role
from odradek.protocol.errors import ErrorCode, KafkaError

BROKERS = (0, 1, 2)
MAX_LAG_MS = 10
MIN_ISR = 2


class Entry(NamedTuple):
    """A record: the leader epoch that wrote it, and its value."""

    epoch: int
    value: int


class Epochs:
    """The leader epochs of a list of entries, as LeaderEpochs has them for a log; begun epochs included."""

    def __init__(self) -> None:
        self.starts: list[tuple[int, int]] = []

    @property
    def latest(self) -> int:
        return self.starts[-1][0] if self.starts else -1

    def begin(self, epoch: int, offset: int) -> None:
        if epoch > self.latest:
            while self.starts and self.starts[-1][1] >= offset:
                self.starts.pop()
            self.starts.append((epoch, offset))

    def cut(self, end: int) -> None:
        self.starts = [each for each in self.starts if each[1] < end]

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        if epoch == self.latest:
            return epoch, log_end
        above = [start for known, start in self.starts if known > epoch]
        if not above:
            return -1, -1
        below = [known for known, _ in self.starts if known <= epoch]
        return (below[-1] if below else epoch), above[0]


@dataclass
class Broker:
    """One replica."""

    broker_id: int
    machine: PartitionMachine
    log: list[Entry] = field(default_factory=list)
    epochs: Epochs = field(default_factory=Epochs)
    alive: bool = True


class FetchRequest(NamedTuple):
    """A follower's fetch on its way."""

    follower: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int


class FetchResponse(NamedTuple):
    """The response on its way back."""

    request: FetchRequest
    records: tuple[Entry, ...]
    high_watermark: int
    diverging: tuple[int, int] | None


class Alter(NamedTuple):
    """A pending ISR on its way to the controller, or its response on the way back (AlterPartition)."""

    broker: int
    change: PendingIsr
    answer: LeaderAndIsr | ErrorCode | None = None


class Replicas:
    """The three replicas, the controller's state and the messages on the wire."""

    machine_class: type[PartitionMachine] = PartitionMachine

    def __init__(self) -> None:
        self.now_ms = 0
        self.brokers = {each: Broker(each, self._machine(each, 0, 0)) for each in BROKERS}
        self.state = LeaderAndIsr(0, 0, BROKERS, BROKERS, 0)
        self.wire: list[FetchRequest | FetchResponse | Alter] = []
        self.values = 0
        self.pending: list[tuple[int, int, int, int]] = []
        """Pending writes: (leader, epoch, end offset, value)."""
        self.acknowledged: dict[int, int] = {}
        self.true_high_watermark = 0
        self.notified: dict[int, int] = {}
        for each in BROKERS:
            self.tell(each)

    def _machine(self, broker_id: int, end: int, high_watermark: int) -> PartitionMachine:
        return self.machine_class(
            broker_id, high_watermark=high_watermark, local_end=end, min_isr=MIN_ISR, max_lag_ms=MAX_LAG_MS
        )

    # ---- the controller

    def tell(self, broker_id: int) -> None:
        """LeaderAndIsr with the current state."""
        broker, state = self.brokers[broker_id], self.state
        if not broker.alive or self.notified.get(broker_id, -1) >= state.leader_epoch:
            return
        self.notified[broker_id] = state.leader_epoch
        if state.leader == broker_id:
            broker.epochs.begin(state.leader_epoch, len(broker.log))
            broker.machine.become_leader(state, self.now_ms)
        else:
            broker.machine.become_follower(state)

    def elect(self, preferred: int) -> bool:
        """Another leader of the ISR; dead replicas leave the ISR as long as one stays."""
        live = [each for each in self.state.isr if self.brokers[each].alive]
        if not live:
            return False
        leader = preferred if preferred in live else live[0]
        self.state = LeaderAndIsr(
            leader, self.state.leader_epoch + 1, tuple(live), BROKERS, self.state.partition_epoch + 1
        )
        return True

    def decide(self, alter: Alter) -> None:
        """The controller receives a pending ISR: compare and set."""
        change, state = alter.change, self.state
        answer: LeaderAndIsr | ErrorCode
        if change.leader_epoch != state.leader_epoch:
            answer = ErrorCode.FENCED_LEADER_EPOCH
        elif change.partition_epoch != state.partition_epoch:
            answer = ErrorCode.INVALID_UPDATE_VERSION
        elif not all(self.brokers[each].alive for each in change.isr):
            answer = ErrorCode.INELIGIBLE_REPLICA
        else:
            answer = self.state = state._replace(isr=change.isr, partition_epoch=state.partition_epoch + 1)
        self.wire.append(alter._replace(answer=answer))

    # ---- brokers

    def append(self, broker_id: int, count: int = 1) -> None:
        """A client writes with acks=all to the replica that it takes for the leader."""
        broker = self.brokers[broker_id]
        try:
            broker.machine.check_may_append(-1)
        except KafkaError:
            return
        for _ in range(count):
            self.values += 1
            broker.log.append(Entry(broker.machine.leader_epoch, self.values))
            self.pending.append((broker_id, broker.machine.leader_epoch, len(broker.log), self.values))
        broker.machine.appended(len(broker.log), self.now_ms)

    def fetch(self, follower_id: int) -> None:
        """A follower sends a fetch."""
        broker = self.brokers[follower_id]
        machine = broker.machine
        if broker.alive and machine.role is Role.FOLLOWER and machine.leader_id >= 0:
            self.wire.append(
                FetchRequest(
                    follower_id, machine.leader_id, machine.leader_epoch, len(broker.log), broker.epochs.latest
                )
            )

    def deliver(self, index: int) -> None:
        """A message on the wire arrives."""
        message = self.wire.pop(index % len(self.wire))
        if isinstance(message, FetchRequest):
            self._serve(message)
        elif isinstance(message, FetchResponse):
            self._take(message)
        elif message.answer is None:
            self.decide(message)
        else:
            self._hear(message)

    def _serve(self, request: FetchRequest) -> None:
        leader = self.brokers[request.leader]
        if not leader.alive:
            return
        try:
            leader.machine.check_leader(request.leader_epoch)
            if request.last_epoch >= 0:
                epoch, end = leader.epochs.end_offset(request.last_epoch, len(leader.log))
                if end < 0:
                    return
                if epoch < request.last_epoch or end < request.offset:
                    answer = FetchResponse(request, (), leader.machine.high_watermark, (epoch, end))
                    self.wire.append(answer)
                    return
            if request.offset > len(leader.log):
                return
            records = tuple(leader.log[request.offset : request.offset + 3])
            leader.machine.follower_fetched(request.follower, request.offset, self.now_ms)
            self._pending_isr(request.leader, leader.machine.propose_expansion(request.follower))
        except KafkaError:
            return
        self.wire.append(FetchResponse(request, records, leader.machine.high_watermark, None))

    def _take(self, response: FetchResponse) -> None:
        request, broker = response.request, self.brokers[response.request.follower]
        machine = broker.machine
        if not broker.alive or machine.role is not Role.FOLLOWER or machine.leader_epoch != request.leader_epoch:
            return
        if len(broker.log) != request.offset:
            return
        if response.diverging is not None:
            epoch, end = response.diverging
            cut = truncation_offset(epoch, end, broker.epochs, len(broker.log), request.offset)
            if broker.broker_id in self.state.isr:
                assert cut >= self.true_high_watermark, "R10: truncated below the committed offset"
            del broker.log[cut:]
            broker.epochs.cut(cut)
            machine.truncated(cut)
            return
        for entry in response.records:
            broker.epochs.begin(entry.epoch, len(broker.log))
            broker.log.append(entry)
        machine.replicated(len(broker.log), response.high_watermark)

    def _pending_isr(self, broker_id: int, change: PendingIsr | None) -> None:
        if change is not None:
            self.wire.append(Alter(broker_id, change))

    def _hear(self, alter: Alter) -> None:
        broker = self.brokers[alter.broker]
        if not broker.alive:
            return
        if isinstance(alter.answer, LeaderAndIsr):
            broker.machine.isr_changed(alter.change, alter.answer, self.now_ms)
        elif isinstance(alter.answer, ErrorCode) and broker.machine.isr_refused(
            alter.change, alter.answer, self.now_ms
        ):
            self.wire.append(alter._replace(answer=None))

    def shrink(self, broker_id: int) -> None:
        """The broker checks for followers that have fallen behind."""
        broker = self.brokers[broker_id]
        if broker.alive:
            self._pending_isr(broker_id, broker.machine.propose_shrink(self.now_ms))

    def stop(self, broker_id: int) -> None:
        """The process is gone; its log stays."""
        self.brokers[broker_id].alive = False

    def start(self, broker_id: int, checkpoint: int) -> None:
        """The process comes back; its high watermark was written to disk some time ago."""
        broker = self.brokers[broker_id]
        broker.alive = True
        high_watermark = min(checkpoint, broker.machine.high_watermark)
        broker.machine = self._machine(broker_id, len(broker.log), high_watermark)
        self.notified.pop(broker_id, None)

    # ---- invariants

    def settle(self) -> None:
        """Acknowledge every write that a leader may acknowledge, and check every invariant."""
        for broker_id, epoch, end, value in list(self.pending):
            machine = self.brokers[broker_id].machine
            if not self.brokers[broker_id].alive or machine.leader_epoch != epoch:
                self.pending.remove((broker_id, epoch, end, value))
                continue
            code = machine.acknowledged(end)
            if code is not None:
                self.pending.remove((broker_id, epoch, end, value))
            if code is ErrorCode.NONE:
                self.acknowledged[end - 1] = value
        for broker in self.brokers.values():
            if broker.alive and broker.machine.role is Role.LEADER:
                self.true_high_watermark = max(self.true_high_watermark, broker.machine.high_watermark)
        self._check()

    def _check(self) -> None:
        for broker in self.brokers.values():
            machine = broker.machine
            assert machine.high_watermark <= machine.local_end == len(broker.log), "R7"
            if not broker.alive or machine.role is not Role.LEADER:
                continue
            for member in self.state.isr:
                log = self.brokers[member].log
                if self.brokers[member].alive:
                    assert log[: machine.high_watermark] == broker.log[: machine.high_watermark], "R1"
            if machine.leader_epoch == self.state.leader_epoch:
                assert len(broker.log) >= self.true_high_watermark, "R2"
                for offset, value in self.acknowledged.items():
                    assert broker.log[offset].value == value, "R2: an acknowledged record is not at its offset"
                assert machine.maximal_isr >= set(self.state.isr), "R4"
        for member in self.state.isr:
            if self.brokers[member].alive:
                assert len(self.brokers[member].log) >= self.true_high_watermark, "R3"
        logs = [broker.log for broker in self.brokers.values()]
        for one in logs:
            for other in logs:
                for offset in range(min(len(one), len(other)) - 1, -1, -1):
                    if one[offset].epoch == other[offset].epoch:
                        assert one[: offset + 1] == other[: offset + 1], "R5: one offset and epoch, two histories"
                        break
