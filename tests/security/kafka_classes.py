"""Apache Kafka's classes in the test process: each release of tests/jvm/jars in a class loader of its own.

A process has one JVM for its whole life, the one of `tests.streams.oracle`, whose class path is that of Kafka Streams.
The loaders here have only the platform's loader as their parent, so releases do not mix.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import jpype

from tests.jvm.jars import classpath
from tests.streams.oracle.java import java

RELEASE: Final = "3.9.2"


class KafkaClasses:
    """The classes of one release of Kafka and of its dependencies, by their full names."""

    def __init__(self, release: str) -> None:
        java()
        files = [jpype.JClass("java.io.File")(str(jar)) for jar in classpath(release)]
        urls = jpype.JArray(jpype.JClass("java.net.URL"))([each.toURI().toURL() for each in files])
        parent = jpype.JClass("java.lang.ClassLoader").getPlatformClassLoader()
        self.loader = jpype.JClass("java.net.URLClassLoader")(urls, parent)

    @functools.cache  # noqa: B019  # one instance for each release, for the life of the process
    def __call__(self, name: str) -> Any:
        """The class of a full name."""
        return jpype.JClass(name, loader=self.loader)

    def common(self, name: str) -> Any:
        """The class of a name below org.apache.kafka.common."""
        return self(f"org.apache.kafka.common.{name}")

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within the block this thread finds classes by name here; threads that begin within it keep doing so."""
        thread = jpype.JClass("java.lang.Thread").currentThread()
        before = thread.getContextClassLoader()
        thread.setContextClassLoader(self.loader)
        try:
            yield
        finally:
            thread.setContextClassLoader(before)


@functools.cache
def kafka_classes(release: str = RELEASE) -> KafkaClasses:
    """The classes of a release. Raises FetchError if Java or the jars are not available."""
    return KafkaClasses(release)


def hidden(instance: Any, method: str, parameters: tuple[Any, ...], *arguments: Any) -> Any:
    """Call a method that is not public."""
    found = instance.getClass().getDeclaredMethod(method, *(each.class_ for each in parameters))
    found.setAccessible(True)
    return found.invoke(instance, *arguments)


def java_map(items: Mapping[str, Any]) -> Any:
    """A java.util.HashMap."""
    result = jpype.JClass("java.util.HashMap")()
    for key, value in items.items():
        result.put(jpype.JString(key), jpype.JString(value) if isinstance(value, str) else value)
    return result


def java_list(items: Any) -> Any:
    """A java.util.ArrayList."""
    result = jpype.JClass("java.util.ArrayList")()
    for item in items:
        result.add(item)
    return result


def java_bytes(data: bytes) -> Any:
    """A byte[]."""
    return jpype.JArray(jpype.JByte)(data)


class Outcome(NamedTuple):
    """What a call of Java returned, or the exception that it threw: its class without the package, and its message."""

    value: Any
    error: str | None = None
    message: str = ""


def attempt(call: Callable[..., Any], *arguments: Any) -> Outcome:
    """Call a method or a constructor of Java."""
    try:
        return Outcome(call(*arguments))
    except jpype.JException as error:
        return Outcome(None, str(error.getClass().getSimpleName()), str(error.getMessage()))
