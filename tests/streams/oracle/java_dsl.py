"""Java's StreamsBuilder and its topologies under the names of odradek.streams, so that one Python function builds both.

An operator of odradek.streams is Java's in Python's spelling, so the translation is by reflection: the name in camel
case, then the overload whose parameters fit the arguments. Functions go by their number of arguments (`map_values` of
one is a ValueMapper, of two a ValueMapperWithKey), options by the names of their classes, keyword arguments by their
types.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import jpype

from odradek.streams.functions import arity
from odradek.streams.serdes import Serde
from tests.streams.oracle import options
from tests.streams.oracle.java import java
from tests.streams.oracle.java_processor import processor_supplier, transformer_supplier
from tests.streams.oracle.names import camel_case
from tests.streams.oracle.values import (
    implement,
    java_list,
    java_serde,
    java_values,
    key_value,
    key_values,
    method_arity,
    method_name,
    to_java,
    to_python,
)

DSL: Final = (
    "KStream",
    "KTable",
    "GlobalKTable",
    "KGroupedStream",
    "KGroupedTable",
    "CogroupedKStream",
    "TimeWindowedKStream",
    "SessionWindowedKStream",
    "TimeWindowedCogroupedKStream",
    "SessionWindowedCogroupedKStream",
    "BranchedKStream",
)
# Java's interfaces of a key and a value that in Odradek take a function of the value alone as well.
_OF_KEY_AND_VALUE: Final = ("Predicate", "KeyValueMapper", "ForeachAction")
# The conversion of a function's result where it is not simply a value: by Java's method, with its class where they
# differ.
_RESULTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "map": key_value,
    "flatMap": key_values,
    "flatMapValues": java_values,
    "KTable.groupBy": key_value,
}
_NO_FIT: Final = object()


class JavaDsl:
    """An object of Java's DSL under Odradek's method names."""

    def __init__(self, kind: str, target: Any) -> None:
        self.java = jpype.JObject(target, getattr(java(), kind))
        self.kind = kind

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(invoke, self.java, self.kind, camel_case(name))


class JavaStreamsBuilder:
    """Java's StreamsBuilder under Odradek's method names; `build` returns Java's Topology."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        """The settings of `config` that the DSL takes: topology.optimization, default.dsl.store."""
        self.config = dict(config or {})
        self.kind = "StreamsBuilder"
        if "default.dsl.store" not in self.config:
            self.java = java().StreamsBuilder()
            return
        settings = {"application.id": "builder", "bootstrap.servers": "none:1", **self.config}
        streams_config = java().StreamsConfig(options.java_map(settings))
        self.java = java().StreamsBuilder(java().TopologyConfig(streams_config))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(invoke, self.java, self.kind, camel_case(name))

    def add_state_store(self, builder: Any) -> JavaStreamsBuilder:
        """StreamsBuilder.addStateStore."""
        self.java.addStateStore(options.store_builder(builder))
        return self

    def add_global_store(self, builder: Any, topic: str, consumed: Any, supplier: Any) -> JavaStreamsBuilder:
        """StreamsBuilder.addGlobalStore."""
        of = _supplier(supplier, fixed_key=False)
        store = options.store_builder(builder.without_logging())
        self.java.addGlobalStore(store, topic, options.java_option(consumed), of)
        return self

    def build(self) -> Any:
        """Java's Topology, optimized where the configuration enables it."""
        properties = java().Properties()
        for name, value in self.config.items():
            properties.put(name, value)
        return self.java.build(properties)


