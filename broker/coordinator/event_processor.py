"""Event processor: performs the effects of coordinators' state machines (Kafka: CoordinatorEventProcessor).

The processor holds what every state machine of a coordinator has beside its own state: the appends without a final
outcome, and the timers. It passes the outcomes of appends and the timers to the state machine as events. A state
machine never handles a rejected append itself: the processor first reverts the changes of that append and of all later
ones (`coordinator.state.pending_writes`), and the state machine then answers the requests.

Calls nest: an append for one state machine can complete that of another.

Of the timers that are due at the same time, TIMERS_AT_ONCE fire; the others follow in later iterations of the event
loop, in their order: the sessions of thousands of members may end together.

Replies are sent after at most REPLIES_AT_ONCE others: where one event answers the requests of thousands of members, the
event loop serves other clients in between. Replies have no order among each other; those of one connection leave in the
order of its requests.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from odradek.broker.coordinator.state.pending_writes import COMMITTED, PendingWrite, PendingWrites
from odradek.broker.runtime.state.effects import (
    Append,
    CancelTimer,
    Each,
    KeyValue,
    Now,
    Offload,
    Reply,
    SetTimer,
    TimerName,
)
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.broker.runtime.turns import Run, at_once
from odradek.broker.runtime.turns import each as items_of
from odradek.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

REPLIES_AT_ONCE: Final = 100
TIMERS_AT_ONCE: Final = 8
_new: Final = tuple.__new__
"""Makes a named tuple without a call of Python's `__new__`."""

Effects = list[Any]
"""The effects of `runtime.state.effects`, and effects of one coordinator alone."""


class StateMachine(Protocol):
    """The pure state machine of one group or one transactional id.

    Every method is an event; the effects that it returns are performed in order.
    """

    @property
    def is_removable(self) -> bool:
        """Whether nothing is left of it, so that it is removed once no append is pending."""
        ...

    def loaded(self, now: Now) -> Effects:
        """This broker has become its coordinator."""
        ...

    def appended(self, token: Any, error: ErrorCode, now: Now) -> Effects:
        """An outcome of an append; the changes of a rejected append are reverted before this."""
        ...

    def reverted(self, error: ErrorCode, now: Now) -> Effects:
        """The changes of one or more appends are reverted; `appended` has been called for each of them."""
        ...

    def timer(self, name: TimerName, now: Now) -> Effects:
        """A timer has fired."""
        ...

    def unload(self, now: Now, each: Each, /) -> Effects:
        """This broker no longer coordinates it; `appended` with NOT_COORDINATOR follows for each pending append.

        The shell cancels the timers. A loop over `each(items)` may be interrupted; no event follows meanwhile but
        outcomes of appends.
        """
        ...


Machine = TypeVar("Machine", bound=StateMachine)


class CoordinatorShard(Protocol[Machine]):
    """The state of one partition of the coordinator's internal topic (Kafka: CoordinatorShard)."""

    machines: dict[str, Machine]
    """The state machines by group id or transactional id."""

    def replay(self, header: Any, record: Any) -> None:
        """Apply one record of the log during the load. Raises ProtocolError for an invalid record."""
        ...

    def on_loaded(self, now: Now) -> None:
        """The load has ended: create the state machines."""
        ...

    def on_unloaded(self) -> None:
        """This broker no longer leads the partition, and every state machine has received `unload`."""
        ...

    def perform(self, machine: Machine, effect: Any, epoch: int) -> None:
        """Perform an effect of this coordinator alone; `epoch` is the leader epoch of the partition."""
        ...


class PartitionWriter(Protocol):
    """Appends to the partitions that this broker leads (Kafka: PartitionWriter)."""

    def append(self, partition: int, records: list[KeyValue], done: Callable[[ErrorCode], None], /) -> None:
        """Append one batch with acks=all; call `done` with each outcome that `pending_writes` lists, perhaps at once.

        Raises KafkaError if the log rejects the batch, or passes the error to `done`.
        """
        ...

    def append_at_once(self, partition: int, records: list[KeyValue], /) -> bool:
        """Append one batch where it is committed when this returns; returns False where nothing is appended."""
        ...


class TransactionalWriter(Protocol):
    """Appends records that belong to a producer's transaction to the same partitions."""

    def append(self, partition: int, entries: list[KeyValue], permit: Any, done: Callable[[ErrorCode], None]) -> None:
        """Append one batch of the transaction with acks=all."""
        ...


class LedPartition(Generic[Machine]):
    """A partition that this broker leads."""

    __slots__ = ("epoch", "is_led", "partition", "shard")

    def __init__(self, partition: int, epoch: int, shard: CoordinatorShard[Machine]) -> None:
        self.partition = partition
        self.epoch = epoch
        self.shard = shard
        self.is_led = True
        """False from the first append that the log rejects because another broker leads the partition now, or from the
        unload.
        """


