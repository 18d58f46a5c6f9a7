"""The page docs/streams-parity.md beside the classes of Kafka Streams 3.9.2: its rows, Java's public names, and the
Python names that its rows give.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.jvm.jars import classpath
from tests.streams.oracle.java import RELEASE, java

PAGE: Final = Path(__file__).parents[2] / "docs" / "streams-parity.md"
PACKAGE: Final = "odradek.streams"
JAVA_PACKAGE: Final = "org.apache.kafka.streams"
ARCHIVES: Final = ("kafka-streams-3", "kafka-streams-test-utils-3")
STATES: Final = ("there", "different", "not")
_ROW: Final = re.compile(r"^\| `([^`]+)` \| (?:`([^`]+)`)? ?\| (there|different|not)(?:: (.+?))? \|$")
_MISSING: Final = object()


class Row(NamedTuple):
    """One row: a Java class, method or property, its Python name or "", a state of STATES, and its explanation."""

    java: str
    python: str
    state: str
    why: str


def rows(text: str, heading: str) -> list[Row]:
    """The rows of one section of the page. Raises ValueError for a line of a table that is no row."""
    _, _, rest = text.partition(f"\n## {heading}\n")
    section, _, _ = rest.partition("\n## ")
    found = []
    for line in section.splitlines():
        if not line.startswith("|") or line.startswith(("|---", "| Java ", "| Property ")):
            continue
        match = _ROW.match(line)
        if match is None:
            raise ValueError(f"no row of the parity page: {line}")
        found.append(Row(match[1], match[2] or "", match[3], match[4] or ""))
    return found


def java_names() -> Iterator[str]:
    """Every public class of Java's public API, and `Class.method` of each method that it declares as public.

    Names are relative to org.apache.kafka.streams; an inner class follows its outer class and a dollar sign.
    """
    classes = java()
    modifier, by_name = classes.find("java.lang.reflect.Modifier"), classes.Class.forName
    loader = classes.ClassLoader.getSystemClassLoader()
    for name in _class_names():
        found = by_name(name, False, loader)
        if modifier.isPublic(found.getModifiers()):
            short = name.removeprefix(f"{JAVA_PACKAGE}.")
            yield short
            methods = [each for each in found.getDeclaredMethods() if not each.isSynthetic()]
            yield from sorted(
                {f"{short}.{each.getName()}" for each in methods if modifier.isPublic(each.getModifiers())}
            )


def _class_names() -> Iterator[str]:
    folder = JAVA_PACKAGE.replace(".", "/") + "/"
    for archive in classpath(RELEASE):
        if archive.name.startswith(ARCHIVES):
            for entry in sorted(zipfile.ZipFile(archive).namelist()):
                if entry.startswith(folder) and entry.endswith(".class") and "/internals/" not in entry:
                    yield entry.removesuffix(".class").replace("/", ".")


def java_properties() -> set[str]:
    """The names of Java's StreamsConfig."""
    return {str(name) for name in java().find(f"{JAVA_PACKAGE}.StreamsConfig").configDef().names()}


def exists(name: str) -> bool:
    """Whether a name such as "KStream.filter" or "records.TaskId.parse" is one of odradek.streams."""
    return find(name) is not _MISSING


def find(name: str) -> Any:
    """What odradek.streams has under a name: a field of a class is its name. _MISSING where it has nothing."""
    parts = name.split(".")
    for length in range(len(parts), -1, -1):
        try:
            found: Any = importlib.import_module(".".join((PACKAGE, *parts[:length])))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = _member(found, part)
        if found is not _MISSING:
            return found
    return _MISSING


def _member(owner: Any, name: str) -> Any:
    """An attribute, a field of a dataclass, or an attribute that a class declares with its type.

    Every object can be compared and printed, so `__eq__` and the like count only as those of a class.
    """
    if name.startswith("__") and inspect.isroutine(owner):
        return _MISSING
    fields = {each.name for each in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else ()
    if name in fields or name in getattr(owner, "__annotations__", ()):
        return name
    return getattr(owner, name, _MISSING)
