"""A late batch of a transaction that has ended needs another verification, and does not block the next transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol.batch import control_batch
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.config import AppendOrigin
from odradek.storage.log import Log
from tests.storage.batches import NOW_MS, batch, open_log

PRODUCER = 7


def _send(log: Log, sequence: int) -> int:
    asked = log.producers.begin_verification(PRODUCER, 0, sequence, False, NOW_MS)
    data = batch(2, producer=(PRODUCER, 0, sequence), transactional=True)
    return log.append(data, leader_epoch=0, now_ms=NOW_MS, verification=asked).first_offset


def _end(log: Log) -> None:
    marker = control_batch(
        commit=True, coordinator_epoch=0, producer_id=PRODUCER, producer_epoch=0, timestamp_ms=NOW_MS
    )
    log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def test_the_next_transaction_continues_after_the_verification_of_a_late_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0")
    _send(log, 0)
    _end(log)
    log.producers.begin_verification(PRODUCER, 0, 0, False, NOW_MS)  # late; the coordinator refuses
    assert _send(log, 2) == 3
    log.close_files()


def test_without_producer_state_the_first_verified_batch_is_the_first_that_is_written(tmp_path: Path) -> None:
    log = open_log(tmp_path / "topic-0")
    log.producers.begin_verification(PRODUCER, 0, 0, False, NOW_MS)
    with pytest.raises(KafkaError) as refused:
        _send(log, 2)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.close_files()
