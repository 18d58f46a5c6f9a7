"""Custom state in memory, with snapshots in Kafka: an instance needs no disk, and no file, to continue.

One command; the example generates readings of sensors. Kill it (`kill -9`) and start it again, here or on another
machine:

    python -m odradek.streams.examples.snapshot_topic
    snapshot-topic: RUNNING
    0_0: no snapshot, begins with nothing
    sensor-3      41 readings  from  18.21 to  22.07  mean  20.02
    python -m odradek.streams.examples.snapshot_topic
    0_0: recovered 2 sensors after snapshot-topic-readings-0@78

The state is that of the example `snapshot`: a dict of Python objects, changed in place. Before each commit, each task
writes its whole state as one record to the changelog of the store, snapshot-topic-sensors-changelog, which is
compacted. The runtime restores a task from that topic, wherever it runs next, and standbys follow it (--property
num.standby.replicas=1).

The application runs exactly_once_v2: snapshots, summaries, and the offsets of the readings are committed in one
transaction. So the restored snapshot belongs to the committed offsets, each reading counts once, and readers of
committed records get each summary once. A thread that lost its tasks is fenced: it cannot write its old snapshot behind
the new owner's.

A snapshot is one record, so it has to be smaller than the topic's max.message.bytes (1 MB by default), and each commit
with new readings writes it completely: commit.interval.ms determines the cost. Larger state belongs in a store of the
runtime, which logs each changed key.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.streams import Topology
from odradek.streams.examples.running import configuration, make_topics, parser, run
from odradek.streams.examples.snapshot import STORE, Snapshot, made_up_readings, summarizing
from odradek.streams.stores.interface import ChangelogRecord, StateStore, StoreContext

READINGS: Final = "snapshot-topic-readings"
SUMMARIES: Final = "snapshot-topic-summaries"
APPLICATION: Final = "snapshot-topic"
CONFIG: Final[Mapping[str, Any]] = {"processing.guarantee": "exactly_once_v2"}


class TopicSnapshotStore(StateStore):
    """A store that is one object in memory, and a record in its changelog for each commit that changes it."""

    persistent = False

    def __init__(self) -> None:
        self.name = STORE
        self.state = Snapshot()
        self.changed = False
        self._context: StoreContext | None = None

    @property
    def is_open(self) -> bool:
        return self._context is not None

    def init(self, context: StoreContext) -> None:
        self._context = context

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        """Restore the latest snapshot; all snapshots have the key of this task."""
        _, value, *_ = records[-1]
        self.state = Snapshot() if value is None else Snapshot.decode(value)

    def flush_cache(self) -> None:
        if self.changed and self._context is not None:
            context = self._context
            context.log(self.name, str(context.task_id).encode(), self.state.encode(), context.timestamp)
            self.changed = False

    def flush(self) -> None:
        return

    def close(self) -> None:
        self._context = None


@dataclass(frozen=True)
class TopicSnapshotStoreBuilder:
    """Builds the store of each task, and sets the configs of its changelog."""

    name: str = STORE
    kind: str = "key-value"
    logging: bool = True
    persistent: bool = False
    log_config: Mapping[str, str] = field(
        # The restoration of a task reads every snapshot that compaction has left.
        default_factory=lambda: {"min.cleanable.dirty.ratio": "0.01", "segment.ms": "60000"}
    )

    def build(self) -> TopicSnapshotStore:
        """A store that is not restored yet."""
        return TopicSnapshotStore()


def topology() -> Topology:
    """Readings to summaries, with snapshots in the changelog of the store."""
    return summarizing(TopicSnapshotStoreBuilder(), READINGS, SUMMARIES)


def main(arguments: list[str] | None = None) -> int:
    """Run the example."""
    chosen = parser(__doc__, APPLICATION, rate=10).parse_args(arguments)
    make_topics(chosen.bootstrap_servers, chosen.partitions, [READINGS, SUMMARIES])
    return run(topology(), configuration(chosen, CONFIG), chosen, made_up=made_up_readings(READINGS))


if __name__ == "__main__":
    sys.exit(main())
