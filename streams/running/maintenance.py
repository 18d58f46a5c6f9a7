"""Periodic work of a stream thread: purging repartition topics, removing old state, checking source topics.

Repartition topics keep all records until the application deletes those that it has processed (KIP-204). The state of
tasks that moved elsewhere stays for state.cleanup.delay.ms. The thread that leads the group checks whether source
topics were added or expanded, which requires a new assignment. No step blocks for longer than a metadata request.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError
from odradek.streams.recorded_metrics import ThreadMetrics
from odradek.streams.running.application import Application

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""How often the thread checks for due work."""


class Maintenance:
    """The periodic work of one thread."""

    def __init__(self, application: Application, admin: AdminClient) -> None:
        config = application.config
        self._application = application
        self._admin = admin
        self._summary_s = config["log.summary.interval.ms"] / 1000
        self._purge_s = config["repartition.purge.interval.ms"] / 1000
        self._cleanup_ms = config["state.cleanup.delay.ms"]
        self._metadata_s = config["metadata.max.age.ms"] / 1000
        topology, application_id = application.topology, application.application_id
        self._repartition = {topology.cluster_name(name, application_id) for name in topology.internal_topics}
        now = time.monotonic()
        self._next_look = now + LOOK_S
        self._reported_at, self._reported = now, (0, 0, 0)
        self._next_purge = now + self._purge_s
        self._next_cleanup = now + self._cleanup_ms / 1000
        self._next_metadata = now + self._metadata_s
        self._purged: dict[TopicPartition, int] = {}
        self._purging: list[Future[Any]] = []

    def due(self, now_s: float) -> bool:
        """Whether to check for due work; cheap."""
        if now_s < self._next_look:
            return False
        self._next_look = now_s + LOOK_S
        return True

    def remove_unused_state(self, now_s: float) -> None:
        """Remove directories of tasks that moved elsewhere long ago. Errors go to the log."""
        if self._cleanup_ms >= 0 and now_s >= self._next_cleanup:
            self._next_cleanup = now_s + max(self._cleanup_ms / 1000, LOOK_S)
            try:
                self._application.directory.remove_unused(self._cleanup_ms)
            except OSError as error:
                log.warning("cannot remove obsolete task state error=%s", error)

    def summarize(self, now_s: float, name: str, metrics: ThreadMetrics) -> None:
        """Log a summary of the thread's work since the last summary (log.summary.interval.ms)."""
        if self._summary_s < 0 or now_s - self._reported_at < self._summary_s:
            return
        done = metrics.process.total, metrics.punctuate.total, metrics.commit.total
        records, punctuators, tasks = (now - before for now, before in zip(done, self._reported, strict=True))
        log.info(
            "thread summary thread=%s processed_records=%d punctuators=%d committed_tasks=%d interval_s=%.0f",
            name,
            records,
            punctuators,
            tasks,
            now_s - self._reported_at,
        )
        self._reported_at, self._reported = now_s, done

    def purge(self, now_s: float, committed: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Delete processed records of repartition topics, up to the committed offsets; the thread does not wait for
        it.
        """
        if not self._repartition or now_s < self._next_purge:
            return
        if not all(future.done() for future in self._purging):
            return
        self._next_purge = now_s + self._purge_s
        for future in self._purging:
            if future.exception() is not None:
                log.info("retrying to purge repartition topics error=%s", future.exception())
        wanted = {
            place: offset
            for place, offset in committed().items()
            if place[0] in self._repartition and offset > self._purged.get(place, 0)
        }
        self._purged.update(wanted)
        self._purging = []
        if wanted:
            cuts = [Position(*place, offset) for place, offset in wanted.items()]
            self._purging = list(self._admin.delete_records(cuts).values())

    def topics_have_changed(self, now_s: float) -> bool:
        """Whether the source topics differ from those at the last assignment; for the thread that leads the group."""
        if now_s < self._next_metadata:
            return False
        self._next_metadata = now_s + self._metadata_s
        try:
            return self._application.leader.topics_have_changed()
        except StreamsError as error:
            log.info("cannot list topics error=%s", error)
            return False
