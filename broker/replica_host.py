"""The replicas on this broker and the directories under them: made, led and taken away as the controller says.

Between the controller, which speaks of topics and epochs, and the logs, which know nothing of either, this is the
place that knows which log lies in which directory and how a topic's configuration becomes a log's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial

from odradek.broker.cluster_view import PartitionView, TopicView
from odradek.broker.config import BrokerConfig
from odradek.broker.machines.partition import PartitionMachine
from odradek.broker.replica import Replica, Replicas, Worker
from odradek.broker.topic_config import effective_values
from odradek.broker.waiting import Clock
from odradek.protocol.errors import KafkaError
from odradek.storage.config import LogConfig
from odradek.storage.directory import Directory, emptiest

log = logging.getLogger(__name__)

LOG_PROPERTIES = {field.name: field.name.replace("_", ".") for field in fields(LogConfig) if field.init}


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """What a log has to know of its topic's configuration. Raises ConfigError for a value that cannot be read."""
    values = effective_values(broker, overrides)
    chosen = {field: values[name] for field, name in LOG_PROPERTIES.items()}
    chosen["cleanup_policy"] = tuple(chosen["cleanup_policy"])  # type: ignore[arg-type]
    return LogConfig(**chosen)  # type: ignore[arg-type]


class ReplicaHost:
    """Makes replicas over logs."""

    def __init__(
        self,
        config: BrokerConfig,
        directories: list[Directory],
        replicas: Replicas,
        clock: Clock,
        worker: Worker,
        on_failure: Callable[[Replica], None],
    ) -> None:
        """`on_failure` hears of every replica whose disk has failed."""
        self._config = config
        self._directories = directories
        self._replicas = replicas
        self._clock = clock
        self._worker = worker
        self._on_failure = on_failure

    def lead(self, topic: TopicView, partition: PartitionView, overrides: Mapping[str, str]) -> Replica:
        """Lead a partition in the epoch that `partition` says; its log is made when there is none.

        Raises KafkaError with KAFKA_STORAGE_ERROR when the disk fails.
        """
        replica = self._replicas.get(topic.name, partition.index)
        if replica is None:
            replica = self._make(topic, partition, overrides)
        replica.lead(partition.leader_epoch, replicas=partition.replicas, isr=frozenset(partition.isr))
        return replica

    def _make(self, topic: TopicView, partition: PartitionView, overrides: Mapping[str, str]) -> Replica:
        name = (topic.name, partition.index)
        config = log_config(self._config, overrides)
        directory = next((each for each in self._directories if name in each.logs), None)
        if directory is not None:
            found = directory.logs[name]
            found.config = config
            directory.assign_topic_id(found, topic.topic_id)
        else:
            directory = emptiest(self._directories)
            found = directory.create_log(name, topic.topic_id, config, now_ms=self._clock.now_ms())
        machine = PartitionMachine(
            self._config.broker_id,
            high_watermark=directory.high_watermarks.get(name, found.start_offset),
            local_end=found.end_offset,
            min_isr=int(str(effective_values(self._config, overrides)["min.insync.replicas"])),
        )
        replica = Replica(found, machine, self._clock, self._worker, self._on_failure)
        self._replicas.add(replica)
        return replica

    def remove_topic(self, name: str) -> None:
        """The topic is deleted: its replicas answer no more and its logs go."""
        for replica in self._replicas.of_topic(name):
            self._replicas.remove(replica)  # first: who waits for it then learns that it is unknown
            replica.retire()
        for directory in self._directories:
            for log_name in [each for each in directory.logs if each[0] == name]:
                try:
                    directory.delete_log(log_name, now_ms=self._clock.now_ms())
                except KafkaError as error:
                    log.error("the log of %s-%d stays on disk: %s", *log_name, error.message)

    # ---- what housekeeping asks for

    def delete_old_segments(self) -> None:
        """Apply retention to every log, and remove the files of what was deleted before."""
        now_ms = self._clock.now_ms()
        for replica in self._replicas:
            quietly(replica.delete_old_segments, now_ms)
        self.purge()

    def purge(self) -> None:
        """Remove the files and logs whose delay (`file.delete.delay.ms`) is over."""
        now_ms = self._clock.now_ms()
        for directory in self._directories:
            quietly(directory.purge, now_ms)
            for each in list(directory.logs.values()):
                quietly(each.purge, now_ms)

    def flush_due_logs(self) -> None:
        """Flush what `flush.ms` says is old enough."""
        now_ms = self._clock.now_ms()
        for replica in self._replicas:
            replica.flush_if_due(now_ms)

    def expire_producers(self) -> None:
        """Forget producers that have been silent for `producer.id.expiration.ms`."""
        now_ms, age_ms = self._clock.now_ms(), int(self._config["producer.id.expiration.ms"])
        for replica in self._replicas:
            replica.log.producers.expire(now_ms, age_ms)

    def write_recovery_points(self) -> None:
        """Checkpoint recovery points and log start offsets."""
        for directory in self._directories:
            quietly(directory.write_recovery_points)
            quietly(directory.write_start_offsets)

    def write_high_watermarks(self) -> None:
        """Checkpoint the high watermarks."""
        known = {(each.topic, each.partition): each.machine.high_watermark for each in self._replicas}
        for directory in self._directories:
            marks = {name: known[name] for name in directory.logs if name in known}
            if marks != directory.high_watermarks:
                quietly(directory.write_high_watermarks, marks)

    def retire(self) -> None:
        """Take no more writes: the broker stops."""
        for replica in self._replicas:
            replica.retire()

    def close(self) -> None:
        """Flush and close every log, write the checkpoints and the clean marks. `retire` comes before."""
        self.write_high_watermarks()
        for directory in self._directories:
            quietly(partial(directory.close, now_ms=self._clock.now_ms()))


def quietly(work: Callable[..., object], *arguments: object) -> None:
    """Do what a failed disk may refuse: it has taken its log or directory offline, and the others go on."""
    try:
        work(*arguments)
    except KafkaError as error:
        log.error("%s", error.message)
