"""Queries of version 2 (KIP-796), compared with Java's stores: every kind of query on every kind of store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import jpype
import pytest

from odradek.streams.errors import StreamsError
from odradek.streams.processor import Processor
from odradek.streams.query_execution import execute
from odradek.streams.records import Record, Window, Windowed
from odradek.streams.serdes import STRING
from odradek.streams.state_query import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    Position,
    PositionBound,
    Query,
    QueryResult,
    RangeQuery,
    ResultOrder,
    StateQueryResult,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from odradek.streams.stores import builders
from odradek.streams.stores.builders import StoreBuilder
from tests.streams.oracle.implementations import Pair, Piped
from tests.streams.oracle.java import Java, java
from tests.streams.oracle.java_processor import JavaStore, read_result
from tests.streams.oracle.values import to_java
from tests.streams.stores.implementations import Context, result_of

NAME: Final = "store"
WEEK_MS: Final = 7 * 24 * 3600 * 1000
ROWS: Final[list[tuple[Any, ...]]] = [("b", "2"), ("a", "1"), ("d", "4"), ("c", "3"), ("b", "5"), ("d", None)]
STAMPED: Final[list[tuple[Any, ...]]] = [
    (key, None if value is None else (value, at)) for at, (key, value) in enumerate(ROWS)
]
VERSIONS: Final[list[tuple[Any, ...]]] = [
    ("k", *version) for version in (("1", 10), ("3", 30), (None, 50), ("7", 70), ("2", 20))
]
STORES: Final[dict[str, tuple[StoreBuilder, list[tuple[Any, ...]]]]] = {
    "plain": (builders.key_value_store(NAME, STRING, STRING), ROWS),
    "stamped": (builders.timestamped_key_value_store(NAME, STRING, STRING), STAMPED),
    "cached": (builders.timestamped_key_value_store(NAME, STRING, STRING).with_caching(), STAMPED),
    "windows": (
        builders.window_store(NAME, WEEK_MS, 10, STRING, STRING),
        [(*row, at) for at, row in enumerate(ROWS)],
    ),
    "stamped windows": (
        builders.timestamped_window_store(NAME, WEEK_MS, 10, STRING, STRING, persistent=False),
        [(*row, at) for at, row in enumerate(STAMPED)],
    ),
    "sessions": (
        builders.session_store(NAME, WEEK_MS, STRING, STRING),
        [(Windowed(key, Window(at, at + 5)), value) for at, (key, value) in enumerate(ROWS)],
    ),
    "versioned": (builders.versioned_key_value_store(NAME, WEEK_MS, STRING, STRING), VERSIONS),
}
QUERIES: Final[dict[str, Sequence[Query]]] = {
    "key": [KeyQuery(each) for each in "abdz"] + [KeyQuery("b", skip_cache=True)],
    "timestamped key": [TimestampedKeyQuery(each) for each in "abdz"] + [TimestampedKeyQuery("b", skip_cache=True)],
    "range": [
        RangeQuery(low, high, order)
        for low, high in ((None, None), ("b", None), (None, "b"), ("b", "c"))
        for order in ResultOrder
    ],
    "timestamped range": [
        TimestampedRangeQuery(low, high, order) for low, high in ((None, None), ("b", "c")) for order in ResultOrder
    ],
    "window key": [WindowKeyQuery(key, 0, end) for key in "bdz" for end in (1, 100)],
    "window range": [WindowRangeQuery(time_from=1, time_to=3), WindowRangeQuery(key="b"), WindowRangeQuery(key="z")],
    "versioned key": [VersionedKeyQuery(key, at) for key in "kz" for at in (None, 9, 10, 29, 50, 100)],
    "versions": [
        MultiVersionedKeyQuery("k", frm, to, order)
        for frm, to in ((None, None), (10, 20), (25, None), (None, 25), (55, 60), (80, 90), (0, 5))
        for order in ResultOrder
    ],
}


class Writing(Processor[str, str, str, str]):
    """Writes a row for each record, whose value is the number of the row."""

    rows: ClassVar[list[tuple[Any, ...]]] = []

    def process(self, record: Record[str, str]) -> None:
        """Write to either side's store."""
        store = self.context.state_store(NAME)
        row = self.rows[int(record.value)]
        store.put(*(map(_java_stamp, row) if isinstance(store, JavaStore) else row))


def _java_stamp(value: Any) -> Any:
    if type(value) is tuple:
        return java().ValueAndTimestamp.make(java().String(value[0]), value[1])
    return value


def java_query(query: Query) -> Any:
    """Java's query of the same fields."""
    kind = getattr(java(), type(query).__name__)
    instant = java().Instant.ofEpochMilli
    if isinstance(query, KeyQuery | TimestampedKeyQuery):
        made = kind.withKey(to_java(query.key))
        return made.skipCache() if query.skip_cache else made
    if isinstance(query, WindowKeyQuery):
        return kind.withKeyAndWindowStartRange(to_java(query.key), instant(query.time_from), instant(query.time_to))
    if isinstance(query, WindowRangeQuery):
        if query.key is not None:
            return kind.withKey(to_java(query.key))
        return kind.withWindowStartRange(instant(query.time_from), instant(query.time_to))
    if isinstance(query, VersionedKeyQuery):
        made = kind.withKey(to_java(query.key))
        return made if query.as_of is None else made.asOf(instant(query.as_of))
    if isinstance(query, MultiVersionedKeyQuery):
        made = kind.withKey(to_java(query.key))
        made = made if query.from_time is None else made.fromTime(instant(query.from_time))
        made = made if query.to_time is None else made.toTime(instant(query.to_time))
        names = {ResultOrder.ASCENDING: "withAscendingTimestamps", ResultOrder.DESCENDING: "withDescendingTimestamps"}
    else:
        made = kind.withRange(to_java(query.lower_bound), to_java(query.upper_bound))
        names = {ResultOrder.ASCENDING: "withAscendingKeys", ResultOrder.DESCENDING: "withDescendingKeys"}
    return getattr(made, names[query.result_order])() if query.result_order in names else made


