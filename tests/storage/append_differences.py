"""Compares appends with one call in C (`protocol.log_append`) with those in Python: results, errors, and the whole
state of the log and of its disk.

The tests run a few thousand appends. A campaign of any length, on a build with sanitizers, is a part of

    make sanitize ARGS="--rounds 1000 --seed 7"
"""

from __future__ import annotations

import argparse
import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

from odradek.protocol import log_append
from odradek.protocol.errors import KafkaError
from odradek.storage import log as log_module
from odradek.storage.config import AppendOrigin, LogConfig
from odradek.storage.log import Log
from odradek.storage.producers import WAIVED
from odradek.storage.validation import Prepared, prepare_own
from tests.protocol.batch_differences import random_batch
from tests.protocol.codec_differences import load
from tests.storage.batches import NOW_MS, batch, open_log
from tests.storage.disks import MemoryDisk
from tests.storage.memory_state import state_of

APPENDS_OF_A_LOG: Final = 40
LOGS_A_ROUND: Final = 20
CONFIGS: Final = (
    LogConfig(),
    LogConfig(segment_bytes=900, index_interval_bytes=150, segment_index_bytes=200),
    LogConfig(segment_ms=3, max_message_bytes=200),
    LogConfig(message_timestamp_type="LogAppendTime"),
    LogConfig(cleanup_policy=("compact",)),
    LogConfig(compression_type="lz4"),
)


class Usage:
    """How many appends there were, and how many of them the function in C did."""

    def __init__(self) -> None:
        self.appends = self.in_c = self.errors = 0

    def count(self, *arguments: Any) -> Any:
        """Call the function in C, and count it."""
        done = log_append.append_usual(*arguments)
        self.in_c += done is not None
        return done


@contextmanager
def appending_with(function: Any) -> Iterator[None]:
    """Logs call this function for usual batches."""
    with mock.patch.object(log_module, "append_usual", function):
        yield


class Pair:
    """Two logs with the same appends, one of them without C."""

    def __init__(self, rng: random.Random, usage: Usage) -> None:
        self._rng, self._usage = rng, usage
        self.config = rng.choice(CONFIGS) if rng.random() < 0.5 else CONFIGS[0]
        self.disks = MemoryDisk(), MemoryDisk()
        self.logs = tuple(open_log("/data/topic-0", self.config, disk=disk) for disk in self.disks)
        self._epoch = 0

    def append(self) -> None:
        """Append one batch to both, with the same fault of the disk. Raises AssertionError where they differ."""
        rng, data = self._rng, self._batch()
        self._epoch += rng.random() < 0.05
        how: dict[str, Any] = {"leader_epoch": self._epoch, "now_ms": NOW_MS + rng.randint(-3, 6)}
        if rng.random() < 0.1:
            how["origin"] = AppendOrigin.COORDINATOR
        if rng.random() < 0.1:
            how["verification"] = WAIVED
        if rng.random() < 0.05:
            how["api_version"] = 2
        code = rng.choice((errno.EIO, errno.ENOSPC, errno.ENOSPC)) if rng.random() < 0.02 else 0
        form = rng.choice(("writable", "writable", "writable", "read-only", "own"))
        for disk in self.disks if code else ():
            disk.plan.fail_next(code)
        found = [
            self._append(log, function, bytes(data), form, how)
            for log, function in zip(self.logs, (self._usage.count, log_append.not_in_c), strict=True)
        ]
        for disk in self.disks:
            disk.plan.recover()
        assert found[0] == found[1], (form, how, bytes(data).hex())
        self._usage.appends += 1
        self._usage.errors += found[0][0] is not None

    def check(self) -> None:
        """Raises AssertionError where the logs or their disks differ."""
        first, second = self.logs
        assert state_of(first) == state_of(second), self.config

    def _batch(self) -> bytearray | memoryview:
        """A batch of a producer, most often its next one, or a random one."""
        rng = self._rng
        if rng.random() < 0.2:
            return random_batch(rng)
        producer_id = rng.choice((-1, 7, 8))
        known = self.logs[0].producers.get(producer_id)
        sequence = (known.last_sequence + 1 if known else 0) + rng.choice((0,) * 8 + (-1, 1))
        producer = producer_id, rng.random() < 0.03, max(sequence, 0)
        return batch(
            rng.randint(1, 3),
            size=rng.choice((0, 10, 90, 4000)) if rng.random() < 0.3 else 10,
            timestamp_ms=NOW_MS + rng.randint(-2, 5),
            producer=producer if producer_id >= 0 else (-1, -1, -1),
            transactional=producer_id >= 0 and rng.random() < 0.05,
        )

    def _append(self, log: Log, function: Any, data: bytes, form: str, how: dict[str, Any]) -> tuple[Any, ...]:
        """The error, the result and its type, and the bytes afterwards."""
        given: memoryview | Prepared | None = memoryview(data if form == "read-only" else bytearray(data))
        if form == "own":
            given = prepare_own([(b"key", data), (data, None)], self.config, NOW_MS)
            if given is None:
                return None, None, None, b""
        written = given.view if isinstance(given, Prepared) else given
        assert written is not None
        with appending_with(function):
            try:
                appended = log.append(given, **how)
            except KafkaError as error:
                return (type(error), error.code, str(error)), None, None, bytes(written)
        return None, appended, type(appended), bytes(written)


def compare(rng: random.Random, usage: Usage) -> None:
    """Compare the appends of one pair of logs. Raises AssertionError with the first difference."""
    pair = Pair(rng, usage)
    for _ in range(APPENDS_OF_A_LOG):
        pair.append()
    pair.check()


def main() -> None:
    """Run a campaign. Raises AssertionError with the first difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10, help=f"each compares {LOGS_A_ROUND} pairs of logs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", type=Path, help="the folder of another build of the extensions")
    arguments = parser.parse_args()
    if arguments.library is not None:
        load(arguments.library, "_log_append", log_append)
        log_append.append_usual = vars(log_append)["_log_append"].append_usual
        log_append.prepare(log_module.CLASSES)
    rng = random.Random(arguments.seed)
    for number in range(1, arguments.rounds + 1):
        usage = Usage()
        for _ in range(LOGS_A_ROUND):
            compare(rng, usage)
        print(f"round {number}: {usage.appends} appends, {usage.in_c} in C, no differences", flush=True)


if __name__ == "__main__":
    main()
