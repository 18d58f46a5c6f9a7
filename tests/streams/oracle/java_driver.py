"""Java's TopologyTestDriver, record for record and in bytes.

The output of a topology is read back as bytes, topic by topic: outputs, repartition topics and changelogs alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

from odradek.streams.records import NO_TIMESTAMP, Headers
from tests.streams.oracle.java import java, remove, state_folder
from tests.streams.oracle.values import java_bytes, last_raised, python_bytes


class Written(NamedTuple):
    """A record on a topic: bytes, ms, headers (an empty list where there are none).

    The timestamp is NO_TIMESTAMP where Java leaves it to its producer, which sets the time on the wall.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]]


@contextlib.contextmanager
def python_causes() -> Iterator[None]:
    """A Java exception is raised from the Python exception that caused it, if one did."""
    last_raised()
    try:
        yield
    except java().Exception as error:
        raised = last_raised()
        if raised is not None:
            raise error from raised
        raise


class JavaDriver:
    """Runs a Java topology with no broker. A context manager."""

    def __init__(
        self, topology: Any, config: Mapping[str, str] | None = None, wall_clock_ms: int = 0, application: str = "app"
    ) -> None:
        """`config` holds Kafka's own properties; application id and state directory are set here."""
        self._folder = state_folder()
        self.topology = topology
        properties = java().Properties()
        settings = {
            "application.id": application,
            "bootstrap.servers": "none:1",
            "state.dir": str(self._folder),
            **(config or {}),
        }
        for name, value in settings.items():
            properties.put(name, value)
        try:
            with python_causes():
                now = java().Instant.ofEpochMilli(wall_clock_ms)
                self.driver = java().TopologyTestDriver(topology, properties, now)
        except BaseException:
            remove(self._folder)
            raise
        self._inputs: dict[str, Any] = {}

    def __enter__(self) -> JavaDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the driver and delete its state."""
        try:
            self.driver.close()
        finally:
            remove(self._folder)

    def pipe(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = None) -> None:
        """One record in; its effects are complete before this returns. Raises Java's exceptions."""
        names = java()
        into = self._inputs.get(topic)
        if into is None:
            serializer = names.ByteArraySerializer()
            into = self._inputs[topic] = self.driver.createInputTopic(topic, serializer, serializer)
        record = names.TestRecord(
            java_bytes(key), java_bytes(value), record_headers(headers or ()), names.Long(timestamp)
        )
        with python_causes():
            into.pipeInput(record)

    def outputs(self, topic: str) -> list[Written]:
        """The records written to `topic` since the last call; none where it was never written to."""
        if topic not in self.topics():
            return []
        deserializer = java().ByteArrayDeserializer()
        found = self.driver.createOutputTopic(topic, deserializer, deserializer).readRecordsToList()
        return [_written(each) for each in found]

    def topics(self) -> list[str]:
        """The topics with output: outputs, repartition topics and changelogs, sorted."""
        return sorted(str(topic) for topic in self.driver.producedTopicNames())

    def produced(self) -> dict[str, list[Written]]:
        """outputs() of every topic that has new output since the last call."""
        drained = {topic: self.outputs(topic) for topic in self.topics()}
        return {topic: records for topic, records in drained.items() if records}

    def advance_wall_clock(self, ms: int) -> None:
        """Advance the wall clock; punctuations that are due run."""
        with python_causes():
            self.driver.advanceWallClockTime(java().Duration.ofMillis(ms))

    def store(self, name: str) -> Any:
        """A state store as Java's object of its own kind; None where there is none of this name."""
        return self.driver.getAllStateStores().get(name)

    def describe(self) -> str:
        """Kafka's text of the topology."""
        return str(self.topology.describe().toString())

    def dropped_records(self) -> int:
        """How many records the task has dropped, for any cause; the update of global stores counts for itself."""
        for each, metric in self.driver.metrics().items():
            if str(each.name()) == "dropped-records-total" and str(each.tags().get("task-id")) == "0_0":
                return int(metric.metricValue())
        return 0

    def metrics(self) -> dict[tuple[str, str], Any]:
        """(group, name) -> value of every metric; of several with the same name the last."""
        return {
            (str(each.group()), str(each.name())): metric.metricValue()
            for each, metric in self.driver.metrics().items()
        }


def record_headers(headers: Iterable[tuple[str, bytes | None]]) -> Any:
    """Headers as Java's RecordHeaders."""
    made = java().RecordHeaders()
    for name, value in headers:
        made.add(name, java_bytes(value))
    return made


def python_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    """Java's Headers as pairs."""
    return [(str(each.key()), python_bytes(each.value())) for each in headers.toArray()]


def _written(record: Any) -> Written:
    headers = python_headers(record.headers())
    timestamp = record.timestamp()
    return Written(
        python_bytes(record.key()),
        python_bytes(record.value()),
        NO_TIMESTAMP if timestamp is None else int(timestamp),
        headers,
    )
