"""Results in place of states: what queries show of the store of an aggregation by name (StoreBuilder.result).

A value of a store is bare, or `(value, timestamp)`, or a version with its times; its result has the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from odradek.streams.stores.interface import Rows, VersionedRecord

Result = Callable[[Any], Any]
"""The result of a state."""
_READS: Final = frozenset(
    {
        "get",
        "all",
        "reverse_all",
        "range",
        "reverse_range",
        "prefix_scan",
        "fetch",
        "fetch_range",
        "fetch_all",
        "backward_all",
        "backward_fetch",
        "backward_fetch_range",
        "backward_fetch_all",
        "fetch_session",
        "find_sessions",
        "backward_find_sessions",
        "find_sessions_range",
        "backward_find_sessions_range",
    }
)
"""The methods of all kinds of stores that return values, or rows of them."""


def shown(value: Any, result: Result, stamped: bool) -> Any:
    """What a store returned for one key, with the result; None stays None."""
    if value is None:
        return None
    if isinstance(value, VersionedRecord):
        return value._replace(value=result(value.value))
    return (result(value[0]), value[1]) if stamped else result(value)


def shown_rows(rows: Iterator[Any], result: Result, stamped: bool) -> Rows:
    """Rows of key and value, or versions, with results."""
    return Rows(_each(rows, result, stamped))


def _each(rows: Iterator[Any], result: Result, stamped: bool) -> Iterator[Any]:
    for row in rows:
        yield (
            shown(row, result, False) if isinstance(row, VersionedRecord) else (row[0], shown(row[1], result, stamped))
        )


class ResultStore:
    """A store whose reads return results. Its other methods are the store's."""

    def __init__(self, store: Any, result: Result, stamped: bool) -> None:
        """`stamped`: its reads return `(value, timestamp)`."""
        self._store = store
        self._result = result
        self._stamped = stamped

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._reading(found) if name in _READS else found

    def _reading(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def read(*arguments: Any) -> Any:
            found = method(*arguments)
            show = shown_rows if isinstance(found, Iterator) else shown
            return show(found, self._result, self._stamped)

        return read
