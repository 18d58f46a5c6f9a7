"""Limits of a group: how many members, how much metadata, and how many responses in one turn of the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.broker.coordinator import event_processor
from odradek.broker.coordinator.event_processor import CoordinatorEventProcessor, LedPartition
from odradek.broker.group.state.classic_members import MEMBER_BYTES
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import CancelTimer, Reply, SetTimer
from odradek.protocol.errors import ErrorCode
from tests.machines import consumer_harness
from tests.machines.group_harness import GROUP, Harness, VirtualTime, VirtualTimer

LIMIT = 64 << 10
JOINING: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "owned": {}}


def errors(slots: list[Any]) -> list[ErrorCode]:
    """The errors of the joins that are answered."""
    return [slot.answer.error for slot in slots if not slot.waits]


def test_the_defaults_have_limits() -> None:
    settings = GroupSettings()
    assert settings.group_max_size == settings.group_consumer_max_size == 5_000
    assert settings.odradek_group_max_metadata_bytes == 16 << 20


def test_the_metadata_of_one_member_is_limited() -> None:
    harness = Harness(odradek_group_max_metadata_bytes=LIMIT)
    assert errors([harness.join(protocols=(("range", bytes(LIMIT // 8)),))]) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert harness.join(protocols=(("range", bytes(1000)),)).waits


def test_the_metadata_of_a_group_is_limited() -> None:
    harness = Harness(odradek_group_max_metadata_bytes=LIMIT)
    slots = [harness.join(protocols=(("range", bytes(5000)),)) for _ in range(100)]
    refused = errors(slots)
    assert set(refused) == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert 100 - len(refused) == LIMIT // (5000 + MEMBER_BYTES + 84)  # the metadata, a member, its names


def test_a_member_may_join_again_with_other_metadata_and_those_that_leave_make_room() -> None:
    harness = Harness(odradek_group_max_metadata_bytes=LIMIT)
    ids, _ = harness.stable(2)
    group = harness.groups.describe(GROUP)[1]
    assert group is not None
    members = group.group_members
    for size in (7000, 10, 7000):
        harness.join(ids[0], protocols=(("range", bytes(size)),))
    assert members.memory_bytes < 9000
    for member_id in ids:
        harness.leave(member_id)
    assert members.memory_bytes == 0


def test_ids_that_no_member_uses_are_limited() -> None:
    harness = Harness(group_max_size=3)
    slots = [harness.join(id_required=True) for _ in range(5)]
    assert errors(slots) == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2


def test_the_subscriptions_of_a_consumer_group_are_limited() -> None:
    """Before, 5,000 members could subscribe to 10,000 invented names each."""
    harness = Harness(odradek_group_max_metadata_bytes=LIMIT)
    names = [f"topic-{number}" for number in range(50)]  # about 4 KB
    refused = consumer_harness.beat(harness, "large", 0, names=tuple(names * 3), **JOINING).answer
    assert refused.error is ErrorCode.NONE  # the names are counted once
    consumer_harness.beat(harness, "large", -1)
    many = tuple(f"topic-{number}" for number in range(150))
    refused = consumer_harness.beat(harness, "large", 0, names=many, **JOINING).answer
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    found = [consumer_harness.beat(harness, f"m{n}", 0, names=tuple(names), **JOINING).answer for n in range(30)]
    accepted = [each.member_id for each in found if not each.error]
    members = consumer_harness.membership(harness).group_members
    assert list(members.members) == accepted
    assert LIMIT - 6000 < members.memory_bytes <= LIMIT
    assert {each.error for each in found[len(accepted) :]} == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    fewer = consumer_harness.beat(harness, accepted[0], found[0].epoch, names=("topic-1",), owned={}).answer
    assert fewer.error in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH)
    for member_id in accepted:
        consumer_harness.beat(harness, member_id, -1)
    assert members.memory_bytes == 0


def test_a_member_that_joins_a_consumer_group_costs_no_search_for_the_topics_of_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harness = Harness()
    names = [f"topic-{number}" for number in range(50)]
    for name in names:
        harness.topics.put(name, 1)
    for number in range(100):
        consumer_harness.join(harness, f"m{number}", *names)
    found: list[str] = []
    original = harness.topics.id_of
    monkeypatch.setattr(harness.topics, "id_of", lambda name: found.append(name) or original(name))
    consumer_harness.join(harness, "another", *names)
    # Once for the hash of the subscribed topics, and once for the new member; before, once for each member.
    assert len(found) <= 3 * len(names)


class ReadNames(tuple[str, ...]):
    """The names to which a member subscribes; `reads` counts how often they are searched."""

    __slots__ = ()
    reads = 0

    def __iter__(self) -> Iterator[str]:
        type(self).reads += 1
        return super().__iter__()

    def __contains__(self, name: object) -> bool:
        type(self).reads += 1
        return super().__contains__(name)


def test_a_deletion_of_offsets_and_their_expiry_read_each_subscription_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 300 members a request of 1 MB took 3.6 s at a stretch: each was asked again for each partition."""
    monkeypatch.setattr(ReadNames, "reads", 0)
    harness = Harness(offsets_retention_minutes=0, offsets_retention_check_interval_ms=2000)
    harness.coordinator.start()
    count = 20
    for name in ("consumed", "other"):
        harness.topics.put(name, count)
    for number in range(count):
        consumer_harness.join(harness, f"m{number}", "consumed")
    members = consumer_harness.membership(harness).group_members
    both = [(name, index) for name in ("consumed", "other") for index in range(count)]
    epoch = members.members["m0"].epoch
    assert harness.commit(dict.fromkeys(both, 5), "m0", epoch).answer == [ErrorCode.NONE] * len(both)
    members.members.update({key: each._replace(names=ReadNames(each.names)) for key, each in members.members.items()})
    codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * count + [ErrorCode.NONE] * (count - 1)
    assert harness.offsets.delete_offsets(GROUP, both[:-1]) == (ErrorCode.NONE, codes)
    assert ReadNames.reads == count
    harness.time.advance(2500)
    assert ReadNames.reads == 2 * count
    left = [partition for partition in both if harness.offset(partition) is not None]
    assert left == both[:count]


