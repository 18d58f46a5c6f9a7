"""An append in C has the results, the errors and the effects of one in Python."""

from __future__ import annotations

import errno
import random
import sys
from itertools import pairwise

import pytest

from odradek.protocol import log_append
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.storage.append_differences import Usage, appending_with, compare
from tests.storage.batches import NOW_MS, batch, open_log
from tests.storage.disks import MemoryDisk

pytestmark = pytest.mark.skipif(
    log_append.append_usual is log_append.not_in_c, reason="no C compiler when Odradek was installed"
)


def test_logs_with_and_without_c_have_the_same_state_after_random_appends() -> None:
    rng, usage = random.Random(24), Usage()
    for _ in range(60):
        compare(rng, usage)
    assert 0.15 < usage.in_c / usage.appends < 0.75
    assert usage.errors > usage.appends / 20


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_in_c_leaves_the_log_as_it_was(code: int) -> None:
    disk, usage = MemoryDisk(), Usage()
    with appending_with(usage.count):
        log = open_log("/data/topic-0", disk=disk)
        for sequence in range(2):
            log.append(batch(producer=(7, 0, sequence)), leader_epoch=0, now_ms=NOW_MS)
        assert usage.in_c == 1, "the second is not a usual append"
        disk.plan.fail_next(code)
        with pytest.raises(KafkaError) as refused:
            log.append(batch(producer=(7, 0, 2)), leader_epoch=0, now_ms=NOW_MS)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (log.end_offset, log.producers.end_offset, log.active.size) == (2, 2, 2 * len(batch()))
        assert (log.failure is None) == (code == errno.ENOSPC)
        if code == errno.ENOSPC:
            log.append(batch(producer=(7, 0, 2)), leader_epoch=0, now_ms=NOW_MS)
            assert (usage.in_c, log.end_offset) == (2, 3)


def test_a_batch_in_a_roll_is_not_appended_to_the_segment_that_a_thread_closes() -> None:
    usage = Usage()
    with appending_with(usage.count):
        log = open_log("/data/topic-0", disk=MemoryDisk())
        for _ in range(2):
            log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
        assert usage.in_c == 1
        roll = log.start_roll(NOW_MS)
        assert roll is not None
        roll.run()
        log.append(batch(), leader_epoch=0, now_ms=NOW_MS)
    assert usage.in_c == 1
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_an_append_in_c_keeps_no_object() -> None:
    log = open_log("/data/topic-0", disk=MemoryDisk())
    data, epochs = batch(), 1000
    blocks = []
    for _ in range(4):
        for _ in range(epochs):
            data[0:8] = bytes(8)
            log.append(data, leader_epoch=0, now_ms=NOW_MS)
        blocks.append(sys.getallocatedblocks())
    assert all(after - before < epochs / 2 for before, after in list(pairwise(blocks))[1:]), blocks


def test_arguments_that_are_none_of_an_append_are_refused() -> None:
    log = open_log("/data/topic-0", disk=MemoryDisk())
    for arguments in ((log, memoryview(b""), False, 0), (log, b"", False, 0, 0), (log, memoryview(b""), False, "0", 0)):
        with pytest.raises(TypeError):
            log_append.append_usual(*arguments)
    assert log_append.append_usual(object(), batch(), False, 0, 0) is None
