"""The expected output of windows, sessions and dedup_sink, in plain Python, from the records of each batch.

Spark's rules, as far as these jobs need them. The watermark of a batch is the latest time of all batches before it,
less the lateness; it never goes back, and begins at 0. A row is late when the watermark of the batch *before* had
reached it: its time, or the end of its window or session. Windows and sessions that the watermark of the batch itself
has reached are closed, after the rows of the batch were taken in. Which records a batch had is read from the
checkpoint, and so is Spark's own watermark, to be compared with this one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.spark_jobs.copies import Record

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01; times of tests count from here."""


class Event(NamedTuple):
    """A record at its place; `at` in ms since EPOCH_MS."""

    partition: int
    offset: int
    key: bytes | None
    at: int


class Batch(NamedTuple):
    """The records of one batch, and the watermarks, in ms since EPOCH_MS, by which rows are late and windows close."""

    events: list[Event]
    late_ms: int
    closed_ms: int


def moment(at: int) -> datetime:
    """`at` ms after EPOCH_MS."""
    return datetime.fromtimestamp((EPOCH_MS + at) / 1000, UTC)


def ms(time: datetime) -> int:
    """A time of a Spark row (UTC; collected as local time without zone) or a moment, in ms since EPOCH_MS."""
    return round(time.timestamp() * 1000) - EPOCH_MS


def records(topic: str, events: Iterable[Event]) -> list[Record]:
    """The record to write to a topic."""
    return [Record(topic, each.partition, each.offset, b"", each.key, (), moment(each.at)) for each in events]


def numbered(rows: Iterable[tuple[int, bytes | None, int]]) -> list[Event]:
    """Events of (partition, key, at), at the offsets that they get in an empty topic."""
    ends: Counter[int] = Counter()
    events = []
    for partition, key, at in rows:
        events.append(Event(partition, ends[partition], key, at))
        ends[partition] += 1
    return events


def batches_of(checkpoint: Path, events: Sequence[Event], lateness_ms: int) -> list[Batch]:
    """The batches that a query has done, in order. Asserts that Spark's watermark is the one that is computed here."""
    before: dict[int, int] = {}
    late = closed = -EPOCH_MS
    found = []
    for path in sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)):
        _, metadata, text = path.read_text().splitlines()
        assert json.loads(metadata)["batchWatermarkMs"] - EPOCH_MS == closed, path
        (places,) = json.loads(text).values()
        ends = {int(partition): end for partition, end in places.items()}
        rows = [each for each in events if before.get(each.partition, 0) <= each.offset < ends[each.partition]]
        found.append(Batch(rows, late, closed))
        late, before = closed, ends
        closed = max([closed, *(each.at - lateness_ms for each in rows)])
    assert closed == late, "the last batch has to close what it can"
    return found


def in_batches(batches: Iterable[list[Event]], lateness_ms: int) -> list[Batch]:
    """Given batches, with the last one that Spark adds to close the windows that it can."""
    late = closed = -EPOCH_MS
    found = []
    for rows in [*batches, []]:
        found.append(Batch(rows, late, closed))
        late = closed
        closed = max([closed, *(each.at - lateness_ms for each in rows)])
    return found


Window = tuple[bytes | None, int, int]
"""key, start, end; ms since EPOCH_MS, start inside, end outside."""


def windows_of(at: int, size_ms: int, advance_ms: int) -> Iterator[tuple[int, int]]:
    """The windows that a time lies in. EPOCH_MS has to be a multiple of the advance."""
    start = at - at % advance_ms
    while start > at - size_ms:
        yield start, start + size_ms
        start -= advance_ms


def all_windows(events: Iterable[Event], size_ms: int, advance_ms: int) -> Counter[Window]:
    """The count of a batch recomputation: every window, closed or not."""
    return Counter((each.key, *window) for each in events for window in windows_of(each.at, size_ms, advance_ms))


def closed_windows(batches: Iterable[Batch], size_ms: int, advance_ms: int) -> dict[Window, int]:
    """The output for a stream. Asserts that no window is written twice."""
    counts: Counter[Window] = Counter()
    written: dict[Window, int] = {}
    for rows, late, closed in batches:
        for window, count in all_windows(rows, size_ms, advance_ms).items():
            if window[2] > late:
                counts[window] += count
        for window in [window for window in counts if window[2] <= closed]:
            assert window not in written
            written[window] = counts.pop(window)
    return written


Session = tuple[bytes | None, int, int, int]
"""key, start, end (last click + gap), count."""


def all_sessions(events: Iterable[Event], gap_ms: int) -> list[Session]:
    """Every session, closed or not: a click further than a gap from the click before it begins another one."""
    clicks: dict[bytes | None, list[int]] = {}
    for each in events:
        clicks.setdefault(each.key, []).append(each.at)
    found: list[Session] = []
    for key, times in clicks.items():
        times.sort()
        begins = [n for n, at in enumerate(times) if n == 0 or at - times[n - 1] > gap_ms]
        for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
            found.append((key, times[begin], times[end - 1] + gap_ms, end - begin))
    return found


def closed_sessions(batches: Iterable[Batch], gap_ms: int) -> list[Session]:
    """The output for a stream: a click counts with the clicks of those sessions of its key that are open."""
    held: list[Event] = []
    written: list[Session] = []
    for rows, late, closed in batches:
        held += [each for each in rows if each.at + gap_ms > late]
        done = [session for session in all_sessions(held, gap_ms) if session[2] <= closed]
        written += done
        ends = {key: end for key, _, end, _ in done}  # of each key the last: they come in the order of time
        held = [each for each in held if each.key not in ends or each.at >= ends[each.key]]
    return written


def once_each(batches: Iterable[Batch], lateness_ms: int) -> list[tuple[int, Event]]:
    """The output of dedup_sink, by number of the batch: the first of a key, until the watermark has passed it.

    The events of a key have to be in one partition: their order within a batch is that of their offsets.
    """
    remembered: dict[bytes, int] = {}
    kept: list[tuple[int, Event]] = []
    for number, (rows, late, closed) in enumerate(batches):
        for each in sorted(rows):
            if each.at <= late or each.key in remembered:
                continue
            if each.key is not None:
                remembered[each.key] = each.at + lateness_ms
            kept.append((number, each))
        remembered = {key: until for key, until in remembered.items() if until > closed}
    return kept


def latest(rows: Iterable[tuple[int, int, bytes | None, bytes | None]]) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    """The fold of (partition, offset, key, value) by offset: (partition, key) -> (offset, value); tombstones remove."""
    table: dict[tuple[int, bytes], tuple[int, bytes]] = {}
    for partition, offset, key, value in sorted(rows, key=lambda row: row[:2]):
        if key is None:
            continue
        table.pop((partition, key), None)
        if value is not None:
            table[partition, key] = (offset, value)
    return table


def parquet_rows(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    """The rows that a Parquet reader independent of Spark finds in a folder; times in ms since EPOCH_MS."""
    import pyarrow.dataset  # not with every test run: it imports pandas

    table = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table(list(columns))
    return [tuple(map(_value, row.values())) for row in table.to_pylist()]


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000) - EPOCH_MS
    return value


def plain(value: Any) -> bytes | None:
    """A binary column, collected."""
    return None if value is None else bytes(value)
