"""Mistakes in compaction, each a mutant for the simulation with compaction to find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from odradek.broker.replication import log_cleaner
from odradek.protocol.batch import CONTROL, Header
from odradek.storage import cleanable, compaction_checkpoint, folder_changes, recovery, swap
from odradek.storage.compaction import _batches, _DirtyMap, _payload, _Rewriting
from odradek.storage.compaction_checkpoint import CompactionCheckpoint
from odradek.storage.disk import Folder
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.log import Log
from odradek.storage.producers import ProducerState
from odradek.storage.seen_transactions import SeenTransactions
from tests.mutants.replication import Plant

EVERYTHING: Final = 2**63 - 1


@contextmanager
def kafka_5490() -> Iterator[None]:
    """A producer's last batch goes when all of its records have (KAFKA-5490), or its last marker does (KAFKA-8335)."""
    with mock.patch.object(_Rewriting, "_is_remembered", return_value=False):
        yield


@contextmanager
def kafka_13727() -> Iterator[None]:
    """Only those aborted transactions count that end within the map; behind it, in the segment that it ends in, their
    index entries are lost, and the cleaner takes their records for committed.
    """
    real = _Rewriting.__init__

    def init(rewriting: _Rewriting, folder: Any, request: Any, dirty_map: _DirtyMap, throttle: Any) -> None:
        real(rewriting, folder, request, dirty_map, throttle)
        rewriting._seen = SeenTransactions(each for each in request.aborted if each.last_offset < dirty_map.end_offset)

    with mock.patch.object(_Rewriting, "__init__", init):
        yield


@contextmanager
def marker_first() -> Iterator[None]:
    """An ABORT goes before its data: the map ends between the two, and the cleaner takes the marker for one without
    data.
    """
    real = SeenTransactions.marker

    def marker(seen: SeenTransactions, header: Header, marker: Any) -> Any:
        _, entry = real(seen, header, marker)
        return True, entry

    with mock.patch.object(SeenTransactions, "marker", marker):
        yield


@contextmanager
def cut_transaction() -> Iterator[None]:
    """A pass ends where the map is full, in the middle of a transaction, and ignores those begun before."""
    real = _DirtyMap._ends_at

    def ends_at(dirty_map: _DirtyMap, offset: int) -> None:
        dirty_map._under_way.clear()
        real(dirty_map, offset)

    def init(dirty_map: _DirtyMap, folder: Any, request: Any, throttle: Any) -> None:
        real_init(dirty_map, folder, request, throttle)
        dirty_map._seen = SeenTransactions(each for each in request.aborted if each.first_offset >= request.first_dirty)

    real_init = _DirtyMap.__init__
    with mock.patch.object(_DirtyMap, "_ends_at", ends_at), mock.patch.object(_DirtyMap, "__init__", init):
        yield


@contextmanager
def kip_534_early() -> Iterator[None]:
    """The delete horizon counts from when the file was written last, not from the first pass: tombstones go too
    early.
    """
    real = _Rewriting._retained

    def retained(rewriting: _Rewriting, whole: Any, header: Header, flag: int, *, latest: int) -> Any:
        request = rewriting._request
        if header.delete_horizon_ms is None:
            rewriting._request = replace(request, now_ms=header.max_timestamp)
        try:
            return real(rewriting, whole, header, flag, latest=latest)
        finally:
            rewriting._request = request

    with mock.patch.object(_Rewriting, "_retained", retained):
        yield


@contextmanager
def kip_534_never() -> Iterator[None]:
    """The delete horizon counts from when the file was written last, and every pass writes it anew: tombstones never
    go.
    """
    real_init, real_retained, real_passed = _Rewriting.__init__, _Rewriting._retained, _Rewriting._horizon_passed
    passes: dict[str, int] = {}
    too_young: set[int] = set()

    def init(rewriting: _Rewriting, folder: Any, request: Any, dirty_map: Any, throttle: Any) -> None:
        real_init(rewriting, folder, request, dirty_map, throttle)
        too_young.discard(id(rewriting))
        if request.now_ms - passes.get(request.path, request.now_ms) < request.config.delete_retention_ms:
            too_young.add(id(rewriting))
        passes[request.path] = request.now_ms

    def retained(rewriting: _Rewriting, whole: Any, header: Header, flag: int, *, latest: int) -> Any:
        request = rewriting._request
        if id(rewriting) in too_young and header.delete_horizon_ms is not None:
            rewriting._request = replace(request, now_ms=-1)
        try:
            return real_retained(rewriting, whole, header, flag, latest=latest)
        finally:
            rewriting._request = request

    def passed(rewriting: _Rewriting, header: Header) -> bool:
        return id(rewriting) not in too_young and real_passed(rewriting, header)

    with (
        mock.patch.object(_Rewriting, "__init__", init),
        mock.patch.object(_Rewriting, "_retained", retained),
        mock.patch.object(_Rewriting, "_horizon_passed", passed),
    ):
        yield