class JavaTopology:
    """Java's Topology under Odradek's method names, for topologies by hand."""

    def __init__(self) -> None:
        self.java = java().Topology()

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: Callable[..., int] | None = None,
        offset_reset: str | None = None,
    ) -> JavaTopology:
        """Topology.addSource."""
        reset = None if offset_reset is None else _offset_reset(offset_reset)
        extractor = None if timestamp_extractor is None else options.timestamp_extractor(timestamp_extractor)
        if isinstance(topics, re.Pattern):
            where: tuple[Any, ...] = (java().find("java.util.regex.Pattern").compile(topics.pattern),)
        else:
            where = (jpype.JArray(java().String)([topics] if isinstance(topics, str) else list(topics)),)
        self.java.addSource(reset, name, extractor, _deserializer(key), _deserializer(value), *where)
        return self

    def add_processor(self, name: str, supplier: Callable[[], Any], *parents: str) -> JavaTopology:
        """Topology.addProcessor, with the supplier's own stores."""
        self.java.addProcessor(name, _supplier(supplier, fixed_key=False), *parents)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | Callable[..., str],
        *parents: str,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        partitioner: Callable[..., Any] | None = None,
    ) -> JavaTopology:
        """Topology.addSink."""
        to = topic if isinstance(topic, str) else options.topic_extractor(topic)
        by = None if partitioner is None else options.stream_partitioner(partitioner)
        by = jpype.JObject(by, java().StreamPartitioner)
        names = jpype.JArray(java().String)(list(parents))
        self.java.addSink(name, to, _serializer(key), _serializer(value), by, names)
        return self

    def add_state_store(self, builder: Any, *processors: str) -> JavaTopology:
        """Topology.addStateStore."""
        self.java.addStateStore(options.store_builder(builder), *processors)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> JavaTopology:
        """Topology.connectProcessorAndStateStores."""
        self.java.connectProcessorAndStateStores(processor, *stores)
        return self

    def add_global_store(
        self,
        builder: Any,
        source: str,
        topic: str,
        processor: str,
        supplier: Callable[[], Any],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: Callable[..., int] | None = None,
    ) -> JavaTopology:
        """Topology.addGlobalStore."""
        extractor = None if timestamp_extractor is None else options.timestamp_extractor(timestamp_extractor)
        nodes = (*_readers(key, value), topic, processor, _supplier(supplier, fixed_key=False))
        self.java.addGlobalStore(options.store_builder(builder), source, extractor, *nodes)
        return self

    def add_read_only_state_store(
        self, builder: Any, source: str, topic: str, processor: str, supplier: Callable[[], Any], **serdes: Serde[Any]
    ) -> JavaTopology:
        """Topology.addReadOnlyStateStore; `serdes` are `key` and `value`."""
        nodes = (*_readers(**serdes), topic, processor, _supplier(supplier, fixed_key=False))
        self.java.addReadOnlyStateStore(options.store_builder(builder), source, *nodes)
        return self

    def build(self) -> Any:
        """Java's Topology."""
        return self.java


def _readers(key: Serde[Any] | None = None, value: Serde[Any] | None = None) -> tuple[Any, Any]:
    """Deserializers of the source of a store; the type of the first decides between Java's overloads."""
    return jpype.JObject(_deserializer(key), java().Deserializer), _deserializer(value)


def invoke(target: Any, kind: str, name: str, /, *arguments: Any, **keywords: Any) -> Any:
    """Call a method of a Java object with Python's arguments. Raises TypeError where no overload takes them."""
    given = {word: value for word, value in keywords.items() if value is not None}
    result = _RESULTS.get(f"{kind}.{name}", _RESULTS.get(name, to_java))
    for positional, by_word in _calls(name, arguments, given):
        for parameters in _overloads(kind, name, len(positional) + len(by_word)):
            bound = _bind(parameters, positional, by_word, result)
            if bound is not None:
                method = getattr(target, name, None) or getattr(target, f"{name}_")
                return _wrap(method(*bound))
    printed = ", ".join([*map(repr, arguments), *(f"{word}={value!r}" for word, value in given.items())])
    raise TypeError(f"Java's {kind} has no {name} that takes ({printed})")


