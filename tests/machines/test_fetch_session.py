"""Fetch sessions against a plain dictionary, and the rules for evicting sessions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.replication.state.fetch_session import (
    EVICTION_MS,
    MAX_INT32,
    FetchContext,
    FetchPartition,
    FetchSessions,
)
from odradek.broker.replication.state.follower import FetchPosition
from odradek.broker.replication.state.follower import FetchSessionHandler as FollowerSession
from odradek.protocol.errors import ErrorCode, KafkaError

Key = tuple[str | bytes, int]


def partition(index: int, offset: int = 0, topic: str = "t") -> FetchPartition:
    return FetchPartition(topic=topic, partition=index, fetch_offset=offset)


def numbers() -> Callable[[], int]:
    return count(1).__next__


def begin(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    partitions: list[FetchPartition] | None = None,
    forgotten: list[Key] | None = None,
    *,
    privileged: bool = False,
    ids: bool = False,
    now_ms: int = 0,
) -> FetchContext:
    return sessions.begin(
        session_id,
        epoch,
        partitions or [],
        forgotten or [],
        privileged=privileged,
        uses_topic_ids=ids,
        now_ms=now_ms,
    )


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99)), max_size=4), st.sets(st.integers(0, 5))),
        max_size=12,
    )
)
def test_a_session_is_a_dictionary_with_incremental_updates(
    steps: list[tuple[list[tuple[int, int]], set[int]]],
) -> None:
    sessions = FetchSessions(10, numbers())
    context = begin(sessions, 0, 0, [partition(9)])
    model = {("t", 9): 0}
    epoch = 1
    for changed, forgotten in steps:
        context = begin(
            sessions,
            context.session_id,
            epoch,
            [partition(index, offset) for index, offset in changed],
            [("t", index) for index in forgotten],
        )
        model.update({("t", index): offset for index, offset in changed})
        for index in forgotten:
            model.pop(("t", index), None)
        assert {each.key: each.fetch_offset for each in context.partitions} == model
        assert context.incremental
        epoch += 1


def test_an_incremental_response_has_only_changes() -> None:
    notified = partition(0)
    assert notified.must_respond(ErrorCode.NONE, 0, 5, 0)
    assert not notified.must_respond(ErrorCode.NONE, 0, 5, 0)
    assert notified.must_respond(ErrorCode.NONE, 100, 5, 0), "records are always returned"
    assert notified.must_respond(ErrorCode.NONE, 0, 6, 0), "so is a new high watermark"
    assert notified.must_respond(ErrorCode.NONE, 0, 6, 1), "and a new start"
    assert notified.must_respond(ErrorCode.OFFSET_OUT_OF_RANGE, 0, -1, -1)
    assert notified.must_respond(ErrorCode.NONE, 0, 6, 1), "after an error the response has the partition again"


def test_the_sent_state_of_a_session_survives_a_change_of_its_partitions() -> None:
    sessions = FetchSessions(10, numbers())
    first = begin(sessions, 0, 0, [partition(0)])
    first.partitions[0].must_respond(ErrorCode.NONE, 0, 7, 0)
    again = begin(sessions, first.session_id, 1, [partition(0, 5)])
    assert again.partitions[0].fetch_offset == 5
    assert not again.partitions[0].must_respond(ErrorCode.NONE, 0, 7, 0)


def test_a_follower_receives_the_compaction_progress_of_all_when_it_changes() -> None:
    sessions = FetchSessions(10, numbers())
    first = begin(sessions, 0, 0, [partition(0)])
    notified = first.partitions[0]
    assert notified.must_respond_compacted(0)
    assert not notified.must_respond_compacted(0)
    assert notified.must_respond_compacted(7)
    assert notified.must_respond_compacted(3), "it falls when a replica has lost its disk"
    again = begin(sessions, first.session_id, 1, [partition(0, 5)]).partitions[0]
    assert not again.must_respond_compacted(3), "a follower that continues its session keeps the value"
    assert again.must_respond_compacted(-1), "an error carries no value"
    assert again.must_respond_compacted(3)
    anew = partition(0, 5)
    anew.current_leader_epoch = 1
    assert begin(sessions, first.session_id, 2, [anew]).partitions[0].must_respond_compacted(3), "a new epoch"


def test_a_kafka_broker_receives_no_progress() -> None:
    assert not partition(0).must_respond_compacted(-1)


def test_a_follower_names_a_partition_again_when_more_of_it_is_compacted() -> None:
    session: FollowerSession[str] = FollowerSession()
    position = FetchPosition(10, 0, 0, 0)
    assert session.next({"a": position, "b": position}) == (["a", "b"], [])
    session.answered(7)
    assert session.next({"a": position, "b": position}) == ([], [])
    session.answered(7)
    assert session.next({"a": position, "b": position._replace(cleaned_to=4)}) == (["b"], [])


def test_epochs_are_counted_and_wrap_to_one() -> None:
    sessions = FetchSessions(10, numbers())
    session = begin(sessions, 0, 0, [partition(0)]).session
    assert session is not None
    for wrong in (2, 7):
        with pytest.raises(KafkaError) as refused:
            begin(sessions, session.session_id, wrong)
        assert refused.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    session.epoch = MAX_INT32
    begin(sessions, session.session_id, MAX_INT32)
    assert session.epoch == 1


def test_sessions_that_do_not_exist_or_changed_their_kind() -> None:
    sessions = FetchSessions(10, numbers())
    with pytest.raises(KafkaError) as refused:
        begin(sessions, 99, 1)
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    context = begin(sessions, 0, 0, [partition(0)])
    with pytest.raises(KafkaError) as refused:
        begin(sessions, context.session_id, 1, ids=True)
    assert refused.value.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_full_fetch_ends_the_session_that_it_names() -> None:
    sessions = FetchSessions(10, numbers())
    first = begin(sessions, 0, 0, [partition(0)])
    second = begin(sessions, first.session_id, 0, [partition(0)])
    assert second.session_id not in (0, first.session_id)
    assert len(sessions) == 1
    last = begin(sessions, second.session_id, -1, [partition(0)])
    assert (last.session_id, len(sessions)) == (0, 0)


def test_a_session_that_has_forgotten_everything_ends() -> None:
    sessions = FetchSessions(10, numbers())
    context = begin(sessions, 0, 0, [partition(0)])
    assert begin(sessions, context.session_id, 1, forgotten=[("t", 0)]).session_id == 0
    assert len(sessions) == 0


def test_which_session_is_evicted_from_a_full_cache() -> None:
    sessions = FetchSessions(1, numbers())
    small = begin(sessions, 0, 0, [partition(0)])
    assert begin(sessions, 0, 0, [partition(0)]).session_id == 0, "one of the same size is not cached"
    larger = begin(sessions, 0, 0, [partition(0), partition(1)])
    assert larger.session_id != 0, "a larger one replaces a smaller one"
    with pytest.raises(KafkaError):
        begin(sessions, small.session_id, 1)
    follower = begin(sessions, 0, 0, [partition(0)], privileged=True)
    assert follower.session_id != 0, "a follower replaces a consumer"
    assert begin(sessions, 0, 0, [partition(n) for n in range(9)]).session_id == 0, "and not the other way"
    stale = begin(sessions, 0, 0, [partition(0)], now_ms=EVICTION_MS + 1)
    assert stale.session_id != 0, "a session without a fetch for two minutes is evicted"
    assert sessions.evictions == 3


def test_partitions_with_records_move_to_the_end_of_the_list() -> None:
    sessions = FetchSessions(10, numbers())
    session = begin(sessions, 0, 0, [partition(n) for n in range(3)]).session
    assert session is not None
    session.served([("t", 0)])
    context = begin(sessions, session.session_id, 1)
    assert [each.partition for each in context.partitions] == [1, 2, 0]