@contextmanager
def markers_by_key() -> Iterator[None]:
    """Control batches are deduplicated like any other: all markers of one kind have one key."""
    real_fill, real_filter = _DirtyMap.fill, _Rewriting._filter

    def fill(dirty_map: _DirtyMap) -> None:
        real_fill(dirty_map)
        request = dirty_map._request
        for source in request.sources:
            for buffer, place, _, header in _batches(dirty_map._folder, request.config, source, dirty_map._throttle):
                if header.attributes & CONTROL and request.first_dirty <= header.base_offset < dirty_map.end_offset:
                    payload, start, end = _payload(buffer, place, header)
                    base = header.base_offset
                    dirty_map.offsets.note(payload, start, end, header.record_count, base, request.first_dirty)

    def filtered(rewriting: _Rewriting, target: Any, whole: memoryview, header: Header) -> Any:
        if header.attributes & CONTROL and header.last_offset <= rewriting._latest and header.record_count:
            kept, count = rewriting._retained(whole, header, 0, latest=rewriting._latest)
            return kept, count
        return real_filter(rewriting, target, whole, header)

    with mock.patch.object(_DirtyMap, "fill", fill), mock.patch.object(_Rewriting, "_filter", filtered):
        yield


@contextmanager
def kafka_3330() -> Iterator[None]:
    """A log that has lost its end reports the same compacted end as before, and records that replace it count as
    compacted.
    """
    real_cut, real_settle = Log.truncate_to, recovery._settle_ends

    def truncate_to(log: Log, offset: int, *, now_ms: int) -> bool:
        cleaned_to = log.cleaned_to
        try:
            return real_cut(log, offset, now_ms=now_ms)
        finally:
            log.cleaned_to = cleaned_to

    def settle_ends(folder: Folder, loaded: Any, request: Any) -> None:
        real_settle(folder, loaded, request)
        loaded.cleaned_to = max(loaded.cleaned_to, request.cleaned_to)

    with (
        mock.patch.object(Log, "truncate_to", truncate_to),
        mock.patch.object(recovery, "_settle_ends", settle_ends),
    ):
        yield


@contextmanager
def offline_replica() -> Iterator[None]:
    """Tombstones and markers go when delete.retention.ms is over, whether or not every replica has compacted so far."""
    real = cleanable.request_for

    def request_for(*arguments: Any, **options: Any) -> Any:
        return real(*arguments, **{**options, "compacted_everywhere": EVERYTHING})

    with mock.patch.object(log_cleaner, "request_for", request_for):
        yield


@contextmanager
def past_the_stable() -> Iterator[None]:
    """The cleaner compacts up to the active segment, through open transactions."""
    real = cleanable.cleanable_part

    def cleanable_part(log: Log, *, last_stable_offset: int, now_ms: int) -> Any:
        return real(log, last_stable_offset=log.end_offset, now_ms=now_ms)

    with mock.patch.object(log_cleaner, "cleanable_part", cleanable_part):
        yield


@contextmanager
def unsynced_swap(number: int = 2) -> Iterator[None]:
    """One of the three syncs of a swap is left out: by default the one between the old names and the new ones."""
    real_swap_in, real_sync = swap.swap_in, Folder.sync

    def swap_in(*arguments: Any) -> Any:
        syncs = 0

        def sync(folder: Folder) -> None:
            nonlocal syncs
            syncs += 1
            if syncs != number:
                real_sync(folder)

        with mock.patch.object(Folder, "sync", sync):
            return real_swap_in(*arguments)

    with mock.patch.object(folder_changes, "swap_in", swap_in):
        yield


@contextmanager
def aborted_long_ago() -> Iterator[None]:
    """Where the dirty part begins, the walk counts transactions as open that were aborted before it: the map lacks what
    their producers have committed since (a former mistake in Odradek).
    """
    real = _DirtyMap.__init__

    def init(dirty_map: _DirtyMap, folder: Any, request: Any, throttle: Any) -> None:
        real(dirty_map, folder, request, throttle)
        dirty_map._seen = SeenTransactions(request.aborted)

    with mock.patch.object(_DirtyMap, "__init__", init):
        yield


