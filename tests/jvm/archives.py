"""Archives of loaded classes (Java's class data sharing, JEP 350): Apache Kafka and ZooKeeper start with a third less
CPU when their classes come from one, a client program with half, and the tests start them dozens of times.

An archive is written by a process of Java when it ends, and holds for the class path and the Java that it was made
with; Java ignores one that does not fit. Benchmarks do not use them: there Kafka runs as its users run it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.jvm.cache import Say, cache_folder, obtain, say_to_stderr
from tests.jvm.jars import PINNED
from tests.jvm.java import find_java
from tests.jvm.kafka import SMALL_JVM, START_TIMEOUT_S, VERSION, ZOOKEEPER_JVM, Kafka, running_kafka
from tests.jvm.process import QUICK_START, QUIET, java_command, run_java

_CONSUMERS = {
    "2.8.2": "kafka.tools.ConsoleConsumer",
    "3.9.2": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "4.3.0": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
_BROKER, _ZOOKEEPER = "kafka.Kafka", "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def make_archives(say: Say = say_to_stderr) -> None:
    """Run a broker and its ZooKeeper once for their archives, unless those are there.

    Raises FetchError, TimeoutError, EOFError or ToolError when Kafka cannot be run.
    """

    def fill(folder: Path) -> None:
        say(f"archiving the classes of Kafka {VERSION} (once, about half a minute)")
        with tempfile.TemporaryDirectory(prefix="odradek-kafka-") as scratch:
            kafka = Kafka(
                Path(scratch),
                jvm=(*SMALL_JVM, f"-XX:ArchiveClassesAtExit={folder / _BROKER}.jsa"),
                zookeeper_jvm=(*ZOOKEEPER_JVM, f"-XX:ArchiveClassesAtExit={folder / _ZOOKEEPER}.jsa"),
            )
            try:
                kafka.start()
                kafka.stop()
                kafka.stop_zookeeper()
            finally:
                kafka.close()

    java = find_java(say).resolve()
    stamp = f"{java} {java.stat().st_mtime_ns}\n" + "\n".join(map(str, PINNED[VERSION]))
    obtain(cache_folder() / "classes" / VERSION, stamp, fill)
    pinned = "\n".join(str(jar) for version in _CONSUMERS for jar in PINNED[version])
    obtain(cache_folder() / "classes" / "clients", f"{java} {java.stat().st_mtime_ns}\n{pinned}", _fill_with_clients)


def _fill_with_clients(folder: Path) -> None:
    """A consumer of each release joins a group, finds nothing to read for two seconds, and leaves. Further classes of a
    user's own program come from the jars.
    """
    with (
        tempfile.TemporaryDirectory(prefix="odradek-kafka-") as scratch,
        running_kafka(Path(scratch) / "kafka") as kafka,
    ):
        for version, consumer in _CONSUMERS.items():
            asked = ["--bootstrap-server", kafka.bootstrap, "--topic", "t", "--group", version, "--timeout-ms", "2000"]
            options = (*QUICK_START, *QUIET, f"-XX:ArchiveClassesAtExit={folder / version}.jsa")
            run_java(java_command(version, consumer, asked, options), timeout_s=START_TIMEOUT_S, check=False)
