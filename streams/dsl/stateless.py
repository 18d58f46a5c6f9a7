"""Stateless operators of a stream: filters, maps, and functions called for their effects (Kafka: KStreamImpl).

A function is of (value) or of (key, value). The record functions are in operators/stateless.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from odradek.streams.dsl.options import Printed
from odradek.streams.dsl.stream_base import K, StreamBase, V
from odradek.streams.operators import stateless

if TYPE_CHECKING:
    from odradek.streams.dsl.kstream import KStream

K2 = TypeVar("K2")
V2 = TypeVar("V2")

FILTER = "KSTREAM-FILTER-"


class StatelessOperators(StreamBase[K, V]):
    """The operators of KStream that have no state."""

    @overload
    def filter(self, predicate: Callable[[V], bool], *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def filter(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KStream[K, V]: ...

    def filter(self, predicate: Callable[..., bool], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which `predicate` holds, a function of (value) or of (key, value)."""
        return self._same(self._of_function(name, FILTER, stateless.Filter(predicate), "predicate"))

    @overload
    def filter_not(self, predicate: Callable[[V], bool], *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def filter_not(self, predicate: Callable[[K, V], bool], *, name: str | None = None) -> KStream[K, V]: ...

    def filter_not(self, predicate: Callable[..., bool], *, name: str | None = None) -> KStream[K, V]:
        """Drop the records for which `predicate` holds."""
        return self._same(self._of_function(name, FILTER, stateless.Filter(predicate, negate=True), "predicate"))

    @overload
    def select_key(self, selector: Callable[[V], K2], *, name: str | None = None) -> KStream[K2, V]: ...

    @overload
    def select_key(self, selector: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...

    def select_key(self, selector: Callable[..., K2], *, name: str | None = None) -> KStream[K2, V]:
        """Set the key of each record to the result of `selector`, of (value) or of (key, value)."""
        node = self._of_function(name, "KSTREAM-KEY-SELECT-", stateless.SelectKey(selector), "selector")
        return self._stream(node, None, self.value, True)

    @overload
    def map(self, mapper: Callable[[V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]: ...

    @overload
    def map(self, mapper: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]: ...

    def map(self, mapper: Callable[..., tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """Map each record: `mapper`, of (value) or of (key, value), returns the new key and value."""
        node = self._of_function(name, "KSTREAM-MAP-", stateless.Map(mapper), "mapper")
        return self._stream(node, None, None, True)

    @overload
    def map_values(self, mapper: Callable[[V], V2], *, name: str | None = None) -> KStream[K, V2]: ...

    @overload
    def map_values(self, mapper: Callable[[K, V], V2], *, name: str | None = None) -> KStream[K, V2]: ...

    def map_values(self, mapper: Callable[..., V2], *, name: str | None = None) -> KStream[K, V2]:
        """Map the value of each record; the key stays. `mapper` is of (value) or of (key, value)."""
        node = self._of_function(name, "KSTREAM-MAPVALUES-", stateless.MapValues(mapper), "mapper")
        return self._stream(node, self.key, None)

    @overload
    def flat_map(
        self, mapper: Callable[[V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...

    @overload
    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]: ...

    def flat_map(self, mapper: Callable[..., Iterable[tuple[K2, V2]]], *, name: str | None = None) -> KStream[K2, V2]:
        """Map each record to any number of records, pairs of key and value."""
        node = self._of_function(name, "KSTREAM-FLATMAP-", stateless.FlatMap(mapper), "mapper")
        return self._stream(node, None, None, True)

    @overload
    def flat_map_values(self, mapper: Callable[[V], Iterable[V2]], *, name: str | None = None) -> KStream[K, V2]: ...

    @overload
    def flat_map_values(self, mapper: Callable[[K, V], Iterable[V2]], *, name: str | None = None) -> KStream[K, V2]: ...

    def flat_map_values(self, mapper: Callable[..., Iterable[V2]], *, name: str | None = None) -> KStream[K, V2]:
        """Map the value of each record to any number of values; the key stays."""
        node = self._of_function(name, "KSTREAM-FLATMAPVALUES-", stateless.FlatMapValues(mapper), "mapper")
        return self._stream(node, self.key, None)

    @overload
    def peek(self, action: Callable[[V], object], *, name: str | None = None) -> KStream[K, V]: ...

    @overload
    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]: ...

    def peek(self, action: Callable[..., Any], *, name: str | None = None) -> KStream[K, V]:
        """Call a function with each record and forward it unchanged."""
        return self._same(self._of_function(name, "KSTREAM-PEEK-", stateless.Peek(action), "action"))

    @overload
    def foreach(self, action: Callable[[V], object], *, name: str | None = None) -> None: ...

    @overload
    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None: ...

    def foreach(self, action: Callable[..., Any], *, name: str | None = None) -> None:
        """Call a function with each record; the branch ends here."""
        self._of_function(name, "KSTREAM-FOREACH-", stateless.Foreach(action), "action")

    def print(self, printed: Printed | None = None) -> None:
        """Write "[label]: key, value" for each record, to stdout or to a file. The label is this stream's node."""
        store_settings = printed or Printed()
        node = self._processor(store_settings.name, "KSTREAM-PRINTER-", stateless.Print(store_settings, self.node))
        if store_settings.mapper is not None:
            self.graph.check(node, "mapper", store_settings.mapper, (("key", "value"),))
