"""What a stream thread does now and then beside its records.

Repartition topics keep everything until the application deletes what it has read (KIP-204); state of tasks that went
elsewhere stays for state.cleanup.delay.ms; the thread that leads the group looks whether source topics have come or
grown, which takes another assignment. None of it is waited for longer than a request for metadata takes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from odradek.streams.errors import StreamsError
from odradek.streams.recorded_metrics import ThreadMetrics
from odradek.streams.running.application import Application

log = logging.getLogger(__name__)

TopicPartition = tuple[str, int]
LOOK_S: Final = 1.0
"""How often to see what is due."""


class Maintenance:
    """The occasional work of one thread."""

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
        """Whether to look what there is to do; cheap."""
        if now_s < self._next_look:
            return False
        self._next_look = now_s + LOOK_S
        return True

    def remove_unused_state(self, now_s: float) -> None:
        """Remove directories of tasks that are long gone. Errors go to the log."""
        if self._cleanup_ms >= 0 and now_s >= self._next_cleanup:
            self._next_cleanup = now_s + max(self._cleanup_ms / 1000, LOOK_S)
            try:
                self._application.directory.remove_unused(self._cleanup_ms)
            except OSError as error:
                log.warning("state that is not used any more could not be removed: %s", error)

    def summarize(self, now_s: float, name: str, metrics: ThreadMetrics) -> None:
        """Say on the log what a thread has done since the last time (log.summary.interval.ms)."""
        if self._summary_s < 0 or now_s - self._reported_at < self._summary_s:
            return
        done = metrics.process.total, metrics.punctuate.total, metrics.commit.total
        records, punctuators, tasks = (now - before for now, before in zip(done, self._reported, strict=True))
        log.info(
            "%s: processed %d records, ran %d punctuators and committed %d tasks in %.0f s",
            name,
            records,
            punctuators,
            tasks,
            now_s - self._reported_at,
        )
        self._reported_at, self._reported = now_s, done

    def purge(self, now_s: float, committed: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Delete what was read of repartition topics, up to the offsets that are committed; nobody waits for it."""
        if not self._repartition or now_s < self._next_purge:
            return
        if not all(future.done() for future in self._purging):
            return
        self._next_purge = now_s + self._purge_s
        for future in self._purging:
            if future.exception() is not None:
                log.info("repartition topics were not cut, which is tried again: %s", future.exception())
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
        """Whether the source topics are others than at the last assignment; for the thread that leads."""
        if now_s < self._next_metadata:
            return False
        self._next_metadata = now_s + self._metadata_s
        try:
            return self._application.leader.topics_have_changed()
        except StreamsError as error:
            log.info("looking for new topics: %s", error)
            return False
