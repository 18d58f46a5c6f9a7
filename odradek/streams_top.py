"""The table of `odradek streams top`, from the metrics page of `odradek streams run`."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Final

from odradek.streams.supervisor.status_table import Row, measure_rates, render, rows_of

_TIMEOUT_S: Final = 10.0


class PageError(Exception):
    """The metrics page cannot be read; the message contains the reason."""


class StatusPage:
    """A metrics page that is read again and again: rates are those since the previous time."""

    def __init__(self, address: str) -> None:
        """`address` is a URL, or host:port of one."""
        url = address if "://" in address else f"http://{address}"
        self._url = url if url.count("/") > 2 else f"{url}/metrics"
        self._before: tuple[float, Sequence[Row]] | None = None

    def table(self) -> str:
        """Read the page. Returns the table of its processes. Raises PageError."""
        try:
            with urllib.request.urlopen(self._url, timeout=_TIMEOUT_S) as response:
                rows = rows_of(response.read().decode("utf-8", "replace"))
        except urllib.error.URLError as error:
            raise PageError(f"cannot read {self._url}: {error.reason}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise PageError(f"cannot read {self._url}: {error}") from error
        now = time.monotonic()
        if self._before is not None:
            measure_rates(rows, self._before[1], now - self._before[0])
        self._before = now, rows
        return render(rows)
