"""The coordinator runtime with a coordinator of counters: loads, effects, outcomes of appends, timers, unloads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from odradek.broker.coordinator import runtime as module
from odradek.broker.coordinator.runtime import CoordinatorRuntime
from odradek.broker.runtime.state.effects import Append, Each, KeyValue, Now, Reply, SetTimer
from odradek.protocol.batch import Header, Record
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.machines.group_harness import MemoryLog, Slot, VirtualTime

NONE = ErrorCode.NONE
REJECTED = ErrorCode.NOT_ENOUGH_REPLICAS


class Log(MemoryLog):
    """The log of the counters; its records are replicated on demand of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.until_replicated: list[Callable[[], None]] = []

    def when_replicated(self, partition: int, done: Callable[[], None]) -> None:
        self.until_replicated.append(done)


class Counter:
    """A state machine: a number that grows by one with each record."""

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.loads = 0
        self.reverts: list[ErrorCode] = []

    @property
    def is_removable(self) -> bool:
        return self.value < 0

    def increment(self, token: Any, by: int = 1) -> list[Any]:
        self.value += by
        undo = partial(self._add, -by)
        return [Append([(b"counter", str(self.value).encode())], token, undo=(undo,))]

    def _add(self, difference: int) -> None:
        self.value += difference

    def loaded(self, now: Now) -> list[Any]:
        self.loads += 1
        return []

    def appended(self, token: Any, error: ErrorCode, now: Now) -> list[Any]:
        return [Reply(token, (error, self.value))]

    def reverted(self, error: ErrorCode, now: Now) -> list[Any]:
        self.reverts.append(error)
        return []

    def timer(self, name: tuple[str, ...], now: Now) -> list[Any]:
        return ["rang", *name]

    def unload(self, now: Now, each: Each) -> list[Any]:
        return []


class Shard:
    """The counters of a partition."""

    def __init__(self) -> None:
        self.machines: dict[str, Counter] = {}
        self.found = 0
        self.performed: list[tuple[Any, int]] = []
        self.is_unloaded = False

    def replay(self, header: Header, record: Record) -> None:
        if record.value is None:
            raise ProtocolError("value", 0, "no number")
        self.found = int(record.value)

    def on_loaded(self, now: Now) -> None:
        self.machines = {"counter": Counter(self.found)}

    def on_unloaded(self) -> None:
        self.is_unloaded = True

    def perform(self, machine: Counter, effect: Any, epoch: int) -> None:
        self.performed.append((effect, epoch))


class Coordinator:
    """A runtime that has loaded partition 0 in epoch 3."""

    def __init__(self, *, awaits_replication: bool = False) -> None:
        self.time = VirtualTime()
        self.log = Log()
        self.in_turns: list[Callable[[], None]] = []
        self.defers_turns = False
        self.awaits_replication = awaits_replication
        self.start()

    def start(self) -> None:
        self.runtime = CoordinatorRuntime[Counter, Shard](
            "counters",
            lambda partition: Shard(),
            self.log,
            self.time,
            self.time,
            awaits_replication=self.awaits_replication,
            run_in_turns=lambda work, kept=None: self.in_turns.append(work) if self.defers_turns else work(),
        )
        self.runtime.load(0, 3)

    @property
    def counter(self) -> Counter:
        counter = self.runtime.find(0, "counter")
        assert counter is not None
        return counter

    @property
    def shard(self) -> Shard:
        shard = self.runtime.shard(0)
        assert shard is not None
        return shard

    def increment(self, by: int = 1) -> Slot:
        slot = Slot()
        self.runtime.perform(self.counter, self.counter.increment(slot, by))
        return slot


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_a_load_replays_the_records(coordinator: Coordinator) -> None:
    for _ in range(3):
        coordinator.increment()
    coordinator.runtime.close()
    assert coordinator.runtime.check(0) is ErrorCode.NOT_COORDINATOR
    coordinator.start()
    assert (coordinator.counter.value, coordinator.counter.loads) == (3, 1)


def test_a_new_epoch_of_the_same_leader_loads_nothing(coordinator: Coordinator) -> None:
    counter = coordinator.counter
    coordinator.runtime.load(0, 4)
    assert coordinator.counter is counter
    coordinator.runtime.perform(counter, ["effect"])
    assert coordinator.shard.performed == [("effect", 4)]


