"""Committed offsets against a model that has only the log: the durable records, and their order in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.broker.group.state import records
from odradek.broker.group.state.offsets import NO_EXPIRY, OffsetAndMetadata, Offsets, Stage
from odradek.broker.group.state.records import (
    LONGEST_REMEMBERED,
    OffsetKey,
    offset_key,
    offset_record,
    read_key,
    read_offset,
)
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

PARTITIONS: list[TopicPartition] = [("a", 0), ("a", 1), ("b", 0)]
PRODUCERS = [None, 1, 2]


def commit(offset: int, *, commit_ms: int = 0, expire_ms: int = -1) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, -1, "", commit_ms, expire_ms)


class Commits(RuleBasedStateMachine):
    """Commits of consumers and of transactions, whose outcomes arrive in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = Offsets()
        self.under_way: list[Stage] = []
        self.value = 0
        # The log in its order: (stage, outcome), the outcome None while it is pending.
        self.log: list[tuple[Any, bool | None]] = []

    @rule(partitions=st.sets(st.sampled_from(PARTITIONS), min_size=1), producer=st.sampled_from(PRODUCERS))
    def stage(self, partitions: set[TopicPartition], producer: int | None) -> None:
        self.value += 1
        stage = self.offsets.stage([(each, commit(self.value)) for each in sorted(partitions)], producer)
        self.under_way.append(stage)
        self.log.append((stage, None))

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), durable=st.sampled_from([True, True, False]))
    def finish(self, data: st.DataObject, durable: bool) -> None:
        stage = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.offsets.finish(stage, durable)
        self.log = [(each, durable if each is stage else outcome) for each, outcome in self.log]

    @rule(producer=st.sampled_from([1, 2]), committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        # A marker is written after the records of its transaction are durable.
        if any(stage.producer_id == producer for stage in self.under_way):
            return
        self.offsets.complete(producer, committed)
        self.log.append((("marker", producer, committed), True))

    def expected(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, tuple[int, int]] = {}
        pending: dict[int, dict[TopicPartition, tuple[int, int]]] = {1: {}, 2: {}}
        for place, (item, durable) in enumerate(self.log):
            if not isinstance(item, Stage):
                _, producer, committed = item
                for partition, (order, value) in pending[producer].items():
                    if committed and found.get(partition, (-1, 0))[0] < order:
                        found[partition] = (order, value)
                pending[producer] = {}
                continue
            if not durable:
                continue
            target = found if item.producer_id is None else pending[item.producer_id]
            for partition, committed_offset in item.entries:
                if target.get(partition, (-1, 0))[0] < place:
                    target[partition] = (place, committed_offset.offset)
        return {partition: value for partition, (_, value) in found.items()}

    @invariant()
    def what_is_durable_last_is_seen(self) -> None:
        assert {partition: committed.offset for partition, committed in self.offsets.items()} == self.expected()

    @invariant()
    def what_is_under_way_is_unstable(self) -> None:
        for stage in self.under_way:
            assert all(self.offsets.is_unstable(partition) for partition, _ in stage.entries)

    @invariant()
    def nothing_is_left_when_nothing_is_there(self) -> None:
        if not self.log:
            assert not self.offsets.in_use


TestCommits = Commits.TestCase


def test_an_older_commit_that_completes_later_does_not_win() -> None:
    offsets = Offsets()
    first, second = offsets.stage([(("t", 0), commit(1))]), offsets.stage([(("t", 0), commit(2))])
    offsets.finish(second, durable=True)
    offsets.finish(first, durable=True)
    assert offsets.get(("t", 0)) == commit(2)


def test_an_older_commit_counts_when_the_newer_one_is_refused_first() -> None:
    offsets = Offsets()
    first, second = offsets.stage([(("t", 0), commit(1))]), offsets.stage([(("t", 0), commit(2))])
    offsets.finish(second, durable=False)
    offsets.finish(first, durable=True)
    assert offsets.get(("t", 0)) == commit(1)
    assert not offsets.is_unstable(("t", 0))


def test_a_commit_in_flight_does_not_reappear_after_its_partition_was_removed() -> None:
    offsets = Offsets()
    stage = offsets.stage([(("t", 0), commit(1))])
    assert offsets.remove([("t", 0), ("t", 1)]).partitions == (("t", 0),)
    later = offsets.stage([(("t", 0), commit(2))])
    offsets.finish(stage, durable=True)
    assert offsets.get(("t", 0)) is None
    offsets.finish(later, durable=True)
    assert offsets.get(("t", 0)) == commit(2)


def test_a_transaction_is_visible_with_its_marker_and_loses_to_a_later_commit() -> None:
    offsets = Offsets()
    offsets.replay(("t", 0), commit(1), producer_id=7)
    offsets.replay(("t", 1), commit(1), producer_id=7)
    offsets.replay(("t", 1), commit(2))
    assert offsets.get(("t", 0)) is None
    fetched = offsets.fetch([("t", 0)], require_stable=True)
    assert fetched[0].error is ErrorCode.UNSTABLE_OFFSET_COMMIT
    offsets.complete(7, commit=True)
    assert offsets.get(("t", 0)) == commit(1)
    assert offsets.get(("t", 1)) == commit(2)


def test_an_aborted_transaction_leaves_nothing() -> None:
    offsets = Offsets()
    offsets.replay(("t", 0), commit(1), producer_id=7)
    assert offsets.in_use, "a group that a transaction is about to use is not removed"
    offsets.complete(7, commit=False)
    assert not offsets.in_use


def test_a_refused_transactional_commit_leaves_nothing() -> None:
    offsets = Offsets()
    offsets.finish(offsets.stage([(("t", 0), commit(1))], 7), durable=False)
    assert not offsets.in_use


def test_commits_in_flight_do_not_expire() -> None:
    offsets = Offsets()
    offsets.replay(("t", 0), commit(1))
    offsets.replay(("t", 1), commit(1))
    offsets.replay(("t", 2), commit(1))
    offsets.stage([(("t", 0), commit(2))])
    offsets.stage([(("t", 1), commit(2))], 7)
    assert offsets.expire(100, 10, None).partitions == (("t", 2),)


@given(
    now=st.integers(0, 100),
    committed=st.integers(0, 100),
    base=st.none() | st.integers(0, 100),
    retention=st.integers(0, 100),
    own=st.none() | st.integers(0, 100),
)
def test_expiry_counts_from_the_base_the_commit_or_the_commits_own_time(
    now: int, committed: int, base: int | None, retention: int, own: int | None
) -> None:
    offsets = Offsets()
    offsets.replay(("t", 0), commit(1, commit_ms=committed, expire_ms=-1 if own is None else own))
    expired = offsets.expire(now, retention, base).partitions
    begin = committed if base is None else base
    assert bool(expired) == (now >= own if own is not None else now - begin >= retention)
    assert bool(expired) == (len(offsets) == 0)


@given(
    group=st.text(max_size=20),
    topic=st.text(max_size=20),
    index=st.integers(0, 2**31 - 1),
    committed=st.builds(
        OffsetAndMetadata,
        st.integers(0, 2**63 - 1),
        st.integers(-1, 2**31 - 1),
        st.text(max_size=20),
        st.integers(0, 2**62),
        st.just(-1) | st.integers(0, 2**62),
    ),
)
def test_a_commit_survives_its_record(group: str, topic: str, index: int, committed: OffsetAndMetadata) -> None:
    key, value = offset_record(group, (topic, index), committed)
    if committed.expire_ms == NO_EXPIRY:
        whole = m.OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_ms,
        )
        assert value == whole.encode(3, b"\0\3")
    assert value is not None
    assert read_key(key) == (group, (topic, index))
    if committed.expire_ms != -1:
        committed = committed._replace(leader_epoch=-1)  # version 1 of the value has no field for it
    assert read_offset(value) == committed


