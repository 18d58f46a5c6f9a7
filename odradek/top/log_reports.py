"""The log inspector in `odradek top`: logs of data directories, one log, a segment with its batches and indexes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from rich.text import Text

from odradek.commands.output import byte_size
from odradek.console.log_inspector import BatchRow, LogDetail, LogRow, SegmentRow
from odradek.console.paging import Listing
from odradek.console.record_view import time_text
from odradek.storage.index import AbortedTransaction
from odradek.storage.producers import Producer
from odradek.top.cells import WRONG, Cells, PaneRows, number, right, safe, selected, shown
from odradek.top.context import TopContext
from odradek.top.report_screen import ReportScreen
from odradek.top.reports import Report, ReportTable, facts

LOGS: Final = ("LOG", "DIRECTORY", "SEGMENTS", "SIZE")
SEGMENTS: Final = ("BASE OFFSET", "SIZE", "OFFSET INDEX", "TIME INDEX", "ABORTED", "MODIFIED")
BATCHES: Final = (
    "POSITION", "FIRST", "LAST", "RECORDS", "SIZE", "CODEC", "LEADER EPOCH", "PRODUCER", "SEQUENCE", "KIND", "CRC",
)  # fmt: skip
PRODUCERS: Final = ("PRODUCER", "EPOCH", "LAST SEQUENCE", "OPEN FROM", "LAST RECORD")
ABORTED: Final = ("NUMBER", "PRODUCER", "FIRST", "LAST")
_NO_DIRECTORY: Final = "start odradek top with --data-dir DIR, a data directory of a broker on this machine"


def logs_screen(context: TopContext) -> ReportScreen:
    """All logs of the data directories."""
    return ReportScreen(lambda: logs_report(context), None)


def log_screen(context: TopContext, name: str) -> ReportScreen:
    """The log of a partition: of the first data directory that has it."""

    def read() -> Report:
        for directory in range(len(context.inspector.directories)):
            try:
                return log_report(context, directory, name)
            except KeyError:
                continue
        raise LookupError(f"log {name} in a data directory of this run; {_NO_DIRECTORY}")

    return ReportScreen(read, None)


def logs_report(context: TopContext) -> Report:
    """The logs. Raises OSError."""
    inspector = context.inspector
    about = facts("logs on disk")
    for each, path in enumerate(inspector.directories):
        identity = inspector.identity(each)
        broker = identity.get("broker.id", identity.get("node.id", "-"))
        about.append("\n").append_text(
            safe(f"{each}: {path}   broker {broker}   cluster {identity.get('cluster.id', '-')}")
        )
    if not inspector.directories:
        about.append(f"\n{_NO_DIRECTORY}", "yellow")

    def logs(listing: Listing) -> PaneRows:
        return shown(inspector.logs(listing), lambda each: f"{each.directory}/{each.folder}", _log)

    def opened(key: str) -> ReportScreen:
        directory, _, name = key.partition("/")
        return ReportScreen(lambda: log_report(context, int(directory), name), None)

    return Report(about, (ReportTable("logs", LOGS, logs, opened, ("log", "-size", "-segments")),))


def log_report(context: TopContext, directory: int, name: str) -> Report:
    """One log. Raises KeyError where the directory does not have it, and OSError."""
    detail = context.inspector.detail(directory, name)
    about = facts(f"log {name}", size=byte_size(detail.row.size_bytes), topic_id=detail.topic_id or "-")
    about.append("\n").append_text(safe(detail.path, "dim"))
    about.append_text(Text("\n")).append_text(_checkpoints(detail))
    for each in detail.problems:
        about.append("\n").append_text(safe(each, WRONG))

    def opened(key: str) -> ReportScreen:
        return ReportScreen(lambda: segment_report(context, directory, name, int(key)), None)

    return Report(
        about,
        (
            ReportTable("segments", SEGMENTS, partial(_segments, detail), opened),
            ReportTable("leader epochs", ("EPOCH", "START OFFSET"), partial(_pairs, detail.epochs)),
            ReportTable("producers", PRODUCERS, partial(_producers, detail)),
            ReportTable("aborted transactions", ABORTED, partial(_aborted, detail.aborted)),
        ),
    )


def segment_report(context: TopContext, directory: int, name: str, base_offset: int, position: int = 0) -> Report:
    """Batches of a segment from a position on, and its indexes. Raises KeyError, OSError."""
    page = context.inspector.batches(directory, name, base_offset, position)
    indexes = context.inspector.indexes(directory, name, base_offset)
    about = facts(f"segment {base_offset} of {name}", size=byte_size(page.size_bytes), from_position=position)
    for each in (page.damage, *indexes.problems):
        if each:
            about.append("\n").append_text(safe(each, WRONG))
    more = page.next_position
    if more is not None:
        about.append("\nEnter on the last batch: the batches after it", "dim")

    def batches(listing: Listing) -> PaneRows:
        return selected(page.batches, listing, lambda each: str(each.position), _batch)

    def opened(key: str) -> ReportScreen | None:
        if more is None or not page.batches or key != str(page.batches[-1].position):
            return None
        return ReportScreen(lambda: segment_report(context, directory, name, base_offset, more), None)

    def at_position(key: str) -> ReportScreen:
        start = {str(offset): where for offset, where in indexes.offsets}[key]
        return ReportScreen(lambda: segment_report(context, directory, name, base_offset, start), None)

    return Report(
        about,
        (
            ReportTable("batches", BATCHES, batches, opened),
            ReportTable("offset index", ("OFFSET", "POSITION"), partial(_pairs, indexes.offsets), at_position),
            ReportTable("time index", ("TIME", "OFFSET"), partial(_times, indexes.times)),
            ReportTable("transaction index", ABORTED, partial(_aborted, indexes.aborted)),
        ),
    )


def _log(row: LogRow) -> Cells:
    return safe(row.folder), number(row.directory), number(row.segments), right(byte_size(row.size_bytes))


def _checkpoints(detail: LogDetail) -> Text:
    found = Text()
    for name, offset in detail.checkpoints.items():
        found.append(f"{name} ", "dim").append_text(number(offset)).append("   ")
    share = detail.clean_bytes / detail.row.size_bytes if detail.row.size_bytes else 0.0
    return found.append("clean ", "dim").append(f"{share:.0%}")


def _segments(detail: LogDetail, listing: Listing) -> PaneRows:
    return selected(detail.segments, listing, lambda each: str(each.base_offset), _segment)


def _segment(row: SegmentRow) -> Cells:
    return (
        number(row.base_offset),
        right(byte_size(row.size_bytes)),
        number(row.offset_entries),
        number(row.time_entries),
        number(row.aborted),
        Text(time_text(int(row.modified_s * 1000))),
    )


def _batch(row: BatchRow) -> Cells:
    header = row.header
    kind = "marker" if header.is_control else "transactional" if header.is_transactional else "data"
    return (
        number(row.position),
        number(header.base_offset),
        number(header.last_offset),
        number(header.record_count),
        right(byte_size(header.size)),
        Text(row.codec),
        number(header.leader_epoch),
        right(f"{header.producer_id}/{header.producer_epoch}" if header.producer_id >= 0 else "-"),
        number(header.base_sequence if header.base_sequence >= 0 else None),
        Text(kind),
        Text("holds") if row.is_sound else Text("wrong", WRONG),
    )


def _producers(detail: LogDetail, listing: Listing) -> PaneRows:
    return selected(detail.producers, listing, lambda each: str(each.producer_id), _producer)


def _producer(each: Producer) -> Cells:
    return (
        number(each.producer_id),
        number(each.epoch),
        number(each.last_sequence if each.last_sequence >= 0 else None),
        number(each.transaction_start if each.transaction_start >= 0 else None),
        Text(time_text(each.last_timestamp) or "-"),
    )


def _pairs(pairs: Sequence[tuple[int, int]], listing: Listing) -> PaneRows:
    return selected(pairs, listing, lambda each: str(each[0]), lambda each: (number(each[0]), number(each[1])))


def _times(pairs: Sequence[tuple[int, int]], listing: Listing) -> PaneRows:
    def cells(each: tuple[int, int]) -> Cells:
        return Text(time_text(each[0]) or "-"), number(each[1])

    return selected(pairs, listing, lambda each: f"{each[0]} {each[1]}", cells)


def _aborted(entries: Sequence[AbortedTransaction], listing: Listing) -> PaneRows:
    def cells(each: tuple[int, AbortedTransaction]) -> Cells:
        entry = each[1]
        return number(each[0]), number(entry.producer_id), number(entry.first_offset), number(entry.last_offset)

    return selected(list(enumerate(entries)), listing, lambda each: str(each[0]), cells)
