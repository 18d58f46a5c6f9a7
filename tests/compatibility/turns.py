"""One data directory and one ZooKeeper that Apache Kafka 3.9.2 and Odradek serve in turn, as one broker at one address.

Clients outlive the change: for them it is a broker that restarts. So a producer keeps its id, its sequence and its open
transaction, and the acknowledgements of one broker have to hold with the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType

from odradek.broker_process import BrokerProcess
from tests.jvm.kafka import Kafka
from tests.jvm.tools import run_tool
from tests.support.eventually import eventually

VERSION: Final = "3.9.2"
DEADLINE_S: Final = 90.0
PROPERTIES: Final[Mapping[str, str]] = {
    "broker.id": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "5000",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
    # A log's start is in a checkpoint only; written once a minute, it is lost to kill -9, with Kafka, too.
    "log.flush.start.offset.checkpoint.interval.ms": "100",
}
RECONNECT: Final = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}
"""Otherwise librdkafka does not reconnect to a broker that has gone for up to ten seconds, and logs each try."""

Name = tuple[str, int]
T = TypeVar("T")


# -- the serving broker ------------------------------------------------------------------------------------------------


class Turns:
    """The directory and its serving broker, none at first. `properties` are those of both, over PROPERTIES."""

    def __init__(self, folder: Path, zookeeper: str, properties: Mapping[str, str] | None = None) -> None:
        values = {**PROPERTIES, **(properties or {})}
        self.kafka: Kafka = Kafka(folder / "kafka", values, zookeeper=zookeeper, gated=True)
        address = f"PLAINTEXT://{self.kafka.bootstrap}"
        own = {"zookeeper.connect": zookeeper, "log.dirs": str(self.data_dir), "listeners": address}
        self.ours: BrokerProcess = BrokerProcess(folder / "ours", {**values, **own}, timeout_s=60)
        self._serving: Kafka | BrokerProcess | None = None

    @property
    def bootstrap(self) -> str:
        """host:port of either."""
        return self.kafka.bootstrap

    @property
    def data_dir(self) -> Path:
        """The directory that changes hands."""
        return self.kafka.data_dir

    def folder(self, name: Name) -> Path:
        """The folder of a partition."""
        return self.data_dir / f"{name[0]}-{name[1]}"

    def start(self, who: Kafka | BrokerProcess) -> None:
        """Start `kafka` or `ours` over the directory, which no broker may have open, and wait until every partition is
        led.
        """
        assert self._serving is None
        self._serving = who
        who.start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        eventually(lambda: self._here() - led(admin), lambda names: not names, "every partition has a leader")

    def stop(self) -> None:
        """SIGTERM to the serving broker, and wait for the end."""
        self._taken().stop()

    def kill(self) -> None:
        """SIGKILL to the serving broker."""
        self._taken().kill()

    def close(self) -> None:
        """End the process that runs."""
        self._serving = None
        self.kafka.close()
        self.ours.discard()

    def _here(self) -> set[Name]:
        """The partitions that have a folder in the directory."""
        folders = (folder for folder in self.data_dir.glob("*-[0-9]*") if folder.name != "__cluster_metadata-0")
        names = (folder.name.rpartition("-") for folder in folders)
        return {(topic, int(number)) for topic, _, number in names}

    def _taken(self) -> Kafka | BrokerProcess:
        assert self._serving is not None, "no broker serves"
        serving, self._serving = self._serving, None
        return serving


# -- the visible state -------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """A record as a consumer sees it; `timestamp` is its type (1 create, 2 append) and milliseconds."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[Any, ...]


class State(NamedTuple):
    """The state of partitions that clients can read, in a form that can be compared."""

    uncommitted: dict[Name, list[Stored]]
    committed: dict[Name, list[Stored]]
    ends: dict[Name, list[tuple[int, int]]]
    by_time: dict[Name, list[tuple[int, int]]]
    groups: dict[Name, tuple[int, str | None]]


