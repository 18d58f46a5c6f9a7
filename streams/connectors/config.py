"""Configuration of a connector: the properties of Kafka Connect that have an effect here, beside those of a stream
application.

Names are Kafka's. application.id, bootstrap.servers, security.protocol, sasl.*, ssl.*, default.key.serde,
default.value.serde, commit.interval.ms, poll.ms, max.poll.records, the timeouts of a group, and the prefixes of clients
(consumer., producer., admin.client.) are those of streams/config.py; the rows here come from Kafka Connect's
ConnectorConfig, SinkConnectorConfig and SourceConnectorConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from odradek.streams.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2, StreamsConfig, StreamsConfigError
from odradek.streams.errors import TopologyError
from odradek.streams.topology import check_topic_name


class ConnectorProperty(NamedTuple):
    """One row of the table."""

    name: str
    default: Any
    parse: Callable[[str, Any], Any]
    doc: str


def _whole_number(least: int) -> Callable[[str, Any], int]:
    def parse(name: str, value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise StreamsConfigError(f"{name} is {value!r}; expected a whole number") from None
        if number < least:
            raise StreamsConfigError(f"{name} is {number}; expected a number of at least {least}")
        return number

    return parse


def _tolerance(name: str, value: Any) -> str:
    if value not in ("none", "all"):
        raise StreamsConfigError(f"{name} is {value!r}; expected none or all")
    return str(value)


def _flag(name: str, value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise StreamsConfigError(f"{name} is {value!r}; expected true or false")
    return str(value).lower() == "true"


def _topic(name: str, value: Any) -> str:
    try:
        check_topic_name(value, name)
    except TopologyError as error:
        raise StreamsConfigError(str(error)) from None
    return str(value)


def _topics(name: str, value: Any) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else list(value)
    return tuple(_topic(name, each.strip()) for each in given if each.strip())


CONNECTOR_TABLE: Final[tuple[ConnectorProperty, ...]] = (
    ConnectorProperty("name", None, _topic, "The name of the connector; application.id by default."),
    ConnectorProperty("topics", (), _topics, "The topics that a sink reads; a text with commas, or a list."),
    ConnectorProperty(
        "tasks.max",
        4,
        _whole_number(1),
        "Partitions of a new topic of source offsets: so many processes can share it.",
    ),
    ConnectorProperty("errors.tolerance", "none", _tolerance, "all: continue after records that a sink cannot write."),
    ConnectorProperty("errors.retry.timeout", 60_000, _whole_number(0), "How long to retry what may pass, in ms."),
    ConnectorProperty("errors.retry.delay.max.ms", 10_000, _whole_number(1), "The longest pause between two attempts."),
    ConnectorProperty("errors.deadletterqueue.topic.name", None, _topic, "Where records go that a sink cannot write."),
    ConnectorProperty(
        "errors.deadletterqueue.context.headers.enable", True, _flag, "Whether they have headers about the error."
    ),
    ConnectorProperty(
        "source.partitions.refresh.interval.ms", 5_000, _whole_number(1), "How often to look for new source partitions."
    ),
)
"""The properties of connectors; everything else goes to StreamsConfig."""


class ConnectorConfig:
    """The properties of one connector: `config["tasks.max"]`, and `config.streams` for those of its clients."""

    def __init__(self, given: Mapping[str, Any], *, is_source: bool) -> None:
        """Raises StreamsConfigError for the first invalid property."""
        rest = dict(given)
        self._values = {}
        for row in CONNECTOR_TABLE:
            value = rest.pop(row.name, None)
            self._values[row.name] = row.default if value is None else row.parse(row.name, value)
        guarantee = rest.pop("processing.guarantee", None)
        # A sink has no transactions of Kafka, with whose timeout StreamsConfig compares commit.interval.ms.
        self.streams = StreamsConfig(
            {**rest, "processing.guarantee": (guarantee or EXACTLY_ONCE_V2) if is_source else AT_LEAST_ONCE}
        )
        self.requires_exactly_once = guarantee == EXACTLY_ONCE_V2
        """Whether processing.guarantee was given, and is exactly_once_v2."""
        self._values["name"] = self._values["name"] or _topic("application.id", self.streams["application.id"])
        self._check(is_source)

    def __getitem__(self, name: str) -> Any:
        return self._values[name] if name in self._values else self.streams[name]

    @property
    def group(self) -> str:
        """The group of the connector's processes, with the name that Kafka Connect gives that of a sink."""
        return f"connect-{self['name']}"

    @property
    def offsets_topic(self) -> str:
        """The compacted topic of source offsets."""
        return f"{self['application.id']}-connector-offsets"

    def transactional_id(self, task: int) -> str:
        """The transactional id of the producer of a source task."""
        return f"{self['application.id']}-{self['name']}-{task}"

    def _check(self, is_source: bool) -> None:
        if not is_source and not self["topics"]:
            raise StreamsConfigError("topics is missing; a sink reads at least one topic")
        if self["errors.retry.timeout"] >= self["max.poll.interval.ms"]:
            raise StreamsConfigError(
                f"errors.retry.timeout ({self['errors.retry.timeout']}) has to be below max.poll.interval.ms "
                f"({self['max.poll.interval.ms']}): the group removes a member that does not poll"
            )
        if self["errors.deadletterqueue.topic.name"] in self["topics"]:
            raise StreamsConfigError(
                "errors.deadletterqueue.topic.name must not be one of the topics that the sink reads"
            )
