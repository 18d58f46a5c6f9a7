"""Scheduled tasks on the logs of a broker: the event loop serves others in between."""

from __future__ import annotations

import pytest

from odradek.broker.replication import replicas
from odradek.broker.replication.partition import Replica
from tests.broker.replica_places import Places
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
