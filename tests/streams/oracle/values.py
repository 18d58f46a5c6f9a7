"""Values and functions on their way between Python and Java.

A value with a type in Java becomes that: str, int (Long), float (Double), bool, bytes, UUID, Windowed. Every other
Python object (a dict, a list, a dataclass) travels through Java in a box that keeps the object itself, with its own
equality, so that a topology in Java can aggregate into a Python list. Serdes follow: Kafka's own for Kafka's own
formats, so that their bytes are a reference; a Python serde behind Java's interface for the rest.
"""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable
from typing import Any, Final

import jpype

from odradek.streams.records import Change, Window, Windowed
from odradek.streams.serdes import Serde, WindowedSerde
from tests.streams.oracle.java import java

# Serde.name -> the method of Java's Serdes whose format it has
_NATIVE_SERDES: Final = {
    "string": "String",
    "long": "Long",
    "double": "Double",
    "boolean": "Boolean",
    "bytes": "ByteArray",
    "uuid": "UUID",
    "void": "Void",
}
# These hold numbers that Python has no type of its own for: (Java's serde, Java's type, the method that makes it)
_NUMBERS: Final = {
    "integer": ("Integer", "intValue"),
    "short": ("Short", "shortValue"),
    "float": ("Float", "floatValue"),
}


def to_java(value: Any) -> Any:
    """A Python value as Java's object."""
    kind = type(value)
    if value is None or isinstance(value, jpype.JObject):
        return value
    convert = _to_java().get(kind)
    return jpype.JProxy("java.io.Serializable", inst=value, convert=True) if convert is None else convert(value)


def to_python(value: Any) -> Any:
    """A Java object as Python's."""
    convert = _to_python().get(type(value))
    return value if convert is None else convert(value)


def key_value(pair: tuple[Any, Any]) -> Any:
    """A pair as Java's KeyValue, the result of map() there."""
    key, value = pair
    return java().KeyValue(to_java(key), to_java(value))


def key_values(pairs: Any) -> Any:
    """Pairs as a list of Java's KeyValue, the result of flatMap() there."""
    return java_list(map(key_value, pairs))


def java_values(values: Any) -> Any:
    """Values as a Java list, the result of flatMapValues() there."""
    return java_list(map(to_java, values))


def java_list(items: Any) -> Any:
    """A java.util.ArrayList of objects that are Java's already."""
    made = java().ArrayList()
    for item in items:
        made.add(item)
    return made


def java_bytes(data: bytes | None) -> Any:
    """bytes as byte[]; None stays null."""
    return None if data is None else jpype.JArray(jpype.JByte)(data)


def python_bytes(data: Any) -> bytes | None:
    """byte[] as bytes; null becomes None."""
    return None if data is None else bytes(data)


@functools.cache
def _to_java() -> dict[type, Callable[[Any], Any]]:
    long, double, boolean, string = java().Long, java().Double, java().Boolean, java().String

    def windowed(value: Windowed) -> Any:
        start, end = value.window
        # A session of one moment ends where it starts, which a TimeWindow cannot.
        kind = java().SessionWindow if start == end else java().TimeWindow
        return java().Windowed(to_java(value.key), kind(start, end))

    def identifier(value: uuid.UUID) -> Any:
        return java().UUID.fromString(str(value))

    return {
        str: string,
        int: long,
        float: double,
        bool: boolean.valueOf,
        bytes: java_bytes,
        uuid.UUID: identifier,
        Windowed: windowed,
    }


@functools.cache
def _to_python() -> dict[type, Callable[[Any], Any]]:
    def windowed(value: Any) -> Windowed:
        return Windowed(to_python(value.key()), Window(int(value.window().start()), int(value.window().end())))

    def stamped(value: Any) -> tuple[Any, int]:
        return to_python(value.value()), int(value.timestamp())

    def change(value: Any) -> Change:
        return Change(to_python(value.newValue), to_python(value.oldValue))

    def pair(value: Any) -> tuple[Any, Any]:
        return to_python(value.key), to_python(value.value)

    names = java()
    integers = (names.Long, names.Integer, names.Short, names.Byte)
    return {
        **dict.fromkeys(integers, int),
        **dict.fromkeys((names.Double, names.Float), float),
        names.String: str,
        names.Boolean: bool,
        jpype.JArray(jpype.JByte): bytes,
        names.Bytes: lambda value: bytes(value.get()),
        names.UUID: lambda value: uuid.UUID(str(value)),
        names.Windowed: windowed,
        names.ValueAndTimestamp: stamped,
        names.Change: change,
        names.KeyValue: pair,
    }


