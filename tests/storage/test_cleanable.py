"""The cleanable part of a log, and when it is due: the rules of Kafka's LogCleanerManager, one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from odradek.storage.cleanable import Cleanable, cleanable_part
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from tests.storage.batches import NOW_MS, batch, open_log

CONFIG = LogConfig(cleanup_policy=("compact",))
SECOND_MS = 1000


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Four segments of one record each, written a second apart, the last of them active."""
    log = open_log(tmp_path / "topic-0", CONFIG)
    for number in range(4):
        log.append(batch(timestamp_ms=NOW_MS + number * SECOND_MS), leader_epoch=0, now_ms=NOW_MS)
        if number < 3:
            log.roll(NOW_MS)
    return log


def part(log: Log, *, stable: int = 4, now_ms: int = NOW_MS + 10 * SECOND_MS) -> Cleanable:
    return cleanable_part(log, last_stable_offset=stable, now_ms=now_ms)


def test_all_but_the_active_segment_is_dirty_at_first(log: Log) -> None:
    size = log.segments[0].size
    assert part(log) == Cleanable(0, 3, 0, 3 * size, 0)
    assert part(log).dirty_ratio == 1.0


def test_compacted_segments_count_as_clean(log: Log) -> None:
    size = log.segments[0].size
    log.cleaned_to = 1
    assert part(log) == Cleanable(1, 3, size, 2 * size, 0)
    assert part(log).dirty_ratio == pytest.approx(2 / 3)
    log.cleaned_to = 3
    assert not part(log).is_due(0.0), "nothing is dirty"


def test_nothing_is_cleaned_from_the_last_stable_offset_on(log: Log) -> None:
    assert part(log, stable=2).first_uncleanable == 2
    assert part(log, stable=0).first_uncleanable == 0
    assert not part(log, stable=0).is_due(0.0)


def test_a_segment_is_cleaned_whole_or_not_at_all(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0", CONFIG)
    log.append(batch(5), leader_epoch=0, now_ms=NOW_MS)
    log.append(batch(5), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    assert part(log, stable=7).first_uncleanable == 0
    assert part(log, stable=10).first_uncleanable == 10


@pytest.mark.parametrize(("lag_s", "uncleanable"), [(0, 3), (8, 3), (9, 2), (10, 1), (11, 0)])
def test_records_younger_than_the_min_compaction_lag_wait(log: Log, lag_s: int, uncleanable: int) -> None:
    log.config = replace(CONFIG, min_compaction_lag_ms=lag_s * SECOND_MS)
    assert part(log).first_uncleanable == uncleanable


@pytest.mark.parametrize(("lag_s", "delay_s"), [(11, 0), (10, 0), (9, 1), (4, 6)])
def test_records_older_than_the_max_compaction_lag_are_due_for_any_dirty_ratio(
    log: Log, lag_s: int, delay_s: int
) -> None:
    log.config = replace(CONFIG, max_compaction_lag_ms=lag_s * SECOND_MS)
    assert part(log).delay_ms == delay_s * SECOND_MS
    assert part(log).is_due(1.0) == (delay_s > 0)


def test_a_log_is_due_when_its_dirty_share_is_above_the_ratio(log: Log) -> None:
    log.cleaned_to = 1
    assert part(log).is_due(0.66)
    assert not part(log).is_due(0.67)


@pytest.mark.parametrize("wrong", [-1, 5, 100])
def test_a_checkpoint_that_is_no_offset_of_the_log_counts_as_none(log: Log, wrong: int) -> None:
    log.cleaned_to = wrong
    assert part(log).first_dirty == 0
    log.advance_start_offset(2, high_watermark=4)
    log.cleaned_to = 1
    assert part(log).first_dirty == 2
