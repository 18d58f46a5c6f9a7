"""The data directories of one broker: where each log lies, and how a log moves between them (KIP-112, KIP-113).

A partition has one log in all directories that are online, and at most one future log beside it, which a replica fills
to replace the log. The exchange (Kafka's `replaceCurrentWithFutureLog`) writes to two file systems, of which any can
lose its power or fail between any two steps:

1. The future log gets a mark (`.replaces`), durably. The checkpoints of the new directory take over the start offset
   and the cleaned offset that the checkpoints of the old directory have for the log.
2. The future log is renamed, durably. From here on it is the log: a start that finds two logs takes the one with the
   mark, even if the other one has been written to since.
3. The old log is renamed to `…-delete`. When that is durable the mark is removed. While a directory is offline the mark
   remains, since an old log may lie there.

Kafka takes the same steps without the mark, and does not start when it finds two logs of a partition; an operator then
has to decide which is right. Odradek does the same for two logs of which none has the mark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.descriptors import NoDescriptor, is_exhausted
from odradek.storage.directory import Directory, DirectoryRequest
from odradek.storage.disk import Disk
from odradek.storage.log import Log
from odradek.storage.offset_checkpoints import starts_within_segment
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
        """The directories that have failed."""
        return [each for each in self._row if each.failure is not None]

    def close_unused(self, now_ms: int) -> None:
        """Close the directories of a broker whose start has failed; they are as clean as before. Closed ones stay."""
        for each in self._row:
            try:
                each.close(now_ms=now_ms, broker_epoch=each.last_broker_epoch)
            except KafkaError as error:
                _log.error("cannot close data directory directory=%s error=%s", each.path, error.message)

    def at(self, path: str) -> Directory | None:
        """The directory with this path."""
        return next((each for each in self._row if each.path == path), None)

    def holding(self, name: TopicPartition) -> Directory | None:
        """The directory that has the log of (topic, partition)."""
        return next((each for each in self._row if name in each.logs), None)

    def expecting(self, name: TopicPartition) -> Directory | None:
        """The directory that has the future log of (topic, partition)."""
        return next((each for each in self._row if name in each.futures), None)

    def exchange(self, name: TopicPartition, cleaned_to: int, now_ms: int) -> Log:
        """Make the future log of (topic, partition), which is marked and has caught up, its log.

        `cleaned_to` is the offset up to which the future log is compacted. The old log is discarded; when that is
        durable, the caller calls `settled`. Raises KafkaError where the directory of the future log fails. A failure of
        the old log's directory takes that directory offline and does not undo the exchange.
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
        if starts_within_segment(new):
            destination.checkpoints.write_start_offsets()
        if new.cleaned_to >= 0:
            destination.checkpoints.write_cleaner_offsets()
        destination.move_in(name)
        new.producers.take_over(old.producers)
        try:
            source.delete_log(name, now_ms=now_ms)
        except KafkaError as error:
            _log.error(
                "cannot remove the replaced log topic=%s partition=%d directory=%s error=%s",
                *name,
                source.path,
                error.message,
            )
        return new

    def settled(self, name: TopicPartition, new: Log) -> None:
        """Remove the mark: the old log of (topic, partition), which `new` replaced, is gone. Raises KafkaError."""
        directory = self.holding(name)
        if directory is not None and directory.logs[name] is new and not self.offline:
            directory.unmark(name)


def _inherit(old: Log, new: Log, cleaned_to: int) -> None:
    """Copy the state that the batches do not contain from a log to its copy. Raises OSError."""
    new.config = old.config
    new.last_flush_ms = old.last_flush_ms
    new.generation = old.generation + 1  # a flush or a compaction of the old log must not apply to this one
    new.advance_start_offset(old.start_offset, high_watermark=old.start_offset)
    new.cleaned_to = min(cleaned_to, old.cleaned_to)
    if new.epochs.entries() != old.epochs.entries():
        new.epochs.truncate_end(0)
        for epoch, start_offset in old.epochs.entries():
            new.epochs.note(epoch, start_offset)
        new.compaction_checkpoint.set_epochs(new.epochs.entries())  # also those that no batch contains
        new.epochs.save(sync=False)  # the next flush makes it durable


def emptiest(directories: Iterable[Directory]) -> Directory:
    """The directory for a new log: the online one with the fewest logs. Raises KafkaError where all are offline."""
    online = [directory for directory in directories if directory.failure is None]
    if not online:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every data directory is offline")
    return min(online, key=lambda directory: len(directory.logs) + len(directory.futures))


def open_all(paths: Iterable[str], request: DirectoryRequest, disk: Disk | None = None) -> list[Directory]:
    """Open the directories of one broker; one whose disk fails is offline, as long as another one is online.

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
            _log.error("data directory is offline directory=%s error=%s", directory.path, directory.failure)
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
    """Delete the replaced log where an exchange left two logs of a partition. Raise for any other pair of logs."""
    owners: dict[TopicPartition, Directory] = {}
    online = [directory for directory in directories if directory.failure is None]
    for directory in online:
        for name in directory.found.partitions():
            owner = owners.setdefault(name, directory)
            if owner is directory:
                continue
            if owner.found.has_replaced(name) == directory.found.has_replaced(name):
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{owner.path} and {directory.path} both have a log of {name[0]}-{name[1]}; one of them must go",
                )
            loser = directory if owner.found.has_replaced(name) else owner
            owners[name] = owner if loser is directory else directory
            _log.warning(
                "removing a replaced log topic=%s partition=%d directory=%s replaced_by=%s",
                *name,
                loser.path,
                owners[name].path,
            )
            loser.give_up(name, now_ms)


def _settle_futures(directories: list[Directory], now_ms: int) -> None:
    """Keep the first of several future logs of a partition; remove the marks when all directories are online."""
    online = [directory for directory in directories if directory.failure is None]
    seen: set[TopicPartition] = set()
    for directory in online:
        try:
            for name in [each for each in directory.futures if each in seen]:
                directory.delete_log(name, now_ms=now_ms, is_future=True)
            seen.update(directory.futures)
            for name in (*directory.logs, *directory.futures) if len(online) == len(directories) > 1 else ():
                directory.unmark(name)
        except KafkaError as error:
            _log.error("cannot remove leftovers of a log move error=%s", error.message)
