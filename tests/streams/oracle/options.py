"""The arguments of operators beside functions: Odradek's options, windows and store builders as Java's.

Options are frozen dataclasses with the names of Java's classes; a field becomes a call of Java's `with…` method of its
name, so an option of Odradek's that Java does not have fails here by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import jpype

from odradek.streams.records import RecordMetadata
from odradek.streams.serdes import Serde
from odradek.streams.stores.builders import StoreBuilder
from odradek.streams.windows import EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, TimeWindows
from tests.streams.oracle.java import java
from tests.streams.oracle.names import camel_case
from tests.streams.oracle.values import guarded, implement, java_serde, to_python

# How many arguments Java's `with` takes: an option without settings is made of that many nulls.
_EMPTY: Final = {
    "Consumed": 2,
    "Produced": 2,
    "Grouped": 2,
    "Materialized": 2,
    "Repartitioned": 2,
    "Joined": 3,
    "StreamJoined": 3,
    "TableJoined": 2,
}
# The class and the field, or the field alone -> Java's method, where it is not `with` and the field's name.
_WITH: Final = {
    "key": "withKeySerde",
    "value": "withValueSerde",
    "other_value": "withOtherValueSerde",
    "offset_reset": "withOffsetResetPolicy",
    "partitioner": "withStreamPartitioner",
    "TableJoined.partitioner": "withPartitioner",
    "partitions": "withNumberOfPartitions",
    "grace": "withGracePeriod",
    "this_store": "withThisStoreSupplier",
    "other_store": "withOtherStoreSupplier",
    "StreamJoined.store_type": "withDslStoreSuppliers",
}
# The fields that are arguments of Java's constructing method rather than calls on its result.
_MADE_WITH: Final = {"Materialized": ("store", "name"), "StreamJoined": ()}


def duration(value: int | timedelta) -> Any:
    """ms or a timedelta as Java's Duration."""
    ms = round(value / timedelta(milliseconds=1)) if isinstance(value, timedelta) else value
    return java().Duration.ofMillis(ms)


def java_option(option: Any) -> Any | None:
    """An option of Odradek's as Java's; None for an object that is no option."""
    special = _SPECIAL.get(type(option).__name__)
    if special is not None:
        return special(option)
    count = _EMPTY.get(type(option).__name__)
    if count is None or not dataclasses.is_dataclass(option):
        return None
    return _with_fields(option, count)


def _with_fields(option: Any, count: int) -> Any:
    kind = getattr(java(), type(option).__name__)
    set_fields = {
        field.name: getattr(option, field.name)
        for field in dataclasses.fields(option)
        if getattr(option, field.name) != _default(field)
    }
    made = None
    for field in _MADE_WITH.get(type(option).__name__, ("name",)):
        if field in set_fields and made is None:
            made = kind.as_(_setting(field, set_fields.pop(field)))
    if made is None:
        made = kind.with_(*([None] * count))
    for field, value in set_fields.items():
        made = _apply(made, type(option).__name__, field, value)
    return made


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()


def _apply(made: Any, kind: str, field: str, value: Any) -> Any:
    """One field that is set, as a call on Java's option."""
    if field in ("caching", "logging"):
        method = camel_case(f"with_{field}_{'enabled' if value else 'disabled'}")
        arguments = (java().HashMap(),) if value and field == "logging" else ()
        return getattr(made, method)(*arguments)
    if field == "log_config":
        return made.withLoggingEnabled(java_map(value))
    if field == "store_type":
        value = _store_type(kind, value)
    method = _WITH.get(f"{kind}.{field}") or _WITH.get(field) or camel_case(f"with_{field}")
    return getattr(made, method)(_setting(field, value))


def _store_type(kind: str, value: str) -> Any:
    if kind == "Materialized":
        types = java().find("org.apache.kafka.streams.kstream.Materialized$StoreType")
        return types.IN_MEMORY if value == "in_memory" else types.ROCKS_DB
    suppliers = java().BuiltInDslStoreSuppliers
    return (suppliers.InMemoryDslStoreSuppliers if value == "in_memory" else suppliers.RocksDBDslStoreSuppliers)()


