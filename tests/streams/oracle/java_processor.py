"""Processors written in Python, for odradek.streams, inside a topology of Java's; and Java's state stores under
Odradek's names.

One class, a `Processor` of odradek.streams, runs on both sides: here it gets a context and records with the interface
of Odradek's and the rules of Java's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import jpype

from odradek.streams.processor import FixedKeyProcessor, PunctuationType
from odradek.streams.records import Record, RecordMetadata, TaskId
from odradek.streams.sensors import RecordingLevel
from tests.streams.oracle.java import java
from tests.streams.oracle.java_driver import python_headers, record_headers
from tests.streams.oracle.names import camel_case
from tests.streams.oracle.values import guarded, implement, to_java, to_python

# Methods that have another name in Odradek, since Python has no overloads.
_STORE_NAMES = {
    "fetch_range": "fetch",
    "backward_fetch_range": "backwardFetch",
    "find_sessions_range": "findSessions",
    "backward_find_sessions_range": "backwardFindSessions",
    "fetch_sessions_range": "fetch",
    "range": "range",
}


class JavaStore:
    """A state store of Java's under Odradek's method names; iterators are read at once, as Python's objects."""

    def __init__(self, store: Any) -> None:
        self.java = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.java, _STORE_NAMES.get(name, camel_case(name)))

        def call(*arguments: Any) -> Any:
            return read_result(method(*map(to_java, arguments)))

        return call

    def put_all(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Key-value stores: put each."""
        entries = java().ArrayList()
        for key, value in pairs:
            entries.add(java().KeyValue(to_java(key), to_java(value)))
        self.java.putAll(entries)

    def prefix_scan(self, prefix: Any, serializer: Any) -> Iterator[tuple[Any, Any]]:
        """Key-value stores: the entries whose serialized key begins with the serialized prefix."""
        return iter(_drain(self.java.prefixScan(to_java(prefix), serializer)))


def read_result(value: Any) -> Any:
    """The result of a store as Python's; iterators are read at once."""
    names = java()
    if isinstance(value, names.Iterator):
        return iter(_drain(value))
    if isinstance(value, names.VersionedRecord):
        valid_to = value.validTo()
        ends = int(valid_to.get()) if valid_to.isPresent() else None
        return to_python(value.value()), int(value.timestamp()), ends
    return to_python(value)


def _drain(iterator: Any) -> list[Any]:
    try:
        found = []
        while iterator.hasNext():
            found.append(read_result(iterator.next()))
        return found
    finally:
        if hasattr(iterator, "close"):
            iterator.close()


class JavaMetrics:
    """Java's StreamsMetrics under Odradek's names; sensors are Java's."""

    def __init__(self, metrics: Any) -> None:
        self.java = metrics

    def add_latency_rate_total_sensor(self, *arguments: Any, tags: Mapping[str, str] | None = None) -> Any:
        *names, level = arguments
        return self.java.addLatencyRateTotalSensor(*names, java_level(level), *_tags(tags))

    def add_rate_total_sensor(self, *arguments: Any, tags: Mapping[str, str] | None = None) -> Any:
        *names, level = arguments
        return self.java.addRateTotalSensor(*names, java_level(level), *_tags(tags))

    def add_sensor(self, name: str, level: RecordingLevel, *parents: Any) -> Any:
        return self.java.addSensor(name, java_level(level), *parents)

    def remove_sensor(self, sensor: Any) -> None:
        self.java.removeSensor(sensor)


def java_level(level: RecordingLevel) -> Any:
    """Java's Sensor.RecordingLevel."""
    return getattr(jpype.JClass("org.apache.kafka.common.metrics.Sensor$RecordingLevel"), level.name)


def _tags(tags: Mapping[str, str] | None) -> list[str]:
    return [text for pair in (tags or {}).items() for text in pair]


class JavaContext:
    """Java's ProcessorContext under Odradek's names."""

    def __init__(self, context: Any, fixed_key: bool) -> None:
        self.java = context
        self._fixed_key = fixed_key
        self.at_hand: Any = None

    @property
    def application_id(self) -> str:
        return str(self.java.applicationId())

    @property
    def task_id(self) -> TaskId:
        return TaskId.parse(str(self.java.taskId().toString()))

    @property
    def config(self) -> Mapping[str, Any]:
        return {str(name): to_python(value) for name, value in self.java.appConfigs().items()}

    @property
    def state_dir(self) -> Path:
        return Path(str(self.java.stateDir().getPath()))

    @property
    def record_metadata(self) -> RecordMetadata | None:
        if not hasattr(self.java, "recordMetadata"):  # the older context, which transformers of tables get
            topic = self.java.topic()
            where = str(topic), int(self.java.partition()), int(self.java.offset())
            return None if topic is None else RecordMetadata(*where)
        found = self.java.recordMetadata()
        if not found.isPresent():
            return None
        metadata = found.get()
        if metadata.topic() is None:  # a punctuator's, where Odradek has none
            return None
        return RecordMetadata(str(metadata.topic()), int(metadata.partition()), int(metadata.offset()))

    @property
    def current_stream_time_ms(self) -> int:
        return int(self.java.currentStreamTimeMs())

    @property
    def current_system_time_ms(self) -> int:
        return int(self.java.currentSystemTimeMs())

    def forward(self, record: Record, child: str | None = None) -> None:
        made = self._fixed(record) if self._fixed_key else java_record(record)
        self.java.forward(made) if child is None else self.java.forward(made, child)

    def _fixed(self, record: Record) -> Any:
        """A FixedKeyRecord can only be made of another one."""
        made = self.at_hand.withValue(to_java(record.value)).withTimestamp(record.timestamp)
        return made.withHeaders(record_headers(record.headers or ()))

    def state_store(self, name: str) -> JavaStore:
        return JavaStore(self.java.getStateStore(name))

    def schedule(self, interval: int | timedelta, kind: PunctuationType, callback: Callable[[int], None]) -> Any:
        ms = round(interval / timedelta(milliseconds=1)) if isinstance(interval, timedelta) else interval
        clock = getattr(java().PunctuationType, kind.name)
        punctuator = implement(java().Punctuator, callback, lambda result: None)
        return self.java.schedule(java().Duration.ofMillis(ms), clock, punctuator)

    def commit(self) -> None:
        self.java.commit()

    def metrics(self) -> JavaMetrics:
        return JavaMetrics(self.java.metrics())


def java_record(record: Record) -> Any:
    """Odradek's Record as Java's."""
    headers = record_headers(record.headers or ())
    return java().Record(to_java(record.key), to_java(record.value), jpype.JLong(record.timestamp), headers)


def python_record(record: Any) -> Record:
    """Java's Record as Odradek's; no headers are None."""
    headers = python_headers(record.headers()) or None
    return Record(to_python(record.key()), to_python(record.value()), int(record.timestamp()), headers)


def processor_supplier(make: Callable[[], Any], stores: Iterable[Any] = (), fixed_key: bool | None = None) -> Any:
    """Java's ProcessorSupplier (or FixedKeyProcessorSupplier) of Python processors; `stores` are Java's builders."""
    fixed = issubclass(make, FixedKeyProcessor) if fixed_key is None and isinstance(make, type) else bool(fixed_key)
    interface = java().FixedKeyProcessorSupplier if fixed else java().ProcessorSupplier
    return _supplier(interface, lambda: _processor(make(), fixed), stores)


def transformer_supplier(make: Callable[[], Any], stores: Iterable[Any] = ()) -> Any:
    """Java's ValueTransformerWithKeySupplier of Python transformers."""
    return _supplier(java().ValueTransformerWithKeySupplier, lambda: _transformer(make()), stores)


def _supplier(interface: Any, get: Callable[[], Any], stores: Iterable[Any]) -> Any:
    builders = java().HashSet()
    for builder in stores:
        builders.add(builder)

    def connected() -> Any:
        return builders if builders.size() else None

    return jpype.JObject(jpype.JProxy(interface, dict={"get": guarded(get), "stores": connected}), interface)


def _transformer(transformer: Any) -> Any:
    def init(context: Any) -> None:
        transformer.init(JavaContext(context, False))

    def transform(key: Any, value: Any) -> Any:
        return to_java(transformer.transform(to_python(key), to_python(value)))

    interface = java().ValueTransformerWithKey
    methods = {"init": guarded(init), "transform": guarded(transform), "close": guarded(transformer.close)}
    return jpype.JObject(jpype.JProxy(interface, dict=methods), interface)


def _processor(processor: Any, fixed: bool) -> Any:
    interface = java().FixedKeyProcessor if fixed else java().Processor
    contexts: list[JavaContext] = []

    def init(context: Any) -> None:
        contexts.append(JavaContext(context, fixed))
        processor.init(contexts[0])

    def process(record: Any) -> None:
        contexts[0].at_hand = record
        processor.process(python_record(record))

    methods = {"init": guarded(init), "process": guarded(process), "close": guarded(processor.close)}
    return jpype.JObject(jpype.JProxy(interface, dict=methods), interface)
