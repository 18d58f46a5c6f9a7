"""Streams driver: a TopologyTestDriver with one clock, and with the serdes of the topology.

    driver = StreamsDriver(topology)
    driver.topic("orders").send("anna", {"total": 30})
    driver.advance(timedelta(minutes=5))
    assert driver.read("revenue") == [("CZ", 30)]

Records are sent at the driver's time, which only `advance` changes; it calls the punctuators of wall-clock time that
are due. Stream time follows the records. The fixture `streams_driver` makes drivers and closes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any

from odradek.streams.driver import Span, Time, TopologyTestDriver
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.nodes import configured_serde
from odradek.streams.records import Record
from odradek.streams.serdes import Serde
from odradek.streams.supervisor.loading import topology_of
from odradek.streams.topology import SinkNode, SourceNode, Topology

TestedApplication = Topology | StreamsBuilder | Callable[[], Topology | StreamsBuilder]
"""A topology, or what makes one: as MODULE:TOPOLOGY of `odradek streams run`."""
_MS = timedelta(milliseconds=1)


class StreamsDriver:
    """Runs an application in the calling thread, without a broker. A context manager; otherwise `close()` it."""

    def __init__(
        self, application: TestedApplication, config: Mapping[str, Any] | None = None, start: Time = 0
    ) -> None:
        """`config` contains properties of the application, none of which is required. `start` is the first time, in ms
        since the epoch or a datetime (a naive one is local).

        Raises ApplicationError, TopologyError, and StreamsError for a topology that cannot run.
        """
        self.topology = topology_of(application, "the application")
        self._start_ms = _ms(start)
        self.now_ms = self._start_ms
        """The time of the driver, in ms since the epoch."""
        self.driver = TopologyTestDriver(self.topology, config, self._start_ms)
        """The driver below, with the methods of Kafka's TopologyTestDriver."""

    def __enter__(self) -> StreamsDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close processors and stores. A second call does nothing."""
        self.driver.close()

    # ---- time

    @property
    def now(self) -> datetime:
        """The time of the driver, in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    def advance(self, by: Span) -> None:
        """Advance the time, and call the wall-clock punctuators that are due, each once. Raises ValueError for a
        negative span.
        """
        span_ms = _span_ms(by)
        if span_ms < 0:
            raise ValueError(f"time cannot go back: advance({by!r})")
        self.now_ms += span_ms
        self.driver.advance_wall_clock_time(span_ms)

    def time_of(self, at: Time | timedelta | None) -> int:
        """A time in ms since the epoch: None is the driver's time, a timedelta counts from the start."""
        if at is None:
            return self.now_ms
        return self._start_ms + _span_ms(at) if isinstance(at, timedelta) else _ms(at)

    # ---- topics

    def topic(self, name: str, key: Serde[Any] | None = None, value: Serde[Any] | None = None) -> DriverTopic:
        """A topic to send to and to read from. Omitted serdes are those of the topology, else the defaults of the
        configuration. Raises StreamsError where there is neither.
        """
        return DriverTopic(self, name, self._serdes(name, key, value, reads=True), (key, value))

    def read(self, name: str) -> list[tuple[Any, Any]]:
        """Take all records that the application has written to a topic: their keys and values."""
        return [(record.key, record.value) for record in self.read_records(name)]

    def read_records(self, name: str) -> list[Record[Any, Any]]:
        """The same, with timestamps and headers."""
        return self.topic(name).read_records()

    def read_table(self, name: str) -> dict[Any, Any]:
        """Take all records of a topic: the latest value of each key, without deleted ones. Keys must be hashable."""
        return {key: value for key, value in dict(self.read(name)).items() if value is not None}

    def output_topics(self) -> list[str]:
        """The topics that sinks write to and that are not internal."""
        nodes = self.topology.nodes.values()
        topics = (node.topic for node in nodes if isinstance(node, SinkNode) and isinstance(node.topic, str))
        return sorted({topic for topic in topics if topic not in self.topology.internal_topics})

    # ---- state

    def store(self, name: str) -> Any:
        """A store, as Kafka's driver gives it: a key-value or window store of values without timestamps, a session
        store, a versioned store. Raises KeyError for an unknown name.
        """
        driver = self.driver
        builder = self.topology.stores.get(name) or self.topology.global_stores[name]
        match getattr(builder, "kind", None):
            case "key-value":
                return driver.get_key_value_store(name)
            case "window":
                return driver.get_window_store(name)
        return driver.get_state_store(name)

    @property
    def dropped_records(self) -> int:
        """How many records nodes have dropped, such as late ones (Kafka's metric dropped-records-total)."""
        return self.driver.dropped_records

    # ---- internals

    def _serdes(
        self, topic: str, key: Serde[Any] | None, value: Serde[Any] | None, *, reads: bool
    ) -> tuple[Serde[Any], Serde[Any]]:
        """The serdes of a topic; `reads` prefers those of a source to those of a sink."""
        if key is None or value is None:
            node = self._node_of(topic, reads)
            if node is not None:
                key, value = key or node.key, value or node.value
        config, where = self.driver.config, f"topic {topic} of the driver, which no node of the topology names"
        return (
            configured_serde(key, "default.key.serde", config, f"{where} (keys)"),
            configured_serde(value, "default.value.serde", config, f"{where} (values)"),
        )

    def _node_of(self, topic: str, reads: bool) -> SourceNode | SinkNode | None:
        """The source or sink whose serdes a topic has; the only sink that chooses topics, for any other topic."""
        nodes = self.topology.nodes.values()
        sources = [
            node
            for node in nodes
            if isinstance(node, SourceNode)
            and (topic in node.topics or (node.pattern is not None and node.pattern.fullmatch(topic)))
        ]
        sinks = [node for node in nodes if isinstance(node, SinkNode)]
        written = [node for node in sinks if node.topic == topic]
        choosing = [node for node in sinks if callable(node.topic)]
        found: list[SourceNode | SinkNode] = [*sources, *written] if reads else [*written, *sources]
        if found:
            return found[0]
        return choosing[0] if len(choosing) == 1 else None