def _setting(field: str, value: Any) -> Any:
    if isinstance(value, Serde):
        return java_serde(value)
    if isinstance(value, timedelta) or field in ("retention", "grace"):
        return duration(value)
    if field == "offset_reset":
        return java().find("org.apache.kafka.streams.Topology$AutoOffsetReset").valueOf(value.upper())
    if field == "timestamp_extractor":
        return timestamp_extractor(value)
    if "partitioner" in field:
        return stream_partitioner(value)
    if isinstance(value, StoreBuilder):
        return store_supplier(value)
    return value


def timestamp_extractor(function: Callable[..., int]) -> Any:
    """A TimestampExtractor of Odradek's as Java's."""

    def extract(record: Any, partition_time: int) -> Any:
        where = RecordMetadata(str(record.topic()), int(record.partition()), int(record.offset()))
        key, value = to_python(record.key()), to_python(record.value())
        return jpype.JLong(function(key, value, int(record.timestamp()), int(partition_time), where))

    interface = java().TimestampExtractor
    return jpype.JObject(jpype.JProxy(interface, dict={"extract": guarded(extract)}), interface)


def stream_partitioner(function: Callable[..., Any]) -> Any:
    """A Partitioner of Odradek's as Java's StreamPartitioner (KIP-837)."""

    def partitions(topic: Any, key: Any, value: Any, count: int) -> Any:
        chosen = function(str(topic), to_python(key), to_python(value), int(count))
        if chosen is None:
            return java().Optional.empty()
        found = java().HashSet()
        for partition in (chosen,) if isinstance(chosen, int) else chosen:
            found.add(java().Integer(partition))
        return java().Optional.of(found)

    interface = java().StreamPartitioner
    return jpype.JObject(jpype.JProxy(interface, dict={"partitions": guarded(partitions)}), interface)


def topic_extractor(function: Callable[..., str]) -> Any:
    """A TopicChooser of Odradek's as Java's TopicNameExtractor."""

    def extract(key: Any, value: Any, context: Any) -> Any:
        where = None
        if context.topic() is not None:
            where = RecordMetadata(str(context.topic()), int(context.partition()), int(context.offset()))
        return java().String(function(to_python(key), to_python(value), where))

    interface = java().TopicNameExtractor
    return jpype.JObject(jpype.JProxy(interface, dict={"extract": guarded(extract)}), interface)


# ---- stores


def store_supplier(builder: StoreBuilder) -> Any:
    """A store builder of Odradek's as Java's supplier of the bytes store."""
    stores, persistent, name = java().Stores, builder.persistent, builder.name
    if builder.kind == "versioned":
        segment = (duration(builder.segment_interval_ms),) if builder.segment_interval_ms else ()
        return stores.persistentVersionedKeyValueStore(name, duration(builder.history_retention_ms), *segment)
    if builder.kind == "session":
        make = stores.persistentSessionStore if persistent else stores.inMemorySessionStore
        return make(name, duration(builder.retention_ms))
    if builder.kind == "window":
        make = stores.persistentTimestampedWindowStore if builder.stamped else stores.persistentWindowStore
        make = make if persistent else stores.inMemoryWindowStore
        return make(name, duration(builder.retention_ms), duration(builder.window_size_ms), builder.retain_duplicates)
    if builder.max_entries:
        return stores.lruMap(name, jpype.JInt(builder.max_entries))
    if not persistent:
        return stores.inMemoryKeyValueStore(name)
    return (stores.persistentTimestampedKeyValueStore if builder.stamped else stores.persistentKeyValueStore)(name)


def store_builder(builder: StoreBuilder) -> Any:
    """A store builder of Odradek's as Java's StoreBuilder."""
    kinds = {
        ("key-value", False): "keyValueStoreBuilder",
        ("key-value", True): "timestampedKeyValueStoreBuilder",
        ("window", False): "windowStoreBuilder",
        ("window", True): "timestampedWindowStoreBuilder",
        ("session", False): "sessionStoreBuilder",
        ("versioned", False): "versionedKeyValueStoreBuilder",
    }
    serdes = [None if each is None else java_serde(each) for each in (builder.key_serde, builder.value_serde)]
    made = getattr(java().Stores, kinds[builder.kind, builder.stamped])(store_supplier(builder), *serdes)
    if builder.kind != "versioned":
        made = made.withCachingEnabled() if builder.caching else made.withCachingDisabled()
    if not builder.logging:
        return made.withLoggingDisabled()
    return made.withLoggingEnabled(java_map(builder.log_config))


