"""High watermarks across a restart: a replica's high watermark covers every record for which compaction removed
another.
"""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.replication.checkpoint_writes import CheckpointWrites
from odradek.broker.replication.log_cleaner import CleanersHere, LogCleaner
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import LeaderAndIsr
from odradek.protocol.batch import records
from odradek.storage.checkpoints import HIGH_WATERMARKS, decode_offsets
from tests.broker.replica_places import NAME, PROPERTIES, Clock, Places
from tests.storage.batches import NOW_MS, TOPIC_ID, batch
from tests.storage.disks import Choose, MemoryDisk, at_random, keep_all, keep_nothing
from tests.storage.r13 import batches_of

COMPACTED = {
    **PROPERTIES,
    "cleanup.policy": "compact",
    "segment.bytes": "400",
    "flush.messages": "1",
    "min.cleanable.dirty.ratio": "0.01",
}


class Compacted(Places):
    """A broker with one replica of a compacted topic."""

    def start(self, *, leads: bool) -> Replica:
        """Start the broker; the high watermark of a leader without followers is the end of its log."""
        self.open()
        self.replica = self.host.obtain(NAME, TOPIC_ID, COMPACTED)
        if leads:
            self.replica.lead(LeaderAndIsr(0, 0, (0,), (0,), 0))
        return self.replica

    def write(self, count: int) -> None:
        """Write batches of one record, all with the same key."""
        for _ in range(count):
            self.replica.produce(batch(1, size=100), 1, NOW_MS, 9)
            self.settle()

    def compact(self) -> None:
        config = BrokerConfig({"broker.id": "0", "log.dirs": ",".join(self.paths)})
        cleaners = CleanersHere(self.disk, self.hands)
        checkpoints = CheckpointWrites(self.hands)
        directories = list(self.directories)
        cleaner = LogCleaner(config, directories, self.replicas, cleaners, Clock(), Random(1), checkpoints, self.hands)
        cleaner.clean_due_logs()
        self.settle()

    def checkpoint(self) -> None:
        list(self.host.write_high_watermarks())
        self.settle()

    def offsets(self) -> list[int]:
        """Offsets of the records in the log."""
        return [record.offset for each in batches_of(self.log()) for record in records(each.data, 0)]

    def checkpointed(self) -> dict[tuple[str, int], int]:
        return decode_offsets(self.disk.read(f"{self.paths[0]}/{HIGH_WATERMARKS}"))


@cache
def crashes_of_a_pass() -> list[MemoryDisk]:
    """The disk before each of its calls in a pass that removes records below the checkpointed high watermark."""
    broker = Compacted(MemoryDisk(), ("/a",))
    broker.start(leads=True)
    broker.write(2)
    broker.checkpoint()
    broker.write(20)
    left: list[MemoryDisk] = []
    broker.disk.plan.before = lambda: left.append(broker.disk.fork())
    broker.compact()
    broker.disk.plan.before = None
    assert broker.offsets()[0] > 10, "the pass removed nothing"
    return [*left, broker.disk.fork()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kept",
    [None, keep_nothing, keep_all, at_random(Random(1)), at_random(Random(2), 1)],
    ids=["killed", "power, nothing kept", "power, all kept", "power, any kept", "power, in order"],
)
def test_a_crash_at_any_call_of_a_pass_hides_no_record_that_removed_others(kept: Choose | None) -> None:
    compacted = 0
    for number, crash in enumerate(crashes_of_a_pass()):
        disk = crash.fork()
        if kept is None:
            disk.kill()
        else:
            disk.lose_power(kept)
        broker = Compacted(disk, ("/a",))
        high_watermark = broker.start(leads=False).machine.high_watermark
        first = min(broker.offsets())
        assert high_watermark > first, f"call {number}: a leader shows up to {high_watermark}, the key is at {first}"
        compacted += first > 1
    assert compacted, "no crash came after the swap"


def test_a_log_compacted_beyond_the_checkpointed_high_watermark_exposes_all_compacted_records() -> None:
    """As after an earlier version, or Apache Kafka: neither writes the checkpoint before the swap."""
    broker = Compacted(MemoryDisk(), ("/a",))
    broker.start(leads=True)
    broker.write(22)
    broker.compact()
    cleaned_to = broker.log().cleaned_to
    for stale in ({NAME: 2}, {}):
        (directory,) = broker.directories
        directory.write_high_watermarks(stale)
        restarted = Compacted(broker.disk.fork(), ("/a",))
        assert restarted.start(leads=False).machine.high_watermark == cleaned_to > 2


def test_the_checkpoint_keeps_the_high_watermark_of_a_log_without_a_control_request_yet() -> None:
    broker = Compacted(MemoryDisk(), ("/a",))
    broker.start(leads=True)
    broker.write(5)
    broker.checkpoint()
    restarted = Compacted(broker.disk.fork(), ("/a",))
    restarted.open()
    restarted.checkpoint()
    assert restarted.checkpointed() == {NAME: 5}


def test_a_recreated_log_does_not_inherit_the_old_high_watermark() -> None:
    broker = Compacted(MemoryDisk(), ("/a",))
    broker.start(leads=True)
    broker.write(5)
    broker.checkpoint()
    broker.host.release(NAME, delete=True)
    restarted = Compacted(broker.disk.fork(), ("/a",))
    restarted.open()
    (directory,) = restarted.directories
    assert directory.high_watermarks == {NAME: 5}, "the checkpoint was not written since"
    restarted.host.obtain(NAME, TOPIC_ID, COMPACTED)
    assert directory.high_watermarks == restarted.checkpointed() == {}
