"""One JVM in this process (JPype), with Kafka Streams 3.9.2 and its TopologyTestDriver on the class path.

A process has one JVM for its whole life, so every test of a worker process shares it: `java()` starts it at the first
call. Classes are found by their short names: `java().StreamsBuilder()`, `java().Serdes.String()`.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import jpype

from tests.jvm.jars import classpath
from tests.jvm.java import find_java, java_home

RELEASE: Final = "streams-3.9.2"
PACKAGES: Final = (
    "org.apache.kafka.streams",
    "org.apache.kafka.streams.kstream",
    "org.apache.kafka.streams.state",
    "org.apache.kafka.streams.processor.api",  # before the next: names that are in both are the old API there
    "org.apache.kafka.streams.processor",
    "org.apache.kafka.streams.test",
    "org.apache.kafka.streams.query",
    "org.apache.kafka.streams.errors",
    "org.apache.kafka.streams.kstream.internals",
    "org.apache.kafka.streams.state.internals",
    "org.apache.kafka.streams.processor.internals",
    "org.apache.kafka.common.serialization",
    "org.apache.kafka.common.header.internals",
    "org.apache.kafka.common.utils",
    "java.lang",
    "java.util",
    "java.time",
)
# A process that runs for seconds gains nothing from the second compiler, nor from a second thread of the collector.
OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
LOGGING: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel"


class Java:
    """Java's classes as attributes, by their short names; an inner class by Outer$Inner through `find`."""

    def __getattr__(self, name: str) -> Any:
        found = self.find(name)
        if found is None:
            raise AttributeError(f"no class {name} in {', '.join(PACKAGES)}")
        setattr(self, name, found)
        return found

    def find(self, name: str) -> Any:
        """The class of a short or a full name; None where there is none."""
        for full in (name,) if "." in name else (f"{package}.{name}" for package in PACKAGES):
            try:
                return jpype.JClass(full)
            except TypeError:  # JPype's exception for a class that cannot be loaded
                continue
        return None


@functools.cache
def java(log_level: str = "error") -> Java:
    """The classes of the one JVM, started if need be. Raises FetchError if Java or the jars are not available."""
    home = java_home(find_java())
    jpype.startJVM(
        *(*OPTIONS, f"{LOGGING}={log_level}", f"-Djava.io.tmpdir={tempfile.gettempdir()}"),  # Python's
        jvmpath=_library(home),
        classpath=[str(jar) for jar in classpath(RELEASE)],
        convertStrings=False,
    )
    return Java()


def _library(home: Path) -> Path:
    """The JVM as a library within a Java home (Linux or macOS)."""
    for name in ("libjvm.so", "libjvm.dylib"):
        for place in ("lib/server", "jre/lib/server"):
            library = home / place / name
            if library.exists():
                return library
    raise FileNotFoundError(f"no libjvm below {home}")


def state_folder() -> Path:
    """A new folder for the state of a driver, in memory where the machine has such a place.

    Java's driver commits after every record, and every commit syncs a checkpoint: on a disk that is most of the time.
    """
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="odradek-oracle-", dir=memory if memory.is_dir() else None))


def remove(folder: Path) -> None:
    """Delete a folder made by state_folder()."""
    shutil.rmtree(folder, ignore_errors=True)
