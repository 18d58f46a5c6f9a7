"""Options of the DSL's operators, with Kafka's names.

Each class is one of Kafka's (Consumed, Produced, Grouped, Materialized, ...); a field is one of its `with…` methods.
All of them are optional: omitted serdes are inherited from upstream where the type cannot have changed, or else are the
application's defaults (`default.key.serde`, `default.value.serde`); names are generated.

They can be created as `Materialized[str, int](...)`, for a type checker. So they have no slots: Python 3.11 fails to
store the types on an object that is frozen and has slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal

from odradek.streams.errors import ArgumentError
from odradek.streams.functions import place_of_call
from odradek.streams.serdes import Serde
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.stores.suppliers import DslStoreSuppliers
from odradek.streams.topology import OffsetReset, Partitioner, TimestampExtractor
from odradek.streams.type_variables import VO, K, V

if TYPE_CHECKING:
    from odradek.streams.dsl.kstream import KStream


def _check(options: Any, *serdes: str) -> None:
    """Raises ArgumentError where one of these fields is no serde, or the name no text."""
    kind = type(options).__name__
    for name in serdes:
        given = getattr(options, name)
        if given is not None and not isinstance(given, Serde):
            raise ArgumentError(
                f"{kind}({name}=…) at {place_of_call()} is {given!r}; expected a serde such as odradek.streams.STRING"
            )
    if options.name is not None and not isinstance(options.name, str):
        raise ArgumentError(f"{kind}(name=…) at {place_of_call()} is {options.name!r}; expected a text")


def _check_store_type(options: Any) -> None:
    """Raises ArgumentError for a `store_type` that is no place of stores."""
    given = options.store_type
    if given not in (None, "rocksDB", "in_memory") and not isinstance(given, DslStoreSuppliers):
        raise ArgumentError(
            f"{type(options).__name__}(store_type=…) at {place_of_call()} is {given!r}; expected 'rocksDB', "
            "'in_memory' or an object of DslStoreSuppliers"
        )


def _is_positive(duration: Any) -> bool:
    """Whether this is a duration of at least 1 ms."""
    if isinstance(duration, timedelta):
        return duration >= timedelta(milliseconds=1)
    return isinstance(duration, int) and not isinstance(duration, bool) and duration > 0


@dataclass(frozen=True)
class Consumed(Generic[K, V]):
    """How topics are read."""

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: OffsetReset | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, "key", "value")
        if self.offset_reset not in (None, "earliest", "latest", "none"):
            raise ArgumentError(
                f"Consumed(offset_reset=…) at {place_of_call()} is {self.offset_reset!r}; expected earliest, latest or "
                "none"
            )


@dataclass(frozen=True)
class Produced(Generic[K, V]):
    """How a topic is written."""

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    partitioner: Partitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, "key", "value")


@dataclass(frozen=True)
class Repartitioned(Generic[K, V]):
    """A repartition topic; name and number of partitions are derived where they are omitted."""

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    name: str | None = None
    partitions: int | None = None
    partitioner: Partitioner | None = None

    def __post_init__(self) -> None:
        _check(self, "key", "value")
        if self.partitions is not None and not (isinstance(self.partitions, int) and self.partitions >= 1):
            raise ArgumentError(
                f"Repartitioned(partitions=…) at {place_of_call()} is {self.partitions!r}; expected 1 or more"
            )


@dataclass(frozen=True)
class Grouped(Generic[K, V]):
    """A grouping; `name` is that of the operator and, with "-repartition", of its repartition topic."""

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        _check(self, "key", "value")


@dataclass(frozen=True)
class Materialized(Generic[K, V]):
    """The store of a table. With a name it can be queried; without one it exists only where an operator requires it.

    `store` is a store builder (see stores/builders.py) in place of a name and `store_type`; serdes are taken from here.
    `retention` (ms or a timedelta) is for windowed stores. `log_config` are configs of the changelog. With a `ttl` (ms
    or a timedelta), which Java does not have, rows expire: see stores/ttl.py.
    """

    name: str | None = None
    key: Serde[K] | None = None
    value: Serde[V] | None = None
    caching: bool = True
    logging: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)
    retention: int | timedelta | None = None
    store_type: Literal["rocksDB", "in_memory"] | DslStoreSuppliers | None = None
    store: StoreBuilder | None = None
    ttl: int | timedelta | None = None

    def __post_init__(self) -> None:
        _check(self, "key", "value")
        _check_store_type(self)
        if self.ttl is not None and not _is_positive(self.ttl):
            raise ArgumentError(
                f"Materialized(ttl=…) at {place_of_call()} is {self.ttl!r}; expected a timedelta or ms, at least 1 ms"
            )
        if self.store is not None and not isinstance(self.store, StoreBuilder):
            raise ArgumentError(
                f"Materialized(store=…) at {place_of_call()} is {self.store!r}; expected a store builder such as "
                "odradek.streams.key_value_store(…)"
            )


@dataclass(frozen=True)
class Joined(Generic[K, V, VO]):
    """A join of a stream with a table. With `grace` (ms or a timedelta) the stream waits so long (KIP-923)."""

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    other_value: Serde[VO] | None = None
    name: str | None = None
    grace: int | timedelta | None = None

    def __post_init__(self) -> None:
        _check(self, "key", "value", "other_value")


@dataclass(frozen=True)
class StreamJoined(Generic[K, V, VO]):
    """A join of two streams: serdes, the operator's `name`, the stores' `store_name`, or stores of one's own."""

    key: Serde[K] | None = None
    value: Serde[V] | None = None
    other_value: Serde[VO] | None = None
    name: str | None = None
    store_name: str | None = None
    logging: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict)
    store_type: Literal["rocksDB", "in_memory"] | DslStoreSuppliers | None = None
    this_store: StoreBuilder | None = None
    other_store: StoreBuilder | None = None

    def __post_init__(self) -> None:
        _check(self, "key", "value", "other_value")
        _check_store_type(self)


@dataclass(frozen=True, slots=True)
class TableJoined:
    """A foreign-key join of tables: the partitioning of its topics, and its name (KIP-775)."""

    partitioner: Partitioner | None = None
    other_partitioner: Partitioner | None = None
    name: str | None = None


@dataclass(frozen=True)
class Branched(Generic[K, V]):
    """A branch of a split: its name, and the function for its stream.

    The result of `function` takes the branch's place in the map of branches; a branch with a `consumer` is not in the
    map.
    """

    name: str | None = None
    function: Callable[[KStream[K, V]], KStream[Any, Any] | None] | None = None
    consumer: Callable[[KStream[K, V]], None] | None = None


@dataclass(frozen=True, slots=True)
class Printed:
    """The output of print(): stdout, or a `file`. `mapper` returns the text of a key and a value."""

    file: str | Path | None = None
    label: str | None = None
    mapper: Callable[[Any, Any], str] | None = None
    name: str | None = None
