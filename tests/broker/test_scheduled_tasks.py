"""Scheduled tasks on the logs of a broker: the event loop serves others in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.broker.replication import replicas
from odradek.broker.replication.partition import Replica
from odradek.storage.disk import Folder
from tests.broker.replica_places import Places
from tests.storage.batches import NOW_MS, batch
from tests.storage.disks import MemoryDisk

COUNT = 20
IN_A_PART = 5


def test_retention_of_many_logs_is_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of 1,000 logs which rolled and renamed their segments held the loop for 4.9 seconds."""
    places = Places(MemoryDisk())
    places.open()
    time_ns, parts = [0], [0]
    for index in range(COUNT):
        places.lead(("topic", index), is_new=True, topic_id=bytes([1] * 16))

    def takes_time(replica: Replica, now_ms: int) -> None:
        time_ns[0] += replicas.PART_NS // IN_A_PART + 1
        parts[-1] += 1

    monkeypatch.setattr(Replica, "start_retention", takes_time)
    monkeypatch.setattr(places.host._clock, "monotonic_ns", lambda: time_ns[0])
    task = places.host.delete_old_segments(lambda directory: False)
    while next(task, COUNT) is None:
        parts.append(0)
    assert parts == [IN_A_PART] * (COUNT // IN_A_PART)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are synced."""
    found: list[str] = []
    sync = Folder.sync

    def noted(folder: Folder) -> None:
        found.append(folder.path)
        sync(folder)

    monkeypatch.setattr(Folder, "sync", noted)
    return found


def filled(places: Places) -> Replica:
    """A replica with several segments, of which all but the last are to be removed."""
    replica = places.lead(is_new=True)
    for _ in range(20):
        places.append(2500)
    places.log().advance_start_offset(places.log().end_offset, high_watermark=places.log().end_offset)
    return replica


def test_a_roll_does_not_wait_for_the_disk(syncs: list[str]) -> None:
    places = Places(MemoryDisk())
    places.open()
    places.lead(is_new=True)
    syncs.clear()
    for _ in range(20):
        places.append(2500)
    assert len(places.log().segments) > 3
    assert syncs == []
    places.carry_out(places.host.flush_due_logs())
    assert syncs == [], "the flush is in a thread"
    places.settle()
    assert syncs


def test_retention_and_purge_wait_for_the_disk_in_threads(syncs: list[str]) -> None:
    """The log takes writes meanwhile, and a truncation lets the change end first."""
    places = Places(MemoryDisk())
    places.open()
    filled(places)
    log = places.log()
    places.settle()
    syncs.clear()
    places.carry_out(places.host.delete_old_segments(lambda directory: False))
    assert len(log.segments) == 1
    assert syncs == []
    places.append(700)
    log.truncate_to(log.end_offset - 1, now_ms=NOW_MS)
    assert syncs, "the truncation came behind the renames"
    assert [each.name for each in places.disk.list(log.directory) if each.name.endswith(".log.deleted")]
    places.settle()


def test_few_logs_wait_for_the_disk_at_a_time() -> None:
    """1,000 logs queued one call each, before the flush for which a client waits."""
    places = Places(MemoryDisk())
    places.open()
    for index in range(COUNT):
        replica = places.lead(("topic", index), is_new=True, topic_id=bytes([1] * 16))
        replica.produce(batch(2, size=350), 1, NOW_MS, 9)
        replica.log.roll(NOW_MS)
    task = places.host.flush_due_logs()
    for wait in task:
        if wait is not None:
            assert len(places.hands._waiting) == replicas.MOST_SCHEDULED
            places.hands.turn()
    places.settle()
    assert all(each.log.recovery_point == each.log.end_offset for each in places.replicas)


def expired(places: Places) -> Replica:
    """A replica whose records are all to be removed; a thread creates the segment that takes their place."""
    replica = places.lead(is_new=True)
    for _ in range(5):
        places.append(2500)
    replica.log.config = replace(replica.log.config, cleanup_policy=("delete",), retention_bytes=0)
    places.carry_out(places.host.delete_old_segments(lambda directory: False))
    return replica


def test_a_log_that_retention_empties_gets_its_segment_from_a_thread() -> None:
    places = Places(MemoryDisk())
    places.open()
    log = expired(places).log
    before, calls = len(log.segments), places.disk.plan.calls
    assert before > 1
    assert places.hands.turn()
    assert (len(log.segments), log.active.base_offset, log.start_offset) == (1, log.end_offset, log.end_offset)
    assert places.disk.plan.calls > calls
    places.settle()
    names = [each.name for each in places.disk.list(log.directory)]
    assert [name for name in names if name.endswith(".log")] == [f"{log.end_offset:020d}.log"]


def test_retention_ends_where_the_replica_left_the_broker_during_the_roll() -> None:
    places = Places(MemoryDisk())
    places.open()
    replica = expired(places)
    before = len(replica.log.segments)
    replica.retire()
    places.settle()
    assert len(replica.log.segments) == before + 1
    assert replica.log.failure is None
