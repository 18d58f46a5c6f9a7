"""Status table: the processes of an application as text, from their metrics page (`odradek streams top`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from odradek.streams.supervisor.page import PREFIX
from odradek.streams.text_table import text_table

_THREADS: Final = "kafka_streams_stream_metrics_alive_stream_threads"
_PROCESSED: Final = "kafka_streams_stream_thread_metrics_process_total"
_RATE: Final = "kafka_streams_stream_thread_metrics_process_rate"
_LAG: Final = "kafka_consumer_consumer_fetch_manager_metrics_records_lag"
_HEADINGS: Final = ("PROCESS", "PID", "STATE", "THREADS", "TASKS", "RECORDS/S", "LAG", "RESTARTS", "UPTIME")
_TEXTS: Final = frozenset({"STATE"})
"""Columns that are aligned on the left."""


@dataclass(slots=True)
class Row:
    """One process."""

    process: str
    pid: str = ""
    state: str = ""
    threads: int = 0
    tasks: set[tuple[str, str]] = field(default_factory=set)
    """Thread and task ids."""
    processed: float = 0.0
    """Records since the start of the process."""
    rate: float = 0.0
    """Records a second."""
    lag: float | None = None
    """Records behind the end offsets; None where no partition has one."""
    restarts: int = 0
    uptime_s: float = 0.0


def rows_of(page: str) -> list[Row]:
    """The processes of a metrics page. Raises ValueError for a page without any, or one that cannot be parsed."""
    rows: dict[str, Row] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            process = sample.labels.get("process")
            if process is not None:
                _add(rows.setdefault(process, Row(process)), sample.name, sample.labels, sample.value)
    if not rows:
        raise ValueError("the page has no metrics with the label process: is it that of odradek streams run?")
    return sorted(rows.values(), key=lambda row: (len(row.process), row.process))


def _add(row: Row, name: str, labels: Mapping[str, str], value: float) -> None:
    if "task_id" in labels and "thread_id" in labels:
        row.tasks.add((labels["thread_id"], labels["task_id"]))
    match name.removeprefix(f"{PREFIX}_"):
        case "up":
            row.pid = labels.get("pid", "")
        case "state":
            row.state = labels.get("state", "")
        case "uptime_seconds":
            row.uptime_s = value
        case "restarts_total":
            row.restarts = int(value)
        case str(other) if other == _THREADS:
            row.threads = int(value)
        case str(other) if other == _PROCESSED:
            row.processed += value
        case str(other) if other == _RATE:
            row.rate += value
        case str(other) if other == _LAG:
            row.lag = (row.lag or 0.0) + value


def measure_rates(rows: Sequence[Row], before: Sequence[Row], seconds: float) -> None:
    """Set the rates to those since an earlier page, `seconds` ago, where the same process has both."""
    earlier = {(row.process, row.pid): row for row in before}
    for row in rows:
        old = earlier.get((row.process, row.pid))
        if old is not None and seconds > 0 and row.processed >= old.processed:
            row.rate = (row.processed - old.processed) / seconds


def render(rows: Iterable[Row]) -> str:
    """The table, and a line of totals below more than one process."""
    found = list(rows)
    lines = [_cells(row) for row in found]
    if len(found) > 1:
        lags = [row.lag for row in found if row.lag is not None]
        running = sum(row.state == "RUNNING" for row in found)
        total = Row("total", lag=sum(lags) if lags else None, state=f"{running} of {len(found)} RUNNING")
        for row in found:
            total.threads += row.threads
            total.tasks |= {(f"{row.process} {thread}", task) for thread, task in row.tasks}
            total.rate += row.rate
            total.restarts += row.restarts
        lines.append([*_cells(total)[:-1], ""])
    return text_table(_HEADINGS, lines, _TEXTS)


def _cells(row: Row) -> list[str]:
    return [
        row.process,
        row.pid or "-",
        row.state,
        str(row.threads),
        str(len(row.tasks)),
        f"{row.rate:.0f}",
        "-" if row.lag is None else f"{row.lag:.0f}",
        str(row.restarts),
        duration(row.uptime_s),
    ]


def duration(seconds: float) -> str:
    """The two largest units: 59s, 3m05s, 2h10m, 4d07h."""
    left = int(seconds)
    if left < 60:
        return f"{left}s"
    if left < 3600:
        return f"{left // 60}m{left % 60:02}s"
    if left < 86_400:
        return f"{left // 3600}h{left % 3600 // 60:02}m"
    return f"{left // 86_400}d{left % 86_400 // 3600:02}h"