def java_map(config: Mapping[str, str]) -> Any:
    """A java.util.HashMap of texts."""
    made = java().HashMap()
    for name, setting in config.items():
        made.put(name, setting)
    return made


# ---- windows


def time_windows(windows: TimeWindows) -> Any:
    """TimeWindows as Java's."""
    made = java().TimeWindows.ofSizeAndGrace(duration(windows.size_ms), duration(windows.grace_ms))
    return made.advanceBy(duration(windows.advance_ms))


def session_windows(windows: SessionWindows) -> Any:
    """SessionWindows as Java's."""
    gap, grace = duration(windows.inactivity_gap_ms), duration(windows.grace_ms)
    return java().SessionWindows.ofInactivityGapAndGrace(gap, grace)


def sliding_windows(windows: SlidingWindows) -> Any:
    """SlidingWindows as Java's."""
    difference, grace = duration(windows.time_difference_ms), duration(windows.grace_ms)
    return java().SlidingWindows.ofTimeDifferenceAndGrace(difference, grace)


def join_windows(windows: JoinWindows) -> Any:
    """JoinWindows as Java's. The widest comes first: Java rejects a pair that is empty in between."""
    most = max(windows.before_ms, windows.after_ms)
    made = java().JoinWindows.ofTimeDifferenceAndGrace(duration(most), duration(windows.grace_ms))
    return made.before(duration(windows.before_ms)).after(duration(windows.after_ms))


def printed(option: Any) -> Any:
    """Printed as Java's, to a file or to stdout."""
    made = java().Printed.toSysOut() if option.file is None else java().Printed.toFile(str(option.file))
    if option.label is not None:
        made = made.withLabel(option.label)
    if option.mapper is not None:
        made = made.withKeyValueMapper(implement(java().KeyValueMapper, option.mapper))
    return made if option.name is None else made.withName(option.name)


def suppressed(option: Any) -> Any:
    """Suppressed as Java's."""
    kind, buffer = java().Suppressed, _buffer(option.buffer)
    if option.wait_ms is None:
        made = kind.untilWindowCloses(buffer)
    else:
        made = kind.untilTimeLimit(duration(option.wait_ms), buffer)
    return made if option.name is None else made.withName(option.name)


def _buffer(config: Any) -> Any:
    made = java().find("org.apache.kafka.streams.kstream.Suppressed$BufferConfig").unbounded()
    if config.most_records != java().Long.MAX_VALUE:
        made = made.withMaxRecords(config.most_records)
    if config.most_bytes != java().Long.MAX_VALUE:
        made = made.withMaxBytes(config.most_bytes)
    if config.emits_when_full:
        made = made.emitEarlyWhenFull()
    elif not isinstance(made, java().find("org.apache.kafka.streams.kstream.Suppressed$StrictBufferConfig")):
        made = made.shutDownWhenFull()
    if not config.logging:
        return made.withLoggingDisabled()
    return made.withLoggingEnabled(java_map(dict(config.log_config))) if config.log_config else made


def emit_strategy(strategy: EmitStrategy) -> Any:
    """EmitStrategy as Java's."""
    return getattr(java().EmitStrategy, strategy.value)()


_SPECIAL: Final[dict[str, Callable[[Any], Any]]] = {
    "TimeWindows": time_windows,
    "SessionWindows": session_windows,
    "SlidingWindows": sliding_windows,
    "JoinWindows": join_windows,
    "UnlimitedWindows": lambda windows: (
        java().UnlimitedWindows.of().startOn(java().Instant.ofEpochMilli(windows.start_ms))
    ),
    "EmitStrategy": emit_strategy,
    "Printed": printed,
    "Suppressed": suppressed,
}
"""Options and windows that a rule of their own translates, by the name of Odradek's class."""
