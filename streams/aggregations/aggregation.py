"""The base of all aggregations, and the combination of several.

A state is a plain value that CBOR can write; None is the state before the first value. States are never changed in
place: a table downstream may still need the old one. `add`, `merge` and `subtract` return a new state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from odradek.streams.aggregations.fields import Field, is_null, reader_of
from odradek.streams.aggregations.state import STATE, STATE_OF_LISTS
from odradek.streams.errors import ArgumentError
from odradek.streams.functions import place_of_call
from odradek.streams.serdes import Serde

R = TypeVar("R")


class Aggregation(ABC, Generic[R]):
    """One aggregation. `R` is the type of its results."""

    cannot_subtract: str | None = None
    """Why the rows of a table cannot be aggregated, whose old values have to be subtracted; None where they can."""
    state_is_result = True
    """Whether the state is the result itself, so that the table of the aggregation needs no second node."""
    serde: Serde[Any] = STATE
    """The default serde of the store."""

    def __init__(self, name: str, field: Field) -> None:
        """`name` is that of the operator, for messages. Raises ArgumentError for what is no field."""
        self.name = name
        self.field = field
        self._read = reader_of(field, f"{name}()")

    def serde_of(self, value: Serde[Any] | None) -> Serde[Any]:
        """The default serde of the store, where `value` is the one of the aggregated values, if it is known."""
        return self.serde

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of the value, by the names of their parameters, for the checks of build()."""
        return {"field": self.field} if callable(self.field) else {}

    # ---- as operators call them

    def aggregator(self, key: Any, value: Any, state: Any) -> Any:
        """The state with one more value; a record without a value, which windows may have, does not change it."""
        item = value if self._read is None or value is None else self._read(value)
        return state if is_null(item) else self.add(item, state)

    def subtractor(self, key: Any, value: Any, state: Any) -> Any:
        """The state without one of its values."""
        item = value if self._read is None else self._read(value)
        return state if is_null(item) or state is None else self.subtract(item, state)

    def merger(self, key: Any, one: Any, other: Any) -> Any:
        """The state of the values of both; `one` is the earlier session."""
        if one is None or other is None:
            return other if one is None else one
        return self.merge(one, other)

    # ---- what an aggregation is

    @abstractmethod
    def add(self, item: Any, state: Any) -> Any:
        """The state with one more field; `item` is not null, `state` may be None."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """The state of the fields of both, neither of which is None."""

    def subtract(self, item: Any, state: Any) -> Any:
        """The state without one of its fields. Called only where `cannot_subtract` is None."""
        raise NotImplementedError(self.cannot_subtract)

    def result(self, state: Any) -> R | None:
        """The result of a state."""
        found: R | None = state
        return found


class Combined(Aggregation[dict[str, Any]]):
    """Several aggregations of the same values in one state: a dict of their states by their names.

    An aggregation that a later version of a program adds begins with its first value; the states of one that it removes
    are removed with the next value.
    """

    state_is_result = False
    serde = STATE_OF_LISTS

    def __init__(self, parts: Mapping[str, Aggregation[Any]]) -> None:
        """Raises ArgumentError where there is none, or where one is no Aggregation."""
        super().__init__("agg", None)
        if not parts:
            raise ArgumentError(f"agg() at {place_of_call()} has no aggregation; expected such as total=sum('amount')")
        for name, part in parts.items():
            if not isinstance(part, Aggregation):
                raise ArgumentError(
                    f"agg({name}=…) at {place_of_call()} is {part!r}; expected an aggregation such as "
                    "odradek.streams.aggregations.sum('amount')"
                )
        self._parts = dict(parts)
        reasons = (f"{name}: {each.cannot_subtract}" for name, each in parts.items() if each.cannot_subtract)
        self.cannot_subtract = "; ".join(reasons) or None

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of all of them."""
        found: dict[str, Callable[..., Any]] = {}
        for name, part in self._parts.items():
            found |= {f"{name}: {role}": function for role, function in part.functions.items()}
        return found

    def aggregator(self, key: Any, value: Any, state: Any) -> Any:
        """The same for all of them."""
        return self.add(value, state)

    def subtractor(self, key: Any, value: Any, state: Any) -> Any:
        """The same without the value."""
        return None if state is None else self.subtract(value, state)

    def add(self, item: Any, state: Any) -> dict[str, Any]:
        """`item` is the value, of which each aggregation reads its own field."""
        states = state or {}
        return {name: part.aggregator(None, item, states.get(name)) for name, part in self._parts.items()}

    def subtract(self, item: Any, state: Any) -> dict[str, Any]:
        """The states without the value."""
        return {name: part.subtractor(None, item, state.get(name)) for name, part in self._parts.items()}

    def merge(self, one: Any, other: Any) -> dict[str, Any]:
        """Each with its own kind."""
        return {name: part.merger(None, one.get(name), other.get(name)) for name, part in self._parts.items()}

    def result(self, state: Any) -> dict[str, Any] | None:
        """The results by the names of the aggregations."""
        return None if state is None else {name: part.result(state.get(name)) for name, part in self._parts.items()}