def outcome(result: QueryResult) -> Any:
    return result.failure_reason.name if result.failure_reason is not None else result_of(result.result)


def java_outcome(store: Any, query: Query) -> Any:
    result = store.query(java_query(query), java().PositionBound.unbounded(), java().QueryConfig(False))
    if bool(result.isFailure()):
        return str(result.getFailureReason().name())
    return result_of(read_result(result.getResult()))


@pytest.mark.parametrize("store", STORES)
def test_results_are_java_s(java: Java, store: str) -> None:
    builder, rows = STORES[store]
    kind = type("Writer", (Writing,), {"rows": rows})

    def build(topology: Any) -> None:
        topology.add_source("in", "in", key=STRING, value=STRING).add_processor("writing", kind, "in")
        topology.add_state_store(builder, "writing")

    compared = 0
    with Pair(build, by_hand=True) as pair:
        for number in range(len(rows)):
            pair.step(Piped("in", "k", str(number), number))
        ours, theirs = pair.ours.get_state_store(NAME), pair.theirs.store(NAME)
        for name, queries in QUERIES.items():
            if store == "versioned" and name in ("key", "range"):
                continue  # Java throws UnsupportedOperationException; here it is an unknown type of query
            for query in queries:
                found = outcome(execute(ours, builder.stamped, query, PositionBound(), Position(), 0))
                assert found == java_outcome(theirs, query), query
                compared += found != "UNKNOWN_QUERY_TYPE"
    assert compared >= 2


def test_a_versioned_store_has_no_plain_rows() -> None:
    store = STORES["versioned"][0].build()
    store.init(Context())
    for query in (KeyQuery("k"), RangeQuery()):
        assert outcome(execute(store, False, query, PositionBound(), Position(), 0)) == "UNKNOWN_QUERY_TYPE"


def test_skip_cache_reads_below_the_cache() -> None:
    store: Any = STORES["cached"][0].build()
    store.init(Context())
    store.put("k", ("old", 1))
    store.flush_cache()
    store.put("k", ("new", 2))
    values = [
        execute(store, True, KeyQuery("k", skip_cache=skip), PositionBound(), Position(), 0).result
        for skip in (False, True)
    ]
    assert values == ["new", "old"]


def test_a_store_s_error_is_a_failure() -> None:
    store = STORES["plain"][0].build()
    store.init(Context())
    failed = execute(store, False, KeyQuery(5), PositionBound(), Position(), 0)
    assert failed.failure_reason is FailureReason.STORE_EXCEPTION
    assert failed.is_failure
    with pytest.raises(StreamsError, match="STORE_EXCEPTION"):
        _ = failed.result


def _java_position(offsets: dict[str, dict[int, int]]) -> Any:
    made = java().Position.emptyPosition()
    for topic, each in offsets.items():
        for partition, offset in each.items():
            made.withComponent(topic, jpype.JInt(partition), jpype.JLong(offset))
    return made


OFFSETS: Final[list[dict[str, dict[int, int]]]] = [
    {},
    {"a": {0: 5}},
    {"a": {0: 4, 1: 9}},
    {"a": {0: 6}, "b": {0: 1}},
    {"b": {1: 3}},
]


@pytest.mark.parametrize("other", OFFSETS)
@pytest.mark.parametrize("offsets", OFFSETS)
def test_positions_are_java_s(java: Java, offsets: dict[str, dict[int, int]], other: dict[str, dict[int, int]]) -> None:
    ours, theirs = Position.from_map(offsets), _java_position(offsets)
    bound = PositionBound.at(Position(other))
    permitted: Callable[..., Any] = java.find("org.apache.kafka.streams.state.internals.StoreQueryUtils").isPermitted
    for partition in (0, 1, 2):
        java_bound = java.PositionBound.at(_java_position(other))
        assert ours.reaches(bound.position, partition) == bool(permitted(theirs, java_bound, partition))
    merged, java_merged = ours.copy().merge(bound.position), theirs.copy().merge(_java_position(other))
    assert merged.topics == {str(topic) for topic in java_merged.getTopics()}
    for topic in merged.topics:
        found = java_merged.getPartitionPositions(topic)
        assert merged.partition_positions(topic) == {int(each): int(offset) for each, offset in found.items()}
    assert ours == Position(offsets)
    assert (merged == ours) == bool(java_merged.equals(theirs))
    assert ours.is_empty == bool(theirs.isEmpty())
    assert bound.is_unbounded == (not other)


def test_a_bound_that_is_not_reached_is_a_failure() -> None:
    store: Any = STORES["plain"][0].build()
    store.init(Context())
    store.put("k", "v")
    position = Position().with_component("in", 3, 7)
    for offset, reason in ((7, None), (8, FailureReason.NOT_UP_TO_BOUND)):
        bound = PositionBound.at(Position().with_component("in", 3, offset))
        found = execute(store, False, KeyQuery("k"), bound, position, 3)
        assert found.failure_reason is reason
        assert found.position == position


def test_the_only_result_is_the_one_with_a_value() -> None:
    empty, one, failed = QueryResult(None), QueryResult("v"), QueryResult(failure_reason=FailureReason.NOT_ACTIVE)
    assert StateQueryResult({0: empty, 1: failed}).only_partition_result is None
    assert StateQueryResult({0: empty, 1: one, 2: failed}).only_partition_result is one
    with pytest.raises(StreamsError, match="exactly one"):
        _ = StateQueryResult({0: one, 1: QueryResult("w")}).only_partition_result
