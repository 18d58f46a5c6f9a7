"""Aggregations by name: sum, min, max, mean, collect, top_k, count_distinct and agg of grouped streams and tables.

Java has none of these: its users write them with aggregate(), and so does this module. The aggregations themselves are
in `odradek.streams.aggregations`. Where the state of one is not its result (a mean's is a sum and a count), a second
node computes the result, as map_values() would; queries of the store show results, too.

The state is in the store of the operator, which `materialized` configures. With a serde of the user's the state has to
be what that serde takes: a sum may have LONG, a mean is a list of a sum and a count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from odradek.streams import aggregations
from odradek.streams.aggregations import Aggregation, Field
from odradek.streams.dsl.graph import Graph
from odradek.streams.dsl.materialization import StateMaterialized
from odradek.streams.dsl.options import Materialized
from odradek.streams.functions import OF_VALUE
from odradek.streams.java_names import JavaNames
from odradek.streams.operators.table import KTableMapValues
from odradek.streams.serdes import Serde
from odradek.streams.topology import Topology

if TYPE_CHECKING:
    from odradek.streams.dsl.ktable import KTable

SK = TypeVar("SK")
"""The key of the store: a bare one, also where windows are aggregated."""
TK = TypeVar("TK")
"""The key of the resulting table."""
V = TypeVar("V")
T = TypeVar("T")
Number = TypeVar("Number", bound="float | Decimal | Fraction")
Quotient = TypeVar("Quotient", float, Decimal, Fraction)
"""The type of a mean: of ints, too, a float."""
Store = Materialized[SK, Any] | str | None
MAP_VALUES = "KTABLE-MAPVALUES-"


class NamedAggregations(JavaNames, ABC, Generic[SK, TK, V]):
    """The aggregations by name of one kind of grouping."""

    @overload
    def sum(self, field: None = None, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, V]: ...

    @overload
    def sum(self, field: str, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, Any]: ...

    @overload
    def sum(
        self, field: Callable[[V], Number | None], materialized: Store[SK] = None, *, name: str | None = None
    ) -> KTable[TK, Number]: ...

    def sum(self, field: Field = None, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, Any]:
        """The sum of a field. Ints stay ints and Decimals Decimals."""
        return self._by_name(aggregations.sum(field), materialized, name)

    @overload
    def min(self, field: None = None, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, V]: ...

    @overload
    def min(self, field: str, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, Any]: ...

    @overload
    def min(
        self, field: Callable[[V], T | None], materialized: Store[SK] = None, *, name: str | None = None
    ) -> KTable[TK, T]: ...

    def min(self, field: Field = None, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, Any]:
        """The least value of a field. Not for tables."""
        return self._by_name(aggregations.min(field), materialized, name)

    @overload
    def max(self, field: None = None, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, V]: ...

    @overload
    def max(self, field: str, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, Any]: ...

    @overload
    def max(
        self, field: Callable[[V], T | None], materialized: Store[SK] = None, *, name: str | None = None
    ) -> KTable[TK, T]: ...

    def max(self, field: Field = None, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, Any]:
        """The greatest value of a field. Not for tables."""
        return self._by_name(aggregations.max(field), materialized, name)

    @overload
    def mean(
        self, field: str | None = None, materialized: Store[SK] = None, *, name: str | None = None
    ) -> KTable[TK, Any]: ...

    @overload
    def mean(
        self, field: Callable[[V], Quotient | None], materialized: Store[SK] = None, *, name: str | None = None
    ) -> KTable[TK, Quotient]: ...

    def mean(self, field: Field = None, materialized: Store[SK] = None, *, name: str | None = None) -> KTable[TK, Any]:
        """The mean of a field: a float, or a Decimal of Decimals."""
        return self._by_name(aggregations.mean(field), materialized, name)

    @overload
    def collect(
        self,
        field: None = None,
        materialized: Store[SK] = None,
        *,
        limit: int | None = None,
        name: str | None = None,
    ) -> KTable[TK, list[V]]: ...

    @overload
    def collect(
        self, field: str, materialized: Store[SK] = None, *, limit: int | None = None, name: str | None = None
    ) -> KTable[TK, list[Any]]: ...

    @overload
    def collect(
        self,
        field: Callable[[V], T | None],
        materialized: Store[SK] = None,
        *,
        limit: int | None = None,
        name: str | None = None,
    ) -> KTable[TK, list[T]]: ...

    def collect(
        self,
        field: Field = None,
        materialized: Store[SK] = None,
        *,
        limit: int | None = None,
        name: str | None = None,
    ) -> KTable[TK, Any]:
        """A list of the values of a field, in the order of the records; of more than `limit`, the first."""
        return self._by_name(aggregations.collect(field, limit), materialized, name)

    @overload
    def top_k(
        self,
        k: int,
        field: None = None,
        materialized: Store[SK] = None,
        *,
        by: Field = None,
        name: str | None = None,
    ) -> KTable[TK, list[V]]: ...

    @overload
    def top_k(
        self, k: int, field: str, materialized: Store[SK] = None, *, by: Field = None, name: str | None = None
    ) -> KTable[TK, list[Any]]: ...

    @overload
    def top_k(
        self,
        k: int,
        field: Callable[[V], T | None],
        materialized: Store[SK] = None,
        *,
        by: Field = None,
        name: str | None = None,
    ) -> KTable[TK, list[T]]: ...

    def top_k(
        self,
        k: int,
        field: Field = None,
        materialized: Store[SK] = None,
        *,
        by: Field = None,
        name: str | None = None,
    ) -> KTable[TK, Any]:
        """A list of the `k` greatest values of a field, ranked by the field `by` where it is given. Not for tables."""
        return self._by_name(aggregations.top_k(k, field, by=by), materialized, name)

    def count_distinct(
        self,
        field: str | Callable[[V], Any] | None = None,
        materialized: Store[SK] = None,
        *,
        precision: int = 12,
        name: str | None = None,
    ) -> KTable[TK, int]:
        """About how many distinct values a field has, by HyperLogLog (extra `sketches`). Not for tables."""
        return self._by_name(aggregations.count_distinct(field, precision), materialized, name)

    def agg(
        self, materialized: Store[SK] = None, name: str | None = None, /, **parts: Aggregation[Any]
    ) -> KTable[TK, dict[str, Any]]:
        """Several aggregations in one store and one pass: a dict of their results, by the names of the arguments.

        The aggregations are those of `odradek.streams.aggregations`. The store and the name of the operator are given
        by position, so that an aggregation may have any name. Raises ArgumentError where there is no aggregation.
        """
        return self._by_name(aggregations.Combined(parts), materialized, name)

    # ---- internals

    @abstractmethod
    def _aggregated(
        self, aggregation: Aggregation[Any], materialized: Materialized[SK, Any], name: str | None
    ) -> KTable[TK, Any]:
        """The table of the states."""

    @abstractmethod
    def _serde_of_values(self) -> Serde[V] | None:
        """The serde of the grouped values, if it is known."""

    def _by_name(self, aggregation: Aggregation[Any], materialized: Store[SK], name: str | None) -> KTable[TK, Any]:
        given = Materialized(materialized) if isinstance(materialized, str) else materialized or Materialized()
        serde = aggregation.serde_of(self._serde_of_values())
        result = None if aggregation.state_is_result else aggregation.result
        states = self._aggregated(aggregation, StateMaterialized.of(given, serde, result), name)
        for role, function in aggregation.functions.items():
            states.graph.check(states.node, role, function, OF_VALUE)
        if given.value is None and serde is aggregation.serde:
            states.value = None  # a topic downstream has a serde of its own or the application's, not that of states
        return states if result is None else _results(states, aggregation, name)


def _results(states: KTable[Any, Any], aggregation: Aggregation[Any], name: str | None) -> KTable[Any, Any]:
    """The table of the results, computed at each change and each lookup; the store is that of the states."""
    from odradek.streams.dsl.ktable import KTable

    graph: Graph = states.graph
    node = graph.name(name, MAP_VALUES, "-result")
    supplier = KTableMapValues(states, aggregation.result, None)
    parent = states.node

    def write(topology: Topology) -> None:
        topology.add_processor(node, supplier, parent)

    graph.add(write, parents=(parent,), provides=node)
    store = states.queryable_store_name
    return KTable(graph, node, states.key, None, states.sources, supplier, store, versioned=states.versioned)