class Deleted(dict[tuple[str, int], None]):
    """The partitions of a large topic, which are not to be searched one by one for each group."""

    def __iter__(self) -> Iterator[tuple[str, int]]:
        raise AssertionError("every partition of the topic is read")


def test_the_deletion_of_a_large_topic_costs_a_group_no_more_than_its_own_offsets() -> None:
    offsets = Offsets()
    offsets.put([((topic, 0), commit(1)) for topic in ("deleted", "other")])
    partitions = Deleted.fromkeys([("deleted", index) for index in range(1000)])
    assert offsets.remove(offsets.among(partitions), pending=True).partitions == (("deleted", 0),)
    assert offsets.partitions() == [("other", 0)]
    few = {("other", 0): None}
    offsets.put([(("other", index), commit(1)) for index in range(9)])
    assert offsets.among(few) is few


@given(st.text(max_size=8), st.text(max_size=8), st.integers(0, 2**31 - 1), st.booleans())
def test_a_remembered_key_is_that_of_its_offset(group: str, topic: str, partition: int, is_long: bool) -> None:
    group += "g" * (LONGEST_REMEMBERED + 1) * is_long
    before = records._remembered_key.cache_info().currsize
    for _ in range(2):
        assert read_key(offset_key(group, (topic, partition))) == OffsetKey(group, (topic, partition))
    grown = records._remembered_key.cache_info().currsize - before
    assert grown <= (not is_long)
