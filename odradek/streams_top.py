"""The table of `odradek streams top`, from the metrics page of `odradek streams run`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from odradek.metrics_source import MetricsSource, PageError
from odradek.streams.supervisor.status_table import Row, measure_rates, render, rows_of


class StatusPage:
    """A metrics page that is read again and again: rates are those since the previous time."""

    def __init__(self, source: MetricsSource) -> None:
        self._source = source
        self._before: tuple[float, Sequence[Row]] | None = None

    def table(self) -> str:
        """Read the page. Returns the table of its processes. Raises PageError."""
        page = self._source.read()
        try:
            rows = rows_of(page)
        except ValueError as error:
            raise PageError(f"cannot read {self._source.url}: {error}") from error
        now = time.monotonic()
        if self._before is not None:
            measure_rates(rows, self._before[1], now - self._before[0])
        self._before = now, rows
        return render(rows)
