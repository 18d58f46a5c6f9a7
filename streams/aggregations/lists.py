"""Lists of values: all of them, or the greatest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.streams.aggregations.aggregation import Aggregation
from odradek.streams.aggregations.fields import Field, is_null, reader_of
from odradek.streams.aggregations.state import STATE_OF_LISTS, encode_canonically
from odradek.streams.errors import ArgumentError
from odradek.streams.functions import place_of_call
from odradek.streams.serdes import Serde, list_serde


def collect(field: Field = None, limit: int | None = None) -> Aggregation[list[Any]]:
    """The values of a field, in the order of the records; of more than `limit`, the first. Raises ArgumentError.

    A list without a limit grows until its record is too large for the changelog.
    """
    return _Collect(field, limit)


def top_k(k: int, field: Field = None, *, by: Field = None) -> Aggregation[list[Any]]:
    """The `k` greatest values of a field, the greatest first. Raises ArgumentError.

    With `by`, which is also a field, the values are ranked by that one: `top_k(3, by="amount")` are the three records
    with the greatest amounts. Of equal ranks the value whose CBOR is the least comes first, also where the records
    came in another order.
    """
    return _TopK(k, field, by)


def _check_count(name: str, what: str, count: Any) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ArgumentError(f"{name}() at {place_of_call()}: {what} is {count!r}; expected an int of at least 1")


class _Lists(Aggregation[list[Any]]):
    """The state is the list."""

    serde = STATE_OF_LISTS

    def serde_of(self, value: Serde[Any] | None) -> Serde[Any]:
        """Lists of whole values are written by the serde of the values, where it is known."""
        return self.serde if value is None or self._read is not None or not self.state_is_result else list_serde(value)

    def result(self, state: Any) -> list[Any]:
        return state or []


class _Collect(_Lists):
    def __init__(self, field: Field, limit: int | None) -> None:
        super().__init__("collect", field)
        if limit is not None:
            _check_count("collect", "the limit", limit)
            self.cannot_subtract = "the values beyond the limit are unknown: collect() without a limit"
        self._limit = limit

    def add(self, item: Any, state: Any) -> list[Any]:
        if state is None:
            return [item]
        return state if self._is_full(state) else [*state, item]

    def _is_full(self, state: list[Any]) -> bool:
        return self._limit is not None and len(state) >= self._limit

    def subtract(self, item: Any, state: Any) -> list[Any]:
        """Without the last value that equals it."""
        for at in range(len(state) - 1, -1, -1):
            if state[at] == item:
                return [*state[:at], *state[at + 1 :]]
        return list(state)

    def merge(self, one: Any, other: Any) -> list[Any]:
        return [*one, *other][: self._limit]


class _TopK(_Lists):
    """With `by` the state is a list of [rank, value]."""

    cannot_subtract = (
        "when one of the greatest values changes, the next one is unknown: aggregate a stream, or collect() the values "
        "and map them"
    )

    def __init__(self, k: int, field: Field, by: Field) -> None:
        super().__init__("top_k", field)
        _check_count("top_k", "k", k)
        self._k = k
        self._by = by
        self._rank = reader_of(by, "top_k(by=…)")
        self.state_is_result = by is None

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        return {**super().functions, **({"by": self._by} if callable(self._by) else {})}

    def aggregator(self, key: Any, value: Any, state: Any) -> Any:
        if self._rank is None:
            return super().aggregator(key, value, state)
        rank = None if value is None else self._rank(value)
        item = value if self._read is None else self._read(value)
        return state if is_null(rank) or is_null(item) else self.add([rank, item], state)

    def add(self, item: Any, state: Any) -> list[Any]:
        """`item` is an entry of the list: the value, or [rank, value]."""
        entries = state or []
        at = next((at for at, each in enumerate(entries) if self._precedes(item, each)), len(entries))
        return [*entries[:at], item, *entries[at:]][: self._k]

    def merge(self, one: Any, other: Any) -> list[Any]:
        entries: list[Any] = one
        for each in other:
            entries = self.add(each, entries)
        return entries

    def _precedes(self, one: Any, other: Any) -> bool:
        """Whether an entry belongs before another one."""
        rank, other_rank = (one, other) if self._rank is None else (one[0], other[0])
        if rank > other_rank:
            return True
        if rank < other_rank:
            return False
        return encode_canonically(one) < encode_canonically(other)

    def result(self, state: Any) -> list[Any]:
        return [each[1] for each in state or []] if self._rank is not None else state or []