class DriverTopic:
    """A topic of a driver; `StreamsDriver.topic` creates it."""

    def __init__(
        self,
        driver: StreamsDriver,
        name: str,
        serdes: tuple[Serde[Any], Serde[Any]],
        given: tuple[Serde[Any] | None, Serde[Any] | None],
    ) -> None:
        """`serdes` are those to send with; `given` those of the user, to read with."""
        self.name = name
        self._driver = driver
        self._given = given
        self._input = driver.driver.create_input_topic(name, *serdes)

    def send(
        self,
        key: Any,
        value: Any,
        *,
        at: Time | timedelta | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Send one record, and process everything that it causes.

        The timestamp is the driver's time; `at` is another one, in ms, as a datetime, or as a timedelta since the
        start. Raises ValueError for a topic that the topology does not read, StreamsError for errors within the
        topology.
        """
        self._input.pipe_input(key, value, timestamp=self._driver.time_of(at), headers=headers)

    def send_all(self, pairs: Iterable[tuple[Any, Any]], every: Span = 0) -> None:
        """Send a record for each key and value; the driver's time advances by `every` between two of them."""
        for number, (key, value) in enumerate(pairs):
            if number and every:
                self._driver.advance(every)
            self.send(key, value)

    def send_records(self, records: Iterable[Record[Any, Any]]) -> None:
        """Send records with their own timestamps and headers."""
        self._input.pipe_record_list(records)

    def read(self) -> list[tuple[Any, Any]]:
        """Take all records that the application has written to the topic: their keys and values."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_records(self) -> list[Record[Any, Any]]:
        """The same, with timestamps and headers."""
        serdes = self._driver._serdes(self.name, *self._given, reads=False)
        return self._driver.driver.create_output_topic(self.name, *serdes).read_records_to_list()


def _ms(time: Time) -> int:
    return round(time.timestamp() * 1000) if isinstance(time, datetime) else time


def _span_ms(span: Span) -> int:
    return span // _MS if isinstance(span, timedelta) else span
