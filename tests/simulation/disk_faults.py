"""Disk faults of the simulation, besides the loss of unsynced writes: errors for a while, full disks, lost writes and
decay.

One broker at a time has a disk that fails, and no other broker loses its power meanwhile: no configuration guarantees
that data survives faults of more than one replica at once. Starting the broker again repairs a failed disk, as its
operator would.

R13 is checked whenever a broker has started again: each log is a valid prefix of the log that the process before it had
written, with everything that it had flushed, and the files beside the log agree with its batches.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random
from typing import Final

from odradek.protocol.batch import read_header
from odradek.storage.log import Log
from tests.simulation.processes import Process
from tests.simulation.verdict import batches
from tests.storage.r13 import check_compacted_files, check_files

DISK_FAULTS: Final = ("sync fails", "disk fails", "disk full", "bit flip", "fails and loses power")
"""A failed fsync that drops its pages; EIO and ENOSPC of every call for a while; a flipped bit in a log while its
broker is down; EIO of every call, followed by a loss of power.
"""
CHECKED_FROM: Final = 17
"""The offset in a batch of its checksum, which is followed by the bytes that it covers."""


class DiskFaults:
    """The disk faults of one run; all draws come from `random`."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.kinds = random.sample(DISK_FAULTS, random.randint(1, len(DISK_FAULTS)))
        self.sick: Process | None = None

    def strike(self, victim: Process) -> str:
        """Let the disk of a broker fail; returns the kind of fault."""
        kind, plan = self.random.choice(self.kinds), victim.disk.plan
        match kind:
            case "sync fails":
                plan.fail_next_sync()
                self.sick, victim.disk_lied = victim, True
            case "disk fails" | "fails and loses power":
                plan.fail_next(errno.EIO, lasting=True)
                self.sick = victim
            case "disk full":
                plan.fail_next(errno.ENOSPC, lasting=True)
                self.sick = victim
            case "bit flip":
                victim.kill()
                self._flip(victim)
                victim.start()
        if kind == "fails and loses power":
            victim.loses_power_next = True
        return kind

    def _flip(self, victim: Process) -> None:
        """In the part that a checksum covers: no reader can detect a wrong leader epoch, or a base offset that is too
        high.
        """
        places = [
            (path, place, read_header(content.data, place).size)
            for path, content in victim.disk.files.items()
            if path.endswith(".log") and "/t-" in path
            for place in batches(content.data)
        ]
        if places:
            path, place, size = self.random.choice(places)
            victim.disk.flip(path, place * 8 + self.random.randrange(CHECKED_FROM * 8, size * 8))
            victim.disk_lied = True

    def cure(self) -> Process | None:
        """Repair the disk and restart its broker, if it runs and needs it; returns the broker."""
        process, self.sick = self.sick, None
        if process is None:
            return None
        process.disk.plan.recover()
        if process.running and (process.loses_power_next or _has_failed(process)):
            process.kill(power=process.loses_power_next)
            process.start()
        process.loses_power_next = False
        return process


def _has_failed(process: Process) -> bool:
    """Whether a broker does not recover by itself once its disk works again, as it does after a lack of room."""
    broker = process.broker
    return broker is None or not process.ready or any(each.log.failure is not None for each in broker.replicas)


def check_recovered(log: Log, process: Process, before: Sequence[object], after: Sequence[object]) -> None:
    """R13, for the log that a process has loaded. Raises AssertionError.

    `before` has the batches of the process before it, and `after` those that are left.
    """
    name = (log.topic, log.partition)
    synced = process.left.pop(name, None)
    if log.cleaned_to >= 0:
        return  # C1 checks what compaction may remove
    if synced is not None:
        assert after == before[: len(after)], f"R13: {name} ends in {after[-3:]}, and once in {before[-3:]}"
        assert process.disk_lied or log.end_offset >= synced, f"R13: {name} has {log.end_offset}; {synced} was synced"
    if log.config.compacts:
        check_compacted_files(log)  # the leader may have compacted away the first records of an epoch
    else:
        check_files(log, start=log.start_offset)