class Machine:
    """A state machine without state."""

    is_removable = False


class Turns:
    """Timers that are due at once, each in its own turn of the event loop."""

    def __init__(self) -> None:
        self.due: list[VirtualTimer] = []

    def at(self, _: int, callback: Callable[[], None]) -> VirtualTimer:
        self.due.append(VirtualTimer(callback))
        return self.due[-1]

    after = at


@pytest.mark.parametrize("number", [1, 100, 101, 1050])
def test_many_replies_leave_in_slices(number: int) -> None:
    answered: list[int] = []
    turns, most = Turns(), event_processor.REPLIES_AT_ONCE
    processor: CoordinatorEventProcessor[Any] = CoordinatorEventProcessor(
        None,  # type: ignore[arg-type]
        None,
        VirtualTime(),
        turns,
    )
    machine = Machine()
    processor.host(LedPartition(0, 1, None), "group", machine)  # type: ignore[arg-type]
    processor.perform(machine, [Reply(answered.append, each) for each in range(number)])
    assert len(answered) == min(number, most)
    while turns.due:
        before = len(answered)
        turns.due.pop(0).callback()
        assert 0 < len(answered) - before <= most
    assert answered == list(range(number))


class ManySessions(Machine):
    """A state machine that notes its timers."""

    def __init__(self) -> None:
        self.fired: list[int] = []

    def timer(self, name: Any, now: Any) -> list[Any]:
        self.fired.append(int(name[0]))
        return []


@pytest.mark.parametrize("number", [1, 16, 17, 1000])
def test_timers_that_are_due_together_fire_in_slices(number: int) -> None:
    """The sessions of 20,000 members that a rebalance began end together."""
    turns, most = Turns(), event_processor.TIMERS_AT_ONCE
    processor: CoordinatorEventProcessor[Any] = CoordinatorEventProcessor(
        None,  # type: ignore[arg-type]
        None,
        VirtualTime(),
        turns,
    )
    machine = ManySessions()
    processor.host(LedPartition(0, 1, None), "group", machine)  # type: ignore[arg-type]
    for _ in range(2):
        machine.fired.clear()
        processor.perform(machine, [SetTimer((str(each),), 1000) for each in range(number)])
        sessions, turns.due[:] = list(turns.due), []
        for each in sessions:
            each.callback()  # in one iteration of the loop
        assert len(machine.fired) == min(number, most)
        if number > most + 1:
            processor.perform(
                machine, [CancelTimer((str(most),)), SetTimer((str(most + 1),), 2000)]
            )  # they have sent heartbeats
            turns.due.pop()
        while turns.due:
            before = len(machine.fired)
            turns.due.pop(0).callback()
            assert len(machine.fired) - before <= most
        renewed = {most, most + 1} if number > most + 1 else set()
        assert machine.fired == [each for each in range(number) if each not in renewed]
        processor.perform(machine, [CancelTimer((str(most + 1),))])