def read(bootstrap: str, names: Iterable[Name], isolation: str = "read_uncommitted") -> dict[Name, list[Stored]]:
    """All records of the partitions, by their order in the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "no-group",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    found: dict[Name, list[Stored]] = {name: [] for name in names}
    open_ends = set(found)
    consumer.list_topics(timeout=DEADLINE_S)  # librdkafka refreshes metadata without a leader after 0.5 s
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in found])
    try:
        while open_ends:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"a consumer waits for records of {open_ends}"
            name = str(message.topic()), message.partition() or 0
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                open_ends.discard(name)
                continue
            headers = tuple(message.headers() or ())
            found[name].append(
                Stored(message.offset() or 0, message.timestamp(), message.key(), message.value(), headers)
            )
    finally:
        consumer.close()
    return found


def look(bootstrap: str, names: list[Name], times_ms: Iterable[int], group: str) -> State:
    """The state of the partitions, with the first offsets at or after some times and the offsets of a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    specs = [OffsetSpec.max_timestamp(), *map(OffsetSpec.for_timestamp, times_ms)]
    ends = list_offsets(admin, names, [OffsetSpec.earliest(), OffsetSpec.latest()])
    by_time = list_offsets(admin, names, specs)
    (asked_group,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    groups = {
        (each.topic, each.partition): (each.offset, each.metadata)
        for each in asked_group.result(30).topic_partitions or ()
    }
    return State(read(bootstrap, names), read(bootstrap, names, "read_committed"), ends, by_time, groups)


def list_offsets(admin: AdminClient, names: list[Name], specs: list[OffsetSpec]) -> dict[Name, list[tuple[int, int]]]:
    """(offset, time) for each partition and spec, first for read_uncommitted, then for read_committed."""
    found: dict[Name, list[tuple[int, int]]] = {name: [] for name in names}
    for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        for spec in specs:
            asked = {TopicPartition(*name): spec for name in names}
            for at, answer in admin.list_offsets(asked, isolation_level=isolation, request_timeout=30).items():
                result = answer.result(30)
                found[at.topic, at.partition].append((result.offset, result.timestamp))
    return found


def led(admin: AdminClient) -> set[Name]:
    """The partitions for which the broker returns a leader."""
    topics = admin.list_topics(timeout=DEADLINE_S).topics
    return {(name, each.id) for name, topic in topics.items() for each in topic.partitions.values() if each.leader >= 0}


def alter_topic(bootstrap: str, topic: str, **values: object) -> None:
    """Set properties of a topic, named with underscores in place of dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(30)


# -- the files ---------------------------------------------------------------------------------------------------------


def cleaned_to(turns: Turns, name: Name) -> int:
    """The entry of a partition in cleaner-offset-checkpoint: the first offset not compacted; -1 without one."""
    path = turns.data_dir / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    found = {(topic, int(partition)): int(offset) for topic, partition, offset in map(str.split, lines)}
    return found.get(name, -1)


def segments(folder: Path) -> list[Path]:
    """The segments of a log, oldest first; the last one is the active one."""
    return sorted(folder.glob("*.log"))


def dump_finds_nothing_wrong(data_dir: Path, *, compacted: frozenset[str]) -> str:
    """kafka-dump-log over every file of a directory at rest: all valid, and gaps in `compacted` topics only.

    Returns its output for the logs.
    """
    printed = ""
    for suffix, options in ((".log", ["--deep-iteration"]), (".timeindex", ["--index-sanity-check"])):
        files = sorted(data_dir.glob(f"*-[0-9]*/*{suffix}"))
        if suffix == ".timeindex":
            files += sorted(data_dir.glob("*-[0-9]*/*.index"))
        files = [file for file in files if file.stat().st_size or suffix == ".log"]
        result = run_tool(VERSION, "kafka-dump-log", [*options, "--files", ",".join(map(str, files))], timeout_s=120)
        complaints = [line for line in result.stdout.splitlines() if _complains(line)]
        complaints += [line for line in result.stderr.splitlines() if not _tells_of_gaps(line, compacted)]
        assert not complaints, complaints
        if suffix == ".log":
            printed = result.stdout
        else:
            assert result.stdout.count("passed sanity check") == len(files)
    return printed


def _complains(line: str) -> bool:
    return "isvalid: false" in line or line.startswith(("Found ", "Mismatches in", "Could not", "Error"))


def _tells_of_gaps(line: str, compacted: frozenset[str]) -> bool:
    """Compaction leaves gaps between offsets, which the tool prints among the errors."""
    if line.startswith("Non-consecutive offsets in"):
        return any(f"/{topic}-" in line for topic in compacted)
    return re.fullmatch(r"  \d+ is followed by \d+", line) is not None