@functools.cache
def method_name(interface: Any) -> str | None:
    """The one abstract method of a functional interface; None where there are several, or none."""
    abstract = java().find("java.lang.reflect.Modifier").isAbstract
    names = {str(each.getName()) for each in interface.class_.getMethods() if abstract(each.getModifiers())}
    return names.pop() if len(names) == 1 else None


def method_arity(interface: Any) -> int:
    """How many arguments the one abstract method of a functional interface takes."""
    name = method_name(interface)
    abstract = java().find("java.lang.reflect.Modifier").isAbstract
    for each in interface.class_.getMethods():
        if each.getName() == name and abstract(each.getModifiers()):
            return len(each.getParameterTypes())
    raise TypeError(f"{interface} is no functional interface")


_raised: list[BaseException] = []


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, recording its exceptions: Java wraps a Python exception beyond recognition."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            _raised.append(error)
            raise

    return call


def last_raised() -> BaseException | None:
    """The first exception that Python code has raised within Java since the last call; cleared then."""
    found = _raised[0] if _raised else None
    _raised.clear()
    return found


def implement(interface: Any, function: Callable[..., Any], result: Callable[[Any], Any] = to_java) -> Any:
    """A Python function as an object of a functional interface: arguments become Python's, the result Java's."""
    name = method_name(interface)
    if name is None:
        raise TypeError(f"{interface} is no functional interface")

    def call(*arguments: Any) -> Any:
        return result(function(*map(to_python, arguments)))

    return jpype.JObject(jpype.JProxy(interface, dict={name: guarded(call)}), interface)


def java_serde(serde: Serde[Any]) -> Any:
    """Java's serde of the same format."""
    if isinstance(serde, WindowedSerde):
        return _windowed_serde(serde)
    native = _NATIVE_SERDES.get(serde.name)
    if native is not None:
        return getattr(java().Serdes, native)()
    if serde.name in _NUMBERS:
        return _number_serde(*_NUMBERS[serde.name])
    return java().Serdes.serdeFrom(*_boxed(serde))


def _windowed_serde(serde: WindowedSerde) -> Any:
    inner = java_serde(serde.inner)
    known = inspect.getclosurevars(serde.deserialize).nonlocals
    if "size_ms" not in known:
        return java().find("org.apache.kafka.streams.kstream.WindowedSerdes$SessionWindowedSerde")(inner)
    time_windowed = java().find("org.apache.kafka.streams.kstream.WindowedSerdes$TimeWindowedSerde")
    size_ms = known["size_ms"]
    return time_windowed(inner, jpype.JLong(java().Long.MAX_VALUE if size_ms is None else size_ms))


def _number_serde(kind: str, convert: str) -> Any:
    inner = getattr(java().Serdes, kind)()
    serializer, deserializer = inner.serializer(), inner.deserializer()
    to_number = java().find("java.lang.Number")

    def serialize(topic: Any, *rest: Any) -> Any:
        value = rest[-1]
        boxed = None if value is None else getattr(java(), kind).valueOf(getattr(to_number @ value, convert)())
        return serializer.serialize(topic, boxed)

    def deserialize(topic: Any, *rest: Any) -> Any:
        return deserializer.deserialize(topic, rest[-1])

    return java().Serdes.serdeFrom(*_serializers(serialize, deserialize))


def _boxed(serde: Serde[Any]) -> tuple[Any, Any]:
    def serialize(topic: Any, *rest: Any) -> Any:
        value = to_python(rest[-1])
        return None if value is None else java_bytes(serde.serialize(value))

    def deserialize(topic: Any, *rest: Any) -> Any:
        return None if rest[-1] is None else to_java(serde.deserialize(bytes(rest[-1])))

    return _serializers(serialize, deserialize)


def _serializers(serialize: Callable[..., Any], deserialize: Callable[..., Any]) -> tuple[Any, Any]:
    """The two functions behind Java's interfaces. Kafka calls with (topic, data) and with (topic, headers, data)."""

    def nothing(*arguments: Any) -> None:
        return None

    common = {"configure": nothing, "close": nothing}
    return tuple(
        jpype.JObject(jpype.JProxy(interface, dict={**common, name: guarded(function)}), interface)
        for interface, name, function in (
            (java().Serializer, "serialize", serialize),
            (java().Deserializer, "deserialize", deserialize),
        )
    )
