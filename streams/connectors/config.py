"""Configuration of a connector: the properties of Kafka Connect that have an effect here, beside those of a stream
application.

Names are Kafka's. application.id, bootstrap.servers, security.protocol, sasl.*, ssl.*, default.key.serde,
default.value.serde, commit.interval.ms, poll.ms, max.poll.records, the timeouts of a group, and the prefixes of clients
(consumer., producer., admin.client.) are those of streams/config.py; the rows here come from Kafka Connect's
ConnectorConfig, SinkConnectorConfig and SourceConnectorConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek.streams.config import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE_V2,
    PROPERTIES,
    Property,
    StreamsConfig,
    StreamsConfigError,
)

# The types of values are those of properties of a stream application.
_POSITIVE: Final = PROPERTIES["num.stream.threads"].parse
_NOT_NEGATIVE: Final = PROPERTIES["poll.ms"].parse
_FLAG: Final = PROPERTIES["internal.leave.group.on.close"].parse
_TOPIC: Final = PROPERTIES["errors.dead.letter.queue.topic.name"].parse


def _tolerance(name: str, value: Any) -> str:
    if value not in ("none", "all"):
        raise StreamsConfigError(f"{name} is {value!r}; expected none or all")
    return str(value)


def _topics(name: str, value: Any) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else list(value)
    return tuple(_TOPIC(name, each.strip()) for each in given if each.strip())


CONNECTOR_TABLE: Final[tuple[Property, ...]] = (
    Property("name", None, _TOPIC, "The name of the connector; application.id by default."),
    Property("topics", (), _topics, "The topics that a sink reads; a text with commas, or a list."),
    Property(
        "tasks.max",
        4,
        _POSITIVE,
        "Partitions of a new topic of source offsets: so many processes can share it.",
    ),
    Property("errors.tolerance", "none", _tolerance, "all: continue after records that a sink cannot write."),
    Property("errors.retry.timeout", 60_000, _NOT_NEGATIVE, "How long to retry what may pass, in ms."),
    Property("errors.retry.delay.max.ms", 10_000, _POSITIVE, "The longest pause between two attempts."),
    Property("errors.deadletterqueue.topic.name", None, _TOPIC, "Where records go that a sink cannot write."),
    Property(
        "errors.deadletterqueue.context.headers.enable", True, _FLAG, "Whether they have headers about the error."
    ),
    Property("source.partitions.refresh.interval.ms", 5_000, _POSITIVE, "How often to look for new source partitions."),
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
        self._values["name"] = self._values["name"] or _TOPIC("application.id", self.streams["application.id"])
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
