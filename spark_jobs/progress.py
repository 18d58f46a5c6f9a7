"""Follows a running query: a line for each batch on stderr, and its offsets committed to a consumer group.

Spark keeps its offsets in the checkpoint, which no Kafka tool reads. With commits to a group, kafka-consumer-groups and
other monitors of groups show the lag. The commit comes after the batch, so the group is never ahead of the finished
work; no job reads it back.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.spark_jobs.command import Offsets, Options, offsets_json, parse_offsets
from odradek.spark_jobs.errors import DONE, JobError
from odradek.spark_jobs.kafka_admin import KafkaAdmin

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S: Final = 0.2


def await_query(query: StreamingQuery, options: Options) -> int:
    """Waits for the end of the query, reports its batches and commits their offsets; returns DONE.

    Ctrl-C stops the query and is its end. Raises pyspark's StreamingQueryException where the query fails.
    """
    from pyspark.sql import SparkSession

    with KafkaAdmin(SparkSession.active(), options.client, options.isolation) as admin:
        follower = Follower(admin, options)
        try:
            while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]  # takes fractions of seconds, too
                follower.look(query)
            follower.look(query)
        finally:
            if query.isActive:
                query.stop()
    return DONE


class Follower:
    """Reports each batch of a query once."""

    def __init__(self, admin: KafkaAdmin, options: Options) -> None:
        self._admin = admin
        self._options = options
        self._reported = -1

    def look(self, query: StreamingQuery) -> None:
        """Reports the batches that have ended since the last call, and commits the offsets of the newest."""
        latest = query.lastProgress
        if latest is None or latest.batchId <= self._reported:
            return
        news = [each for each in query.recentProgress if each.batchId > self._reported]
        done = _offsets([source.endOffset for source in news[-1].sources])
        if not done:  # an idle query reports without having read anything
            return
        self._reported = news[-1].batchId
        ends = self._ends(done, [source.latestOffset for source in news[-1].sources])
        for each in news:
            at = _offsets([source.endOffset for source in each.sources])
            print(line(self._options.job, each, at, lag(at, ends)), file=sys.stderr, flush=True)
        try:
            self._admin.commit(self._options.group, done)
        except JobError as error:  # the job is right without the commit: the group has members, or forbids it
            print(f"{self._options.job}: {error}", file=sys.stderr, flush=True)

    def _ends(self, done: Offsets, reported: list[str | None]) -> Offsets:
        """The ends of partitions: from the report of the source, else (AvailableNow) the present ones."""
        if all(text not in (None, "", "null") for text in reported):
            return _offsets(reported)
        return self._admin.ends({topic: max(places) + 1 for topic, places in done.items()})


def line(job: str, progress: Any, at: Offsets, behind: int) -> str:
    """The line for the user about one batch."""
    rate = progress.processedRowsPerSecond
    speed = f"{rate:,.0f}" if rate == rate else "-"  # NaN where nothing was read
    return (
        f"{job}: batch {progress.batchId}, {progress.numInputRows:,} rows, {speed} rows/s, lag {behind:,}, "
        f"offsets {offsets_json(at)}"
    )


def lag(at: Offsets, ends: Offsets) -> int:
    """The number of offsets that are still to be read."""
    return sum(
        max(0, ends.get(topic, {}).get(n, offset) - offset)
        for topic, places in at.items()
        for n, offset in places.items()
    )


def _offsets(texts: list[str | None]) -> Offsets:
    """The offsets of a query's Kafka sources; other sources have other texts."""
    found: Offsets = {}
    for text in texts:
        if text in (None, "", "null"):
            continue
        assert text is not None
        try:
            for topic, places in parse_offsets(text).items():
                found.setdefault(topic, {}).update(places)
        except (ValueError, json.JSONDecodeError):
            continue
    return found