def _calls(name: str, arguments: tuple[Any, ...], given: dict[str, Any]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The possible forms in Java of a call of Odradek's, the plainest first."""
    names, positional, by_word = java(), list(arguments), dict(given)
    if isinstance(by_word.get("materialized"), str):
        by_word["materialized"] = names.Materialized.as_(by_word["materialized"])
    if name in ("process", "processValues", "transformValues"):
        positional = [positional[0], jpype.JArray(names.String)(positional[1:])]
    for word in ("key_selector", "foreign_key"):  # follows the other side and precedes the joiner in Java
        if word in by_word:
            positional.insert(1, by_word.pop(word))
    if name == "print" and not positional and not by_word:
        positional = [names.Printed.toSysOut()]
    called = by_word.pop("name", None)
    if called is None:
        yield positional, by_word
        return
    yield positional, {**by_word, "name": names.Named.as_(called)}
    # Where Java has no overload for a name alone, it has one with a name and a Materialized, or a Joined with a name.
    yield positional, {**by_word, "name": names.Named.as_(called), "": names.Materialized.with_(None, None)}
    yield positional, {**by_word, "name": names.Joined.as_(called)}


@functools.cache
def _overloads(kind: str, name: str, count: int) -> list[list[Any]]:
    """The parameter types of a method's overloads; those whose functions have fewer arguments first."""
    found = [
        [jpype.JClass(each) for each in method.getParameterTypes()]
        for method in getattr(java(), kind).class_.getMethods()
        if method.getName() == name and len(method.getParameterTypes()) == count
    ]

    def arguments(parameters: list[Any]) -> int:
        return sum(method_arity(each) for each in parameters if _is_functional(each))

    return sorted(found, key=arguments)


@functools.cache
def _is_functional(kind: Any) -> bool:
    return bool(kind.class_.isInterface()) and method_name(kind) is not None


def _bind(
    parameters: list[Any], arguments: list[Any], keywords: dict[str, Any], result: Callable[[Any], Any]
) -> list[Any] | None:
    """Java's arguments for these parameters: positional ones in their order, keywords where their types fit."""
    if not parameters:
        return [] if not arguments and not keywords else None
    choices: Iterator[tuple[Any, list[Any], dict[str, Any]]] = iter(
        [
            *([(arguments[0], arguments[1:], keywords)] if arguments else []),
            *(
                (value, arguments, {other: each for other, each in keywords.items() if other != word})
                for word, value in keywords.items()
            ),
        ]
    )
    for value, rest, others in choices:
        made = convert(value, parameters[0], result)
        if made is not _NO_FIT:
            following = _bind(parameters[1:], rest, others, result)
            if following is not None:
                return [made, *following]
    return None


def convert(value: Any, kind: Any, result: Callable[[Any], Any] = to_java) -> Any:
    """A Python argument as an object of a Java type, or _NO_FIT."""
    if isinstance(value, JavaDsl):
        value = value.java
    if isinstance(value, jpype.JObject):
        return value if kind.class_.isInstance(value) else _NO_FIT
    short = str(kind.class_.getSimpleName())
    plain = _plain(value, short)
    if plain is not _NO_FIT:
        return plain
    if type(value).__name__ == "Branched":
        return _branched(value) if short == "Branched" else _NO_FIT
    option = options.java_option(value)
    if option is not None:
        return option if kind.class_.isInstance(option) else _NO_FIT
    return _function(value, kind, short, result) if callable(value) else _NO_FIT


def _plain(value: Any, short: str) -> Any:
    """Texts, numbers, spans of time and collections."""
    if isinstance(value, str):
        if short == "Materialized":
            return java().Materialized.as_(value)
        return java().String(value) if short == "String" else _NO_FIT
    if isinstance(value, re.Pattern):
        return java().find("java.util.regex.Pattern").compile(value.pattern) if short == "Pattern" else _NO_FIT
    if isinstance(value, bool):
        return value if short == "boolean" else _NO_FIT
    if isinstance(value, int | timedelta) and short == "Duration":
        return options.duration(value)
    if isinstance(value, int):
        return value if short in ("int", "long") else _NO_FIT
    if isinstance(value, list | tuple) and short in ("Collection", "List") and not hasattr(value, "_fields"):
        return java_list(map(java().String, value))
    if isinstance(value, Serde):
        return java_serde(value) if short == "Serde" else _NO_FIT
    return _NO_FIT


def _function(value: Callable[..., Any], kind: Any, short: str, result: Callable[[Any], Any]) -> Any:
    """A Python function, or a factory of processors, as an object of a functional interface."""
    if short in ("ProcessorSupplier", "FixedKeyProcessorSupplier"):
        return _supplier(value, fixed_key=short.startswith("Fixed"))
    if short == "ValueTransformerWithKeySupplier":
        return transformer_supplier(value, _java_stores(value))
    if short == "TopicNameExtractor":
        return options.topic_extractor(value)
    if short == "StreamPartitioner":
        return options.stream_partitioner(value)
    if not _is_functional(kind):
        return _NO_FIT
    wanted = method_arity(kind)
    count = arity(value, otherwise=wanted)
    if count == wanted:
        return implement(kind, value, result)
    if count == 1 and short in _OF_KEY_AND_VALUE:
        return implement(kind, lambda key, only: value(only), result)
    return _NO_FIT


def _branched(option: Any) -> Any:
    """Branched as Java's: a name, and the function for the branch."""
    names = java()

    def as_function(stream: Any) -> Any:
        made = option.function(JavaDsl("KStream", stream))
        return None if made is None else made.java

    name = () if option.name is None else (option.name,)
    if option.function is not None:
        function = names.find("java.util.function.Function")
        return names.Branched.withFunction(implement(function, as_function, lambda stream: stream), *name)
    if option.consumer is not None:
        consumer = names.find("java.util.function.Consumer")
        to_consumer = implement(consumer, lambda stream: option.consumer(JavaDsl("KStream", stream)))
        return names.Branched.withConsumer(to_consumer, *name)
    return names.Branched.as_(*name)


def _supplier(supplier: Callable[[], Any], fixed_key: bool) -> Any:
    return processor_supplier(supplier, _java_stores(supplier), fixed_key)


def _java_stores(supplier: Any) -> list[Any]:
    """The stores that a supplier brings (KIP-401)."""
    return [options.store_builder(each) for each in getattr(supplier, "stores", None) or ()]


def _wrap(value: Any) -> Any:
    for kind in DSL:
        if isinstance(value, getattr(java(), kind)):
            return JavaDsl(kind, value)
    if isinstance(value, java().Map):
        return {str(name): _wrap(each) for name, each in value.items()}
    return to_python(value)


def _offset_reset(name: str) -> Any:
    return java().find("org.apache.kafka.streams.Topology$AutoOffsetReset").valueOf(name.upper())


def _serializer(serde: Serde[Any] | None) -> Any:
    return jpype.JObject(None if serde is None else java_serde(serde).serializer(), java().Serializer)


def _deserializer(serde: Serde[Any] | None) -> Any:
    return jpype.JObject(None if serde is None else java_serde(serde).deserializer(), java().Deserializer)