class _Hosted(Generic[Machine]):
    """A state machine with its pending writes and its timers."""

    __slots__ = ("is_ended", "key", "led", "machine", "timers", "writes")

    def __init__(self, led: LedPartition[Machine], key: str, machine: Machine) -> None:
        self.led = led
        self.key = key
        self.machine = machine
        self.writes = PendingWrites()
        self.timers: dict[TimerName, Timer] = {}
        self.is_ended = False
        """Whether the state machine is unloaded, so that its timers no longer count."""


class CoordinatorEventProcessor(Generic[Machine]):
    """Performs the effects of the state machines of one coordinator."""

    def __init__(
        self,
        writer: PartitionWriter,
        transactional_writer: TransactionalWriter | None,
        clock: Clock,
        timers: Timers,
        run_in_turns: Run = at_once,
    ) -> None:
        """`transactional_writer` is None for a coordinator whose records are never part of a transaction."""
        self._writer = writer
        self._transactional_writer = transactional_writer
        self._clock = clock
        self._set_timer = timers.at
        self._run_in_turns = run_in_turns
        self._hosted: dict[Machine, _Hosted[Machine]] = {}
        # The write is that of an Append, and None for other effects.
        self._effects: deque[tuple[_Hosted[Machine], Any, PendingWrite | None]] = deque()
        self._performing = False
        self._replied = 0  # in the present run
        self._late_replies: deque[tuple[str, Reply]] = deque()
        self._fired = 0  # up to TIMERS_AT_ONCE, until the call of `_fire_more` that is due then
        self._due: deque[tuple[_Hosted[Machine], TimerName, Timer]] = deque()

    def now(self) -> Now:
        """The time of an event."""
        return _new(Now, (self._clock.now_ms(), self._clock.monotonic_ms()))

    def host(self, led: LedPartition[Machine], key: str, machine: Machine) -> None:
        """Accept effects of a state machine from now on."""
        self._hosted[machine] = _Hosted(led, key, machine)

    def machines(self) -> Iterator[Machine]:
        """Every state machine, without those that are removed while the caller iterates."""
        for machine in list(self._hosted):
            if machine in self._hosted:
                yield machine

    def has(self, machine: Machine) -> bool:
        """Whether this broker leads the partition of a state machine, which has not been removed."""
        hosted = self._hosted.get(machine)
        return hosted is not None and hosted.led.is_led

    def perform(self, machine: Machine, effects: Effects) -> None:
        """Perform effects in order; effects that are added meanwhile follow behind them."""
        if not effects:
            return
        hosted = self._hosted[machine]
        if len(effects) == 1 and type(effects[0]) is Reply and not self._performing:  # the common case
            self._send_alone(hosted.key, effects[0])
        else:
            self._enqueue(hosted, effects)
        self._run()

    def _send_alone(self, key: str, reply: Reply) -> None:
        self._performing = True
        try:
            _send(key, reply)
        finally:
            self._performing = False

    def append_at_once(self, machine: Machine, records: list[KeyValue]) -> bool:
        """Append records that are committed when this returns, so that their changes are made after it and need no
        undo. Returns False where nothing is appended: an earlier write of the machine has no outcome yet, effects are
        being performed, or the log does not commit at once.
        """
        hosted = self._hosted[machine]
        return not (hosted.writes or self._performing) and self._writer.append_at_once(hosted.led.partition, records)

    def release(self, machine: Machine) -> None:
        """Remove a state machine of which nothing is left."""
        hosted = self._hosted.get(machine)
        if hosted is not None:
            self._release(hosted)

    def timers_of(self, machine: Machine) -> int:
        """How many timers of a state machine are set."""
        hosted = self._hosted.get(machine)
        return 0 if hosted is None else len(hosted.timers)

    def unload(self, machine: Machine) -> None:
        """End a state machine whose partition this broker no longer leads; in a turn, with interruptions."""
        hosted, now = self._hosted.pop(machine, None), self.now()
        if hosted is None:
            return
        hosted.is_ended = True
        effects = machine.unload(now, items_of)
        for write in hosted.writes.drop():
            effects += machine.appended(write.token, ErrorCode.NOT_COORDINATOR, now)
        for name in items_of(list(hosted.timers)):
            _cancel_timer(hosted, name)
        self._enqueue(hosted, effects)
        self._run()

    def _release(self, hosted: _Hosted[Machine]) -> None:
        if not hosted.writes and hosted.machine.is_removable:
            self._hosted.pop(hosted.machine, None)
            hosted.led.shard.machines.pop(hosted.key, None)

    def _enqueue(self, hosted: _Hosted[Machine], effects: Effects) -> None:
        # An append is a pending write from now on: before its turn comes, the log may reject an earlier one.
        for effect in effects:
            self._effects.append((hosted, effect, hosted.writes.begin(effect) if type(effect) is Append else None))

    def _run(self) -> None:
        if self._performing:
            return
        self._performing = True
        self._replied = 0
        try:
            while self._effects:
                self._carry_out(*self._effects.popleft())
        finally:
            self._performing = False

    def _carry_out(self, hosted: _Hosted[Machine], effect: Any, write: PendingWrite | None) -> None:
        if write is not None:
            self._append(hosted, effect, write)
            return
        match effect:
            case Reply():
                self._replied += 1
                if self._replied <= REPLIES_AT_ONCE:
                    _send(hosted.key, effect)
                    return
                if not self._late_replies:
                    self._set_timer(self._clock.monotonic_ms(), self._send_late_replies)
                self._late_replies.append((hosted.key, effect))
            case SetTimer(name, deadline_ms):
                _cancel_timer(hosted, name)
                hosted.timers[name] = self._set_timer(deadline_ms, partial(self._timer_is_due, hosted, name))
            case CancelTimer(name):
                _cancel_timer(hosted, name)
            case Offload(parts, event):
                self._run_in_turns(partial(self._compute, hosted, parts(items_of), event))
            case _:
                hosted.led.shard.perform(hosted.machine, effect, hosted.led.epoch)

    def _compute(self, hosted: _Hosted[Machine], parts: Iterator[Any], event: Callable[[Any, Now], Effects]) -> None:
        """Compute the next part, and continue with a later turn."""
        try:
            if hosted.is_ended or (part := next(parts, None)) is None:
                return
        except Exception:
            log.exception("cannot compute key=%s", hosted.key)
            return
        self._enqueue(hosted, event(part, self.now()))
        self._run()
        self._run_in_turns(partial(self._compute, hosted, parts, event))

    def _send_late_replies(self) -> None:
        late = self._late_replies
        for _ in range(min(len(late), REPLIES_AT_ONCE)):
            _send(*late.popleft())
        if late:
            self._set_timer(self._clock.monotonic_ms(), self._send_late_replies)

    def _append(self, hosted: _Hosted[Machine], append: Append, write: PendingWrite) -> None:
        if write.is_void:
            return
        records, permit = append.records, append.permit
        done = partial(self._appended, hosted, write)
        try:
            if permit is None:
                self._writer.append(hosted.led.partition, records, done)
            else:
                assert self._transactional_writer is not None, "this coordinator takes part in no transaction"
                self._transactional_writer.append(hosted.led.partition, records, permit, done)
        except KafkaError as error:
            done(error.code)

    def _appended(self, hosted: _Hosted[Machine], write: PendingWrite, error: ErrorCode) -> None:
        if write.is_void:
            return
        if error:
            log.warning(
                "cannot append coordinator records partition=%d key=%s error=%s",
                hosted.led.partition,
                hosted.key,
                error.name,
            )
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # Requests that waited for this append must not be answered from a state that may be old.
                hosted.led.is_led = False
        machine, now = hosted.machine, self.now()
        effects: Effects = []
        if error in COMMITTED or error is ErrorCode.REQUEST_TIMED_OUT:
            if error in COMMITTED:
                hosted.writes.commit(write)
            effects += machine.appended(write.token, error, now)
        else:
            for each in reversed(hosted.writes.revert(write)):
                effects += machine.appended(each.token, error, now)
            effects += machine.reverted(error, now)
        self._enqueue(hosted, effects)
        self._release(hosted)
        self._run()

    def _timer_is_due(self, hosted: _Hosted[Machine], name: TimerName) -> None:
        if self._fired == TIMERS_AT_ONCE:
            self._due.append((hosted, name, hosted.timers[name]))  # it can still be cancelled
            return
        self._fired += 1
        if self._fired == TIMERS_AT_ONCE:
            self._set_timer(self._clock.monotonic_ms(), self._fire_more)
        self._fire(hosted, name)

    def _fire_more(self) -> None:
        due = self._due
        for _ in range(min(len(due), TIMERS_AT_ONCE)):
            hosted, name, timer = due.popleft()
            if hosted.timers.get(name) is timer:
                self._fire(hosted, name)
        if due:
            self._set_timer(self._clock.monotonic_ms(), self._fire_more)
        else:
            self._fired = 0

    def _fire(self, hosted: _Hosted[Machine], name: TimerName) -> None:
        hosted.timers.pop(name, None)
        if hosted.is_ended:
            return
        self._enqueue(hosted, hosted.machine.timer(name, self.now()))
        self._run()


def _send(key: str, reply: Reply) -> None:
    try:
        reply.token(reply.answer)
    except Exception:  # an error in one reply must not prevent the other replies
        log.exception("cannot send response key=%s", key)


def _cancel_timer(hosted: _Hosted[Any], name: TimerName) -> None:
    timer = hosted.timers.pop(name, None)
    if timer is not None:
        timer.cancel()
