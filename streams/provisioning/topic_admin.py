"""Topic administration for `odradek streams init`: reads the cluster's topics, and creates and changes them.

Requests are those of Kafka's admin client, so brokers of Apache Kafka and of Odradek are the same here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from odradek.streams.config import StreamsConfig
from odradek.streams.errors import StreamsError
from odradek.streams.provisioning.topic_plan import ClusterTopics, ExistingTopic, PlannedTopic, TopicAction
from odradek.streams.running.client import Clients

_BROKER_DEFAULT: Final = -1
"""For partitions and replicas (KIP-464)."""


class ProvisioningError(StreamsError):
    """The cluster cannot be reached, or rejects a request; the message contains the reason."""


class TopicAdmin:
    """The topics of one cluster."""

    def __init__(self, config: StreamsConfig) -> None:
        """Connects with the application's properties at the first request. Raises StreamsConfigError."""
        self._timeout_s: float = config["request.timeout.ms"] / 1000
        self._admin: AdminClient = Clients(config, f"{config['application.id']}-init").admin()

    def read(self, described: Iterable[str]) -> ClusterTopics:
        """A snapshot of all topics; those of `described` with their configs. Raises ProvisioningError."""
        try:
            metadata = self._admin.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            raise ProvisioningError(f"cannot list the topics of the cluster: {_text(error)}") from error
        found = {name: each.partitions for name, each in metadata.topics.items() if each.error is None}
        configs = self._configs([name for name in described if name in found])
        topics = {
            name: ExistingTopic(
                len(partitions), min(len(each.replicas) for each in partitions.values()), configs.get(name, {})
            )
            for name, partitions in found.items()
        }
        defaults = self._broker_defaults(next(iter(metadata.brokers), None))
        return ClusterTopics(
            topics, _number(defaults, "num.partitions"), _number(defaults, "default.replication.factor")
        )

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found = {}
        for resource, entries in self._describe(resources):
            if isinstance(entries, Exception):
                raise ProvisioningError(f"cannot describe the configs of {resource.name}: {_text(entries)}")
            found[resource.name] = entries
        return found

    def _broker_defaults(self, broker: int | None) -> Mapping[str, str]:
        """The configs of one broker; none where the user may not describe them."""
        if broker is None:
            return {}
        for _, entries in self._describe([ConfigResource(ResourceType.BROKER, str(broker))]):
            return {} if isinstance(entries, Exception) else entries
        return {}

    def _describe(self, resources: Sequence[Any]) -> Iterator[tuple[Any, dict[str, str] | Exception]]:
        if not resources:
            return
        futures = self._admin.describe_configs(list(resources), request_timeout=self._timeout_s)
        for resource, future in futures.items():
            try:
                entries = future.result(self._timeout_s)
            except (KafkaException, TimeoutError) as error:
                yield resource, error
            else:
                yield resource, {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def rejected(self, rows: Iterable[PlannedTopic]) -> list[str]:
        """Why the cluster would reject new topics, one line each; it creates none (validateOnly)."""
        return [f"the cluster rejects {name}: {error}" for name, error in self._create(rows, validate_only=True)]

    def apply(self, rows: Iterable[PlannedTopic]) -> Iterator[str]:
        """Create and change topics; yields a line for each that is done. Raises ProvisioningError at the end where the
        cluster has rejected any.
        """
        rows = list(rows)
        failed = dict(self._create(rows, validate_only=False))
        yield from (
            f"created {row.name}" for row in rows if row.action is TopicAction.CREATE and row.name not in failed
        )
        for row in rows:
            if row.action is TopicAction.CHANGE:
                try:
                    self._change(row)
                except (KafkaException, TimeoutError) as error:
                    failed[row.name] = _text(error)
                else:
                    yield f"changed {row.name}"
        if failed:
            detail = "; ".join(f"{name}: {error}" for name, error in failed.items())
            raise ProvisioningError(f"the cluster has rejected {detail}")

    def _create(self, rows: Iterable[PlannedTopic], *, validate_only: bool) -> Iterator[tuple[str, str]]:
        """Yields the topics that were rejected, and why."""
        topics = [
            NewTopic(
                row.name,
                row.partitions or _BROKER_DEFAULT,
                row.replication_factor or _BROKER_DEFAULT,
                config=dict(row.config),
            )
            for row in rows
            if row.action is TopicAction.CREATE
        ]
        if not topics:
            return
        futures = self._admin.create_topics(
            topics, request_timeout=self._timeout_s, operation_timeout=self._timeout_s, validate_only=validate_only
        )
        for name, future in futures.items():
            try:
                future.result(2 * self._timeout_s)
            except (KafkaException, TimeoutError) as error:
                yield name, _text(error)

    def _change(self, row: PlannedTopic) -> None:
        """Add partitions and set configs. Raises KafkaException, TimeoutError."""
        if row.partitions is not None and row.partitions != self._partitions(row.name):
            grown = self._admin.create_partitions(
                [NewPartitions(row.name, row.partitions)], request_timeout=self._timeout_s
            )
            grown[row.name].result(self._timeout_s)
        if row.config:
            set_ = AlterConfigOpType.SET
            entries = [ConfigEntry(name, value, incremental_operation=set_) for name, value in row.config.items()]
            resource = ConfigResource(ResourceType.TOPIC, row.name, incremental_configs=entries)
            altered = self._admin.incremental_alter_configs([resource], request_timeout=self._timeout_s)
            altered[resource].result(self._timeout_s)

    def _partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, timeout=self._timeout_s).topics[topic].partitions)


def _number(config: Mapping[str, str], name: str) -> int | None:
    text = config.get(name, "")
    return int(text) if text.isdigit() else None


def _text(error: Exception) -> str:
    return str(error.args[0].str()) if isinstance(error, KafkaException) else "no response in time"
