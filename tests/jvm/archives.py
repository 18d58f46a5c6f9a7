"""Archives of loaded classes (Java's class data sharing, JEP 350): Apache Kafka, ZooKeeper and Spark start with a third
less CPU when their classes come from one, a client program with half, and the tests start them dozens of times.

An archive is written by a process of Java when it ends, and holds for the class path and the Java that it was made
with; Java ignores one that does not fit. Benchmarks do not use them: there Kafka runs as its users run it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Final

from odradek.ports import free_port
from tests.jvm import archive_workload, kraft
from tests.jvm.archive_workload import use
from tests.jvm.cache import Say, cache_folder, obtain, run_quietly, say_to_stderr
from tests.jvm.jars import PINNED
from tests.jvm.java import find_java, java_home
from tests.jvm.kafka import SMALL_JVM, START_TIMEOUT_S, VERSION, ZOOKEEPER_JVM, Kafka, running_kafka
from tests.jvm.process import CLIENTS, OLDEST_CLIENTS, QUICK_START, QUIET, java_command, run_java
from tests.jvm.tools import VERSIONS

SPARK_JVM: Final = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmn400m", "-Xshare:auto"),
    # With one compiler Java reserves 48 MB for compiled code, which Spark and its generated classes fill: then the JVM
    # discards compiled methods all the time, and interprets them.
    *("-XX:ReservedCodeCacheSize=256m", "-XX:MetaspaceSize=256m"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),  # of Spark's own jars
    "-Djdk.lang.Process.launchMechanism=VFORK",  # Hadoop runs chmod for each file that it makes
)
"""A JVM of Spark that is soon at speed."""
_CONSUMERS = {
    "2.8.2": "kafka.tools.ConsoleConsumer",
    "3.9.2": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "4.3.0": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
_OLDEST_CONSUMERS = dict.fromkeys(("0.10.2.2", "0.11.0.3", "1.1.1", "2.2.2"), "kafka.tools.ConsoleConsumer")
_BROKER, _ZOOKEEPER = "kafka.Kafka", "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def make_archives(say: Say = say_to_stderr) -> None:
    """Run brokers, a ZooKeeper and clients once for their archives, unless those are there.

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
                use(kafka.bootstrap)
                kafka.stop()
                kafka.stop_zookeeper()
            finally:
                kafka.close()

    java = find_java(say).resolve()
    used = hashlib.sha256(Path(archive_workload.__file__).read_bytes()).hexdigest()
    stamp = f"{java} {java.stat().st_mtime_ns}\n{used}\n" + "\n".join(map(str, PINNED[VERSION]))
    obtain(cache_folder() / "classes" / VERSION, stamp, fill)
    stamp = f"{java} {java.stat().st_mtime_ns}\n{used}\n" + "\n".join(map(str, PINNED[kraft.VERSION]))
    obtain(cache_folder() / "classes" / kraft.VERSION, stamp, _fill_with_kraft)
    for name, consumers in ((CLIENTS, _CONSUMERS), (OLDEST_CLIENTS, _OLDEST_CONSUMERS)):
        pinned = "\n".join(str(jar) for version in consumers for jar in PINNED[version])
        stamp = f"{java} {java.stat().st_mtime_ns}\n{pinned}"
        obtain(cache_folder() / "classes" / name, stamp, partial(_fill_with_clients, consumers=consumers))
    # Java compares the paths of the jars, which are in this environment.
    stamp = f"{java} {java.stat().st_mtime_ns}\n{metadata.version('pyspark')}"
    obtain(_spark_archive().parent, stamp, _fill_with_spark)


def spark_archive_options() -> tuple[str, ...]:
    """Java's options for the archive of Spark's classes, whether or not it is there or fits: Java does not warn."""
    return f"-XX:SharedArchiveFile={_spark_archive()}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"


def _spark_archive() -> Path:
    return Path(sys.prefix) / "spark-classes" / "driver.jsa"


def _fill_with_spark(folder: Path) -> None:
    archive = folder / _spark_archive().name
    options = " ".join((*SPARK_JVM, f"-XX:ArchiveClassesAtExit={archive}"))
    run_quietly(
        [sys.executable, "-m", "tests.jvm.spark_classes", options],
        failure="Spark's classes cannot be archived",
        environment={**os.environ, "JAVA_HOME": str(java_home(find_java()))},
    )


def _fill_with_kraft(folder: Path) -> None:
    """A formatted data directory, and the classes of a broker with KRaft."""

    async def run(scratch: Path) -> None:
        archive = f"-XX:ArchiveClassesAtExit={folder / kraft.MAIN}.jsa"
        alone = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
        async with kraft.running_kraft(scratch / "running", alone, (*kraft.SMALL_JVM, archive)) as port:
            await asyncio.to_thread(use, f"127.0.0.1:{port}", ("classic", "consumer"))

    with tempfile.TemporaryDirectory(prefix="odradek-kafka-") as name:
        kraft.format_directory(kraft.write_properties(Path(name), folder / kraft.FORMATTED, free_port(), {}))
        asyncio.run(run(Path(name)))


def _fill_with_clients(folder: Path, consumers: Mapping[str, str]) -> None:
    """A consumer of each release joins a group, finds nothing to read for two seconds, and leaves. Further classes of a
    user's own program come from the jars.
    """
    with (
        tempfile.TemporaryDirectory(prefix="odradek-kafka-") as scratch,
        running_kafka(Path(scratch) / "kafka") as kafka,
    ):
        for version, consumer in consumers.items():
            group = ["--group", version] if version in VERSIONS else ["--consumer-property", f"group.id={version}"]
            asked = ["--bootstrap-server", kafka.bootstrap, "--topic", "t", *group, "--timeout-ms", "2000"]
            options = (*QUICK_START, *QUIET, f"-XX:ArchiveClassesAtExit={folder / version}.jsa")
            run_java(java_command(version, consumer, asked, options), timeout_s=START_TIMEOUT_S, check=False)
