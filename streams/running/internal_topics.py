"""Internal topics: creates repartition topics and changelogs (Kafka: InternalTopicManager).

The leader of the group creates them before it assigns tasks. An existing topic is used unchanged if it has the expected
partition count: with another count, keys would move away from their state.

    repartition   cleanup.policy=delete, retention.ms=-1 (the application deletes what it has read), segments of 50 MB
    changelog     as its store requires: compact; compact,delete with a retention for windows and sessions

Properties of the application that begin with `topic.` apply to all of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.streams.errors import StreamsError
from odradek.streams.running.topic_groups import Plan, WantedTopic
from odradek.streams.stores.builders import changelog_config
from odradek.streams.topology import Topology

log = logging.getLogger(__name__)

REPARTITION_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "segment.bytes": "52428800",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
}
_LASTING: Final = frozenset({"retention.ms", "min.compaction.lag.ms"})
TOPIC_PREFIX: Final = "topic."
_BACKOFF_S: Final = 0.1
_TRY_AGAIN: Final = frozenset(
    {
        KafkaError.TOPIC_ALREADY_EXISTS,  # it is being deleted, or another member has just created it
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)


def wanted_topics(topology: Topology, plan: Plan, config: Mapping[str, Any]) -> dict[str, WantedTopic]:
    """Every internal topic of a plan, with its properties."""
    own = {
        name.removeprefix(TOPIC_PREFIX): str(value) for name, value in config.items() if name.startswith(TOPIC_PREFIX)
    }
    # The application's properties override the defaults, and a topic's own override both; but the retention of
    # changelogs of windows and versions follows from their stores, unless the store's own settings contain it.
    found = {
        name: WantedTopic(plan.partitions[name], {**REPARTITION_CONFIG, **own, **topic.config})
        for name, topic in plan.repartition_topics.items()
    }
    for name, (store, partitions) in plan.changelogs.items():
        builder: Any = topology.stores[store]
        demanded = changelog_config(builder, config)
        lasting = {name: value for name, value in demanded.items() if name in _LASTING}
        found[name] = WantedTopic(partitions, {**demanded, **own, **lasting, **builder.log_config})
    return found


class InternalTopics:
    """Creates topics and validates existing ones."""

    def __init__(self, admin: AdminClient, replication_factor: int, timeout_s: float) -> None:
        """A replication factor of -1 is the broker's default."""
        self._admin = admin
        self._replication_factor = replication_factor
        self._timeout_s = timeout_s

    def partitions(self) -> dict[str, int]:
        """The partition count of each topic of the cluster. Raises StreamsError."""
        try:
            metadata = self._admin.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            raise StreamsError(f"cannot list the topics of the cluster: {error.args[0]}") from error
        return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}

    def make_ready(self, wanted: Mapping[str, WantedTopic]) -> set[str]:
        """Create missing topics; returns their names. Raises StreamsError for a topic with another partition count."""
        deadline = time.monotonic() + self._timeout_s
        made: set[str] = set()
        while True:
            existing = self.partitions()
            missing = {}
            for name, topic in wanted.items():
                if name not in existing:
                    missing[name] = topic
                elif existing[name] != topic.partitions:
                    raise StreamsError(
                        f"Existing internal topic {name} has invalid partitions: expected: {topic.partitions}; actual: "
                        f"{existing[name]}. Reset the application (kafka-streams-application-reset) before it is "
                        "started with other topics"
                    )
            if not missing:
                return made
            failed = self._create(missing)
            made |= missing.keys() - failed.keys()
            if failed and time.monotonic() > deadline:
                detail = "; ".join(f"{name}: {error}" for name, error in failed.items())
                raise StreamsError(f"internal topics could not be created within {self._timeout_s:g} s: {detail}")
            if not failed and time.monotonic() > deadline:
                raise StreamsError(f"the cluster does not show the new topics {', '.join(sorted(missing))}")
            time.sleep(_BACKOFF_S)

    def _create(self, topics: Mapping[str, WantedTopic]) -> dict[str, KafkaError]:
        """Returns retriable errors by topic. Raises StreamsError for other errors."""
        log.info(
            "creating internal topics topics=%s", ",".join(f"{name}:{each.partitions}" for name, each in topics.items())
        )
        requests = [
            NewTopic(name, each.partitions, self._replication_factor, config=dict(each.config))
            for name, each in topics.items()
        ]
        failed: dict[str, KafkaError] = {}
        for name, future in self._admin.create_topics(requests, request_timeout=self._timeout_s).items():
            try:
                future.result(self._timeout_s)
            except TimeoutError:
                failed[name] = KafkaError(KafkaError._TIMED_OUT)
            except KafkaException as error:
                problem = error.args[0]
                if problem.code() not in _TRY_AGAIN:
                    raise StreamsError(f"Could not create topic {name}: {problem.str()}") from error
                failed[name] = problem
        return failed
