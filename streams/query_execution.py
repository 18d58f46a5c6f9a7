"""Execution of queries on stores (KIP-796; Kafka: StoreQueryUtils and the query handlers of the metered stores)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from odradek.streams.errors import InvalidStateStoreError
from odradek.streams.queries import check_open
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
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from odradek.streams.stores.interface import (
    KeyValueStore,
    Rows,
    SessionStore,
    VersionedKeyValueStore,
    WindowStore,
)

Handler = Callable[[Any, Any], Any]
BARE: Final = (KeyQuery, RangeQuery)
"""The queries whose answers have no timestamps, though the store may have them."""


def execute(
    store: Any, stamped: bool, query: Query, bound: PositionBound, position: Position, partition: int
) -> QueryResult:
    """The result of one partition's store, whose task has processed its input up to `position`; the caller holds the
    lock of the store. `stamped`: values are `(value, timestamp)` in the store.
    """
    if not position.reaches(bound.position, partition):
        return QueryResult(
            None,
            FailureReason.NOT_UP_TO_BOUND,
            f"For store partition {partition}, the current position {position} is not yet up to the bound "
            f"{bound.position}",
            position,
        )
    handler = _handler(store, stamped, query)
    if handler is None:
        kind = type(query).__name__
        return QueryResult(
            None,
            FailureReason.UNKNOWN_QUERY_TYPE,
            f"The store {store.name} ({type(store).__name__}) cannot answer a {kind}",
            position,
        )
    try:
        return QueryResult(handler(check_open(store), query), position=position)
    except InvalidStateStoreError:
        raise
    except Exception as error:
        return QueryResult(None, FailureReason.STORE_EXCEPTION, f"{store.name}: {error!r}", position)


def _handler(store: Any, stamped: bool, query: Query) -> Handler | None:
    """The function that answers this kind of query from this kind of store; None where there is none."""
    if isinstance(query, TimestampedKeyQuery | TimestampedRangeQuery) and not stamped:
        return None
    if isinstance(query, WindowRangeQuery):
        by_key = query.key is not None
        wanted, handler = (SessionStore, _sessions) if by_key else (WindowStore, _windows)
        return handler if isinstance(store, wanted) and (by_key or query.time_from is not None) else None
    kind, found = _HANDLERS[type(query)]
    if not isinstance(store, kind):
        return None
    if stamped and type(query) in BARE:
        return _plain_key if isinstance(query, KeyQuery) else _plain_range
    return found


def _key(store: Any, query: KeyQuery | TimestampedKeyQuery) -> Any:
    read = getattr(store, "read_stored", store.get) if query.skip_cache else getattr(store, "peek", store.get)
    return read(query.key)


def _plain_key(store: Any, query: KeyQuery) -> Any:
    found = _key(store, query)
    return None if found is None else found[0]


def _range(store: Any, query: RangeQuery | TimestampedRangeQuery) -> Rows:
    rows: Rows = (
        store.reverse_range(query.lower_bound, query.upper_bound)
        if query.result_order is ResultOrder.DESCENDING
        else store.range(query.lower_bound, query.upper_bound)
    )
    return rows


def _plain_range(store: Any, query: RangeQuery) -> Rows:
    return Rows(_values(_range(store, query)))


def _values(rows: Iterator[Any]) -> Iterator[Any]:
    for key, stamped in rows:
        yield key, stamped[0]


def _window_key(store: Any, query: WindowKeyQuery) -> Rows:
    rows: Rows = store.fetch(query.key, _ms(query.time_from), _ms(query.time_to))
    return rows


def _windows(store: Any, query: WindowRangeQuery) -> Rows:
    assert query.time_from is not None
    assert query.time_to is not None
    rows: Rows = store.fetch_all(_ms(query.time_from), _ms(query.time_to))
    return rows


def _sessions(store: Any, query: WindowRangeQuery) -> Rows:
    rows: Rows = store.fetch(query.key)
    return rows


def _version(store: Any, query: VersionedKeyQuery) -> Any:
    if query.as_of is None:
        return store.get(query.key)
    at = _ms(query.as_of)
    return next(iter(store.versions(query.key, at, at)), None)


def _versions(store: Any, query: MultiVersionedKeyQuery) -> Rows:
    start = None if query.from_time is None else _ms(query.from_time)
    end = None if query.to_time is None else _ms(query.to_time)
    found = store.versions(query.key, start, end)
    return Rows(iter(found[::-1] if query.result_order is ResultOrder.ASCENDING else found))


_HANDLERS: Final[Mapping[type, tuple[type, Handler]]] = {
    KeyQuery: (KeyValueStore, _key),
    TimestampedKeyQuery: (KeyValueStore, _key),
    RangeQuery: (KeyValueStore, _range),
    TimestampedRangeQuery: (KeyValueStore, _range),
    WindowKeyQuery: (WindowStore, _window_key),
    VersionedKeyQuery: (VersionedKeyValueStore, _version),
    MultiVersionedKeyQuery: (VersionedKeyValueStore, _versions),
}


def _ms(moment: int | datetime) -> int:
    return round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
