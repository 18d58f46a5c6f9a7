"""What disks do in the simulation beside losing what was not synced: they fail for a while, run full, lie and decay.

One broker at a time has a disk that fails, and no other loses its power meanwhile: more than one replica at once no
configuration promises to survive. A disk that failed is cured by starting the broker again, as its operator would.

R13 is checked whenever a broker has started again: each log is a sound prefix of what the process before it had
written, with all that it had flushed, and the files beside it say what the batches say.
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
"""A failed fsync that drops its pages; EIO and ENOSPC of every call for a while; a bit turned over in a log while its
broker is down; EIO of every call, and a loss of power on top of it."""
CHECKED_FROM: Final = 17
"""The byte of a batch where its checksum stands, with all behind it that it covers."""


class DiskFaults:
    """The disk faults of one run; what is drawn comes from `random` alone."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.kinds = random.sample(DISK_FAULTS, random.randint(1, len(DISK_FAULTS)))
        self.sick: Process | None = None

    def strike(self, victim: Process) -> str:
        """Let the disk of a broker do something; returns what."""
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
        """In what a checksum covers: a wrong leader epoch, or a base offset that is too high, no reader can tell."""
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
        """Let the disk work again and start its broker anew, if it runs and needs it; returns whose it was."""
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
    """Whether a broker does not go on by itself once its disk works again, as it does after a lack of room."""
    broker = process.broker
    return broker is None or not process.ready or any(each.log.failure is not None for each in broker.replicas)


def check_recovered(log: Log, process: Process, before: Sequence[object], after: Sequence[object]) -> None:
    """R13, of the log that a process has loaded. Raises AssertionError.

    `before` has the batches that the process before it had, and `after` those that are left.
    """
    name = (log.topic, log.partition)
    synced = process.left.pop(name, None)
    if log.cleaned_to >= 0:
        return  # what compaction may take away, C1 says
    if synced is not None:
        assert after == before[: len(after)], f"R13: {name} ends in {after[-3:]}, and once in {before[-3:]}"
        assert process.disk_lied or log.end_offset >= synced, f"R13: {name} has {log.end_offset}; {synced} was synced"
    if log.config.compacts:
        check_compacted_files(log)  # the leader may have compacted away what an epoch began with
    else:
        check_files(log, start=log.start_offset)