@contextmanager
def begin_of_an_epoch() -> Iterator[None]:
    """The batch that begins a leader's epoch is compacted away, and followers record a later start of the epoch, as
    those of Kafka do.
    """
    real = LeaderEpochs.follow

    def follow(epochs: LeaderEpochs, epoch: int, start_offset: int, leader_epochs: Any, checkpoint: Any) -> None:
        real(epochs, epoch, start_offset, (), checkpoint)

    with mock.patch.object(LeaderEpochs, "follow", follow):
        yield


@contextmanager
def checkpoint_ignored() -> Iterator[None]:
    """Recovery ignores the compaction checkpoint."""

    class Empty(CompactionCheckpoint):
        def __init__(self, folder: Folder, *, exists: bool = True) -> None:
            super().__init__(folder, exists=False)

    with mock.patch.object(recovery, "CompactionCheckpoint", Empty):
        yield


@contextmanager
def checkpoint_after_the_swap() -> Iterator[None]:
    """The compaction checkpoint is written when the compacted segments have taken their places."""
    real_note, real_swap_in = swap.note, swap.swap_in
    noted: list[Any] = []

    def swap_in(*arguments: Any) -> Any:
        try:
            return real_swap_in(*arguments)
        finally:
            real_note(*noted.pop())

    with (
        mock.patch.object(folder_changes, "note", lambda *arguments: noted.append(arguments)),
        mock.patch.object(folder_changes, "swap_in", swap_in),
    ):
        yield


@contextmanager
def checkpoint_unsynced() -> Iterator[None]:
    """The compaction checkpoint is written before the swap, and a loss of power may take it."""

    def replace_file(checkpoint: CompactionCheckpoint, segments: Any, epochs: Any) -> None:
        data = compaction_checkpoint._encode(segments, epochs)
        checkpoint._folder.replace(compaction_checkpoint.COMPACTION_CHECKPOINT, data, sync=False)
        checkpoint._segments, checkpoint.epochs = frozenset(segments), list(epochs)

    with mock.patch.object(CompactionCheckpoint, "_replace", replace_file):
        yield


@contextmanager
def emptied_marker() -> Iterator[None]:
    """A marker that was kept for its epoch, without its record, has no effect when the log is read anew, as in Kafka (a
    former mistake in Odradek).
    """
    real = ProducerState.apply_marker

    def apply_marker(state: ProducerState, header: Header, offset: int, marker: Any) -> Any:
        return None if marker is None else real(state, header, offset, marker)

    with mock.patch.object(ProducerState, "apply_marker", apply_marker):
        yield


@contextmanager
def unsynced_copy() -> Iterator[None]:
    """A segment without records to remove counts as compacted before it is durable: after a loss of power recovery
    takes the gap in it for the work of compaction (a former mistake in Odradek).
    """
    real, real_sync = _Rewriting.rewrite, Folder.sync_file

    def sync_file(folder: Folder, name: str) -> None:
        if not name.endswith(".log"):
            real_sync(folder, name)

    def rewrite(rewriting: _Rewriting, group: Any) -> Any:
        with mock.patch.object(Folder, "sync_file", sync_file):
            return real(rewriting, group)

    with mock.patch.object(_Rewriting, "rewrite", rewrite):
        yield


CHECKPOINT_MUTANTS: Final[dict[str, Plant]] = {
    "ignored": checkpoint_ignored,
    "after the swap": checkpoint_after_the_swap,
    "not synced": checkpoint_unsynced,
}
"""For a loss of power at every call of a compaction (tests/storage/test_compaction_power_loss.py)."""

COMPACTION_MUTANTS: dict[str, Plant] = {
    "KAFKA-5490": kafka_5490,
    "KAFKA-13727": kafka_13727,
    "marker before its data": marker_first,
    "transaction cut in two": cut_transaction,
    "KIP-534 early": kip_534_early,
    "KIP-534 never": kip_534_never,
    "markers by key": markers_by_key,
    "KAFKA-3330": kafka_3330,
    "offline replica": offline_replica,
    "past the first unstable offset": past_the_stable,
    "swap without a sync": unsynced_swap,
    "aborted long ago": aborted_long_ago,
    "begin of an epoch": begin_of_an_epoch,
    "compaction checkpoint ignored": checkpoint_ignored,
    "emptied marker": emptied_marker,
    "unsynced copy": unsynced_copy,
}

NEED_A_SCRIPT: Final = {"KAFKA-3330": "unclean", "swap without a sync": "swap"}
"""Found only with directed faults, by these scripts: only an unclean election truncates a log below its compacted end,
and few losses of power in few swaps show a missing sync.
"""
