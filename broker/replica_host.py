"""The replicas on this broker and the directories under them: made, configured and taken away.

Between the controller's orders (`roles.py`), which speak of topics and epochs, and the logs, which know nothing of
either, this is the place that knows which log lies in which directory and how a topic's configuration becomes a log's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Final

from odradek.broker.config import BrokerConfig
from odradek.broker.config_types import ConfigError
from odradek.broker.machines.partition import PartitionMachine
from odradek.broker.replica import IsrRequests, Replica, Replicas, Worker
from odradek.broker.topic_config import effective_values
from odradek.broker.waiting import Clock
from odradek.protocol.errors import KafkaError
from odradek.storage.config import LogConfig
from odradek.storage.directory import Directory, emptiest

log = logging.getLogger(__name__)

NO_TOPIC_ID: Final = bytes(16)
LOG_PROPERTIES = {field.name: field.name.replace("_", ".") for field in fields(LogConfig) if field.init}


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """What a log has to know of its topic's configuration. Raises ConfigError for a value that cannot be read."""
    values = effective_values(broker, overrides)
    chosen = {field: values[name] for field, name in LOG_PROPERTIES.items()}
    chosen["cleanup_policy"] = tuple(chosen["cleanup_policy"])  # type: ignore[arg-type]
    return LogConfig(**chosen)  # type: ignore[arg-type]


def min_isr(broker: BrokerConfig, overrides: Mapping[str, str]) -> int:
    """min.insync.replicas of a topic. Raises ConfigError for a value that cannot be read."""
    return int(str(effective_values(broker, overrides)["min.insync.replicas"]))


class ReplicaHost:
    """Makes replicas over logs."""

    def __init__(
        self,
        config: BrokerConfig,
        directories: list[Directory],
        replicas: Replicas,
        clock: Clock,
        worker: Worker,
        isr_requests: IsrRequests,
        on_failure: Callable[[Replica], None],
    ) -> None:
        """`on_failure` hears of every replica whose disk has failed."""
        self._config = config
        self._directories = directories
        self._replicas = replicas
        self._clock = clock
        self._worker = worker
        self._isr_requests = isr_requests
        self._on_failure = on_failure

    def obtain(self, name: tuple[str, int], topic_id: bytes, overrides: Mapping[str, str]) -> Replica:
        """The replica of (topic, partition), made where there is none; its log too, where there is none.

        Raises KafkaError: KAFKA_STORAGE_ERROR when the disk fails, INCONSISTENT_TOPIC_ID when the log is of another
        topic of this name.
        """
        replica = self._replicas.get(*name)
        if replica is None:
            replica = self._make(name, topic_id, overrides)
        elif replica.topic_id != topic_id and topic_id != NO_TOPIC_ID:
            self._directory_of(name).assign_topic_id(replica.log, topic_id)
            replica.topic_id = topic_id
        return replica

    def _make(self, name: tuple[str, int], topic_id: bytes, overrides: Mapping[str, str]) -> Replica:
        config = log_config(self._config, overrides)
        directory = next((each for each in self._directories if name in each.logs), None)
        if directory is not None:
            found = directory.logs[name]
            found.config = config
            if topic_id != NO_TOPIC_ID:
                directory.assign_topic_id(found, topic_id)
        else:
            directory = emptiest(self._directories)
            found = directory.create_log(name, topic_id, config, now_ms=self._clock.now_ms())
        machine = PartitionMachine(
            self._config.broker_id,
            high_watermark=directory.high_watermarks.get(name, found.start_offset),
            local_end=found.end_offset,
            min_isr=min_isr(self._config, overrides),
            max_lag_ms=int(self._config["replica.lag.time.max.ms"]),
        )
        replica = Replica(found, machine, self._clock, self._worker, self._isr_requests, self._on_failure)
        self._replicas.add(replica)
        return replica

    def _directory_of(self, name: tuple[str, int]) -> Directory:
        return next(each for each in self._directories if name in each.logs)

    def has_log(self, name: tuple[str, int]) -> bool:
        """Whether a log of this (topic, partition) lies in one of the directories."""
        return any(name in each.logs for each in self._directories)

    def configure(self, topic: str, overrides: Mapping[str, str]) -> None:
        """The topic has other properties now: its logs obey them from here on."""
        try:
            config, least = log_config(self._config, overrides), min_isr(self._config, overrides)
        except ConfigError as error:
            log.error("topic %s keeps its configuration: %s", topic, error.message)
            return
        for replica in self._replicas.of_topic(topic):
            replica.log.config = config
            replica.machine.min_isr = least
            replica.wake()

    def release(self, name: tuple[str, int], *, delete: bool) -> None:
        """The replica answers no more; with `delete` its log goes too. Raises KafkaError when the disk fails."""
        replica = self._replicas.get(*name)
        if replica is not None:
            self._replicas.remove(replica)  # first: who waits for it then learns that it is unknown
            replica.retire()
        if delete:
            for directory in self._directories:
                if name in directory.logs:
                    directory.delete_log(name, now_ms=self._clock.now_ms())

    # ---- what housekeeping asks for

    def delete_old_segments(self, is_cleaning: Callable[[str], bool]) -> None:
        """Apply retention to every log but those in folders that are being cleaned, and remove the files of what was
        deleted before.
        """
        now_ms = self._clock.now_ms()
        for replica in self._replicas:
            if not is_cleaning(replica.log.directory):
                quietly(replica.delete_old_segments, now_ms)
        self.purge()

    def purge(self) -> None:
        """Remove the files and logs whose delay (`file.delete.delay.ms`) is over."""
        now_ms = self._clock.now_ms()
        for directory in self._directories:
            quietly(directory.purge, now_ms)
            for each in list(directory.logs.values()):
                delete = each.due_deletions(now_ms)
                if delete is not None:
                    self._worker.run(delete, partial(_deleted, each.directory))

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

    def shrink_isrs(self) -> None:
        """Ask to leave followers that have fallen behind out of the ISR."""
        for replica in self._replicas:
            replica.shrink_isr()

    def write_recovery_points(self) -> None:
        """Checkpoint the recovery points."""
        for directory in self._directories:
            quietly(directory.write_recovery_points)

    def write_start_offsets(self) -> None:
        """Checkpoint the start offsets of the logs."""
        for directory in self._directories:
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

    def close(self, broker_epoch: int = -1) -> None:
        """Flush and close every log, write the checkpoints and the clean marks. `retire` comes before."""
        self.write_high_watermarks()
        for directory in self._directories:
            quietly(partial(directory.close, now_ms=self._clock.now_ms(), broker_epoch=broker_epoch))


def _deleted(folder: str, error: BaseException | None) -> None:
    if error is not None:
        log.error("old files in %s stay where they are: %s", folder, error)


def quietly(work: Callable[..., object], *arguments: object) -> None:
    """Do what a failed disk may refuse: it has taken its log or directory offline, and the others go on."""
    try:
        work(*arguments)
    except KafkaError as error:
        log.error("%s", error.message)
