"""The data directories of one broker together: which log lies where, and how one changes places (KIP-112, KIP-113).

There is one log of a partition in all directories that are online, and at most one future log beside it, which is being
filled to take its place. The exchange (Kafka's `replaceCurrentWithFutureLog`) touches two file systems, of which any
can lose its power or fail between any two steps:

1. The future log gets a mark (`.replaces`), durably, and the checkpoints of the new directory say what the old one's
   said of where the log begins and how far it is compacted.
2. The future log is renamed, durably. From here on it is the log: a start that finds two of them believes the one with
   the mark, whatever has been written to it since.
3. The old log is renamed to `…-delete`. When that is durable the mark goes. While a directory is offline the mark
   stays, since an old log may lie there.

Kafka takes the same steps without the mark, and does not start when it finds two logs of a partition; an operator then
says which is right. Here that remains for two logs of which none has the mark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.descriptors import NoDescriptor, is_exhausted
from odradek.storage.directory import Directory, DirectoryRequest, Name
from odradek.storage.disk import Disk
from odradek.storage.log import Log
from odradek.storage.parallel_recovery import recover_in_parallel
from odradek.storage.worker import available_cores

_log = logging.getLogger(__name__)


class Directories:
    """The data directories of one broker, in the order of log.dirs; those that are offline among them."""

    def __init__(self, row: Iterable[Directory]) -> None:
        self._row = list(row)

    def __iter__(self) -> Iterator[Directory]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    @property
    def offline(self) -> list[Directory]:
        """Those that have failed."""
        return [each for each in self._row if each.failure is not None]

    def at(self, path: str) -> Directory | None:
        """The directory with this path."""
        return next((each for each in self._row if each.path == path), None)

    def holding(self, name: Name) -> Directory | None:
        """Where the log of (topic, partition) lies."""
        return next((each for each in self._row if name in each.logs), None)

    def expecting(self, name: Name) -> Directory | None:
        """Where the future log of (topic, partition) lies."""
        return next((each for each in self._row if name in each.futures), None)

    def exchange(self, name: Name, cleaned_to: int, now_ms: int) -> Log:
        """The future log of (topic, partition), which is marked and has caught up, becomes its log.

        `cleaned_to` is up to where the future log is compacted. The old log is given up; when that is durable,
        `settled` is to be called. Raises KafkaError where the directory of the future log fails; a failure of the old
        one's, which then is offline, comes too late to change anything.
        """
        source, destination = self.holding(name), self.expecting(name)
        assert source is not None
        assert destination is not None
        old, new = source.logs[name], destination.futures[name]
        try:
            _inherit(old, new, cleaned_to)
        except OSError as error:
            if is_exhausted(error):
                raise NoDescriptor(f"writing the leader epochs in {new.directory}", error) from error
            reason = f"writing the leader epochs in {new.directory}: {error}"
            destination.fail(reason)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
        if new.starts_within_segment:
            destination.write_start_offsets()
        if new.cleaned_to >= 0:
            destination.write_cleaner_offsets()
        destination.move_in(name)
        new.producers.take_over(old.producers)
        try:
            source.delete_log(name, now_ms=now_ms)
        except KafkaError as error:
            _log.error("what is left of %s-%d in %s: %s", *name, source.path, error.message)
        return new

    def settled(self, name: Name, new: Log) -> None:
        """The old log of (topic, partition), which `new` has replaced, is surely gone. Raises KafkaError."""
        directory = self.holding(name)
        if directory is not None and directory.logs[name] is new and not self.offline:
            directory.unmark(name)


def _inherit(old: Log, new: Log, cleaned_to: int) -> None:
    """A log gets what is known of the one that it is a copy of, and not written in the batches. Raises OSError."""
    new.config = old.config
    new.last_flush_ms = old.last_flush_ms
    new.generation = old.generation + 1  # a flush or a compaction of the old one says nothing of this one
    new.advance_start_offset(old.start_offset, high_watermark=old.start_offset)
    new.cleaned_to = min(cleaned_to, old.cleaned_to)
    if new.epochs.entries() != old.epochs.entries():
        new.epochs.truncate_end(0)
        for epoch, start_offset in old.epochs.entries():
            new.epochs.note(epoch, start_offset)
        new.remember_epochs()
        new.epochs.save(sync=False)  # the next flush takes it along


def emptiest(directories: Iterable[Directory]) -> Directory:
    """Where a new log goes: the directory with the fewest logs that is not offline. Raises KafkaError where all are."""
    online = [directory for directory in directories if directory.failure is None]
    if not online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every data directory is offline")
    return min(online, key=lambda directory: len(directory.logs) + len(directory.futures))


def open_all(paths: Iterable[str], request: DirectoryRequest, disk: Disk | None = None) -> list[Directory]:
    """Open the directories of one broker; one that the disk fails is offline, while there are others.

    Raises KafkaError, also where two of them have a log of one partition.
    """
    directories: list[Directory] = []
    try:
        for path in paths:
            directories.append(Directory.begin(path, request, disk))  # noqa: PERF401 - those before it are to be closed
        _refuse_if_none_is_left(directories, "created or validated")
        _settle_implementations(directories, request.now_ms)
        each = request.recovery_processes
        processes = available_cores() if each is None else each * len(directories)
        recovered = recover_in_parallel([log for directory in directories for log in directory.unclean()], processes)
        for directory in directories:
            directory.load(recovered)
        _refuse_if_none_is_left(directories, "loaded")
        _settle_futures(directories, request.now_ms)
    except BaseException:
        for directory in directories:
            directory.close(now_ms=request.now_ms, clean=False)
        raise
    for directory in directories:
        if directory.failure is not None:
            _log.error("data directory %s is offline: %s", directory.path, directory.failure)
    return directories


def _refuse_if_none_is_left(directories: list[Directory], how: str) -> None:
    reasons = [directory.failure for directory in directories if directory.failure is not None]
    if len(reasons) < len(directories):
        return
    paths = ", ".join(directory.path for directory in directories)
    raise KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"Shutdown broker because none of the specified log dirs from {paths} can be {how}: " + "; ".join(reasons),
    )


def _settle_implementations(directories: list[Directory], now_ms: int) -> None:
    """Two logs of a partition: what an exchange has left behind goes, and anything else is the operator's to decide."""
    owners: dict[Name, Directory] = {}
    online = [directory for directory in directories if directory.failure is None]
    for directory in online:
        for name in directory.names():
            owner = owners.setdefault(name, directory)
            if owner is directory:
                continue
            if owner.has_replaced(name) == directory.has_replaced(name):
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{owner.path} and {directory.path} both have a log of {name[0]}-{name[1]}; one of them must go",
                )
            loser = directory if owner.has_replaced(name) else owner
            owners[name] = owner if loser is directory else directory
            _log.warning("the log of %s-%d in %s has been replaced by that in %s", *name, loser.path, owners[name].path)
            loser.give_up(name, now_ms)


def _settle_futures(directories: list[Directory], now_ms: int) -> None:
    """Of several future logs of a partition the first stays; marks have done their duty when all is online."""
    online = [directory for directory in directories if directory.failure is None]
    seen: set[Name] = set()
    for directory in online:
        try:
            for name in [each for each in directory.futures if each in seen]:
                directory.delete_log(name, now_ms=now_ms, is_future=True)
            seen.update(directory.futures)
            for name in (*directory.logs, *directory.futures) if len(online) == len(directories) > 1 else ():
                directory.unmark(name)
        except KafkaError as error:
            _log.error("%s", error.message)