def test_a_load_in_turns_takes_the_newest_epoch(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator.increment()
    coordinator.runtime.close()
    monkeypatch.setattr(module, "AT_ONCE", 1)
    coordinator.defers_turns = True
    coordinator.start()
    assert coordinator.runtime.check(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinator.runtime.is_loading
    coordinator.runtime.load(0, 5)
    coordinator.in_turns.pop()()
    assert coordinator.runtime.check(0) is NONE
    coordinator.runtime.perform(coordinator.counter, ["effect"])
    assert coordinator.shard.performed == [("effect", 5)]


def test_state_machines_continue_when_the_records_of_the_load_are_replicated() -> None:
    coordinator = Coordinator(awaits_replication=True)
    assert (coordinator.runtime.check(0), coordinator.counter.loads) == (NONE, 0)
    coordinator.log.until_replicated.pop()()
    assert coordinator.counter.loads == 1


def test_an_unloaded_partition_does_not_continue() -> None:
    coordinator = Coordinator(awaits_replication=True)
    former = coordinator.counter
    coordinator.runtime.unload(0)
    coordinator.runtime.load(0, 4)
    coordinator.log.until_replicated.pop(0)()
    assert (former.loads, coordinator.counter.loads) == (0, 0)


def test_a_rejected_append_reverts_itself_and_every_later_one(coordinator: Coordinator) -> None:
    coordinator.increment()
    coordinator.log.hold = True
    slots = [coordinator.increment(by) for by in (10, 100)]
    assert coordinator.counter.value == 111
    coordinator.log.release(REJECTED)
    assert [slot.answer for slot in slots] == [(REJECTED, 1), (REJECTED, 1)]
    assert (coordinator.counter.value, coordinator.counter.reverts) == (1, [REJECTED])


def test_records_are_appended_at_once_where_no_earlier_write_is_open(coordinator: Coordinator) -> None:
    runtime, log = coordinator.runtime, coordinator.log
    records: list[KeyValue] = [(b"counter", b"7")]
    assert runtime.append_at_once(coordinator.counter, records)
    assert [record.value for _, record in log.read_all(0)] == [b"7"]
    log.hold = True
    coordinator.increment()
    log.hold = False
    assert not any(runtime.append_at_once(coordinator.counter, records) for _ in range(2))
    log.release()
    assert any(runtime.append_at_once(coordinator.counter, records) for _ in range(2))


def test_nothing_is_appended_at_once_while_effects_are_performed(coordinator: Coordinator) -> None:
    runtime, tried = coordinator.runtime, list[bool]()

    def answered(_: object) -> None:
        tried.extend(runtime.append_at_once(coordinator.counter, [(b"counter", b"7")]) for _ in range(2))

    runtime.perform(coordinator.counter, [Reply(answered, None)])
    assert tried == [False, False]


def test_only_an_active_state_machine_is_found() -> None:
    coordinator = Coordinator()
    assert coordinator.runtime.find_active(0, "counter") is coordinator.counter
    assert coordinator.runtime.find_active(0, "other") is None
    assert coordinator.runtime.find_active(1, "counter") is None
    coordinator.log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    coordinator.increment()
    assert coordinator.runtime.find_active(0, "counter") is None


def test_an_append_that_times_out_stays(coordinator: Coordinator) -> None:
    coordinator.log.error = ErrorCode.REQUEST_TIMED_OUT
    assert coordinator.increment().answer == (ErrorCode.REQUEST_TIMED_OUT, 1)
    assert (coordinator.counter.value, coordinator.counter.reverts) == (1, [])


def test_no_request_is_answered_from_old_state_when_another_broker_leads(coordinator: Coordinator) -> None:
    former = coordinator.counter
    coordinator.log.hold = True
    checks: list[ErrorCode] = []
    answer = Slot()
    # The response to the request whose append fails admits those that wait behind it.
    effects = coordinator.counter.increment(
        lambda outcome: (answer(outcome), checks.append(coordinator.runtime.check(0)))
    )
    coordinator.runtime.perform(coordinator.counter, effects)
    assert coordinator.runtime.check(0) is NONE
    coordinator.log.lose()
    assert answer.answer == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert checks == [ErrorCode.NOT_COORDINATOR]
    assert coordinator.runtime.shard(0) is None

    coordinator.log.hold = False
    coordinator.runtime.load(0, 5)  # it leads again, after another broker that may have written
    assert coordinator.runtime.check(0) is NONE
    assert coordinator.counter is not former
    assert coordinator.increment().answer == (NONE, 1)


def test_an_append_behind_a_rejected_one_is_not_written(coordinator: Coordinator) -> None:
    coordinator.log.error = REJECTED
    first, second = Slot(), Slot()
    counter = coordinator.counter
    coordinator.runtime.perform(counter, [*counter.increment(first), *counter.increment(second)])
    assert (first.answer, second.answer) == ((REJECTED, 0), (REJECTED, 0))
    assert not coordinator.log.batches


def test_a_state_machine_of_which_nothing_is_left_goes_with_its_last_append(coordinator: Coordinator) -> None:
    coordinator.log.hold = True
    coordinator.increment(-1)
    coordinator.runtime.release(coordinator.counter)
    assert coordinator.counter.value == -1, "its append has no outcome"
    coordinator.log.release()
    assert coordinator.runtime.find(0, "counter") is None
    assert list(coordinator.runtime.machines()) == []


def test_timers_of_one_name_replace_each_other(coordinator: Coordinator) -> None:
    for deadline_ms in (10, 20):
        coordinator.runtime.perform(coordinator.counter, [SetTimer(("alarm",), deadline_ms)])
    coordinator.time.advance(15)
    assert coordinator.shard.performed == []
    coordinator.time.advance(5)
    assert coordinator.shard.performed == [("rang", 3), ("alarm", 3)]


def test_an_unload_answers_the_requests_and_cancels_the_timers(coordinator: Coordinator) -> None:
    coordinator.runtime.perform(coordinator.counter, [SetTimer(("alarm",), 10)])
    coordinator.log.hold = True
    slot, shard = coordinator.increment(), coordinator.shard
    coordinator.runtime.unload(0)
    assert slot.answer[0] is ErrorCode.NOT_COORDINATOR
    assert shard.is_unloaded
    assert coordinator.time.waiting == 0
    coordinator.log.release()
    assert len(slot.answers) == 1, "the late outcome has no effect"
