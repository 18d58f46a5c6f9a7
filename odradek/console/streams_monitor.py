"""Reads the pages of running stream applications at an interval, in a thread for each, so that no page of the console
waits for an application.

Only the addresses that the operator has named are requested; size and time of an answer are bounded, and the pause
after it is at least `IDLE_FACTOR` times as long as it took.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from odradek.console.sampler import IDLE_FACTOR
from odradek.metrics_source import METRICS_PATH, PageError, read_page
from odradek.streams.topology_view.document import PATH, ApplicationDocument, read_document
from odradek.streams.topology_view.measurements import Measurements, measurements_of

LOG = logging.getLogger(__name__)
TIMEOUT_S: Final = 3.0
LARGEST_PAGE: Final = 16 * 1024 * 1024
LARGEST_DOCUMENT: Final = 1024 * 1024
CLOSE_S: Final = 2 * TIMEOUT_S
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class ApplicationSample:
    """What is known of the application at an address. After an error the data is that of the last answer."""

    address: str
    taken_s: float | None = None
    """The time of the data; None without any."""
    document: ApplicationDocument | None = None
    """None where the server has no topology, as the JMX exporter of a Java application has none."""
    measured: Measurements | None = None
    error: str | None = None
    """Why the latest answer is missing."""


class StreamsMonitor:
    """Keeps the states of applications up to date while it runs. Any thread may use it."""

    def __init__(self, addresses: Sequence[str], interval_s: float) -> None:
        """`addresses` are those of `metrics_source.address_of`."""
        self._interval_s = interval_s
        self._states = {each: ApplicationSample(each) for each in addresses}
        self._read_at: dict[str, float] = {}
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(each,), name=f"streams-{each}", daemon=True)
            for each in self._states
        ]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Read until the end of the block, and until the answers that the threads then await."""
        for each in self._threads:
            each.start()
        try:
            yield
        finally:
            self._closed.set()
            deadline = time.monotonic() + CLOSE_S
            for each in self._threads:
                each.join(max(0.0, deadline - time.monotonic()))

    def states(self) -> list[ApplicationSample]:
        """The applications, in the order of their addresses on the command line."""
        return list(self._states.values())

    def read(self, address: str) -> None:
        """Read the pages of one application now. One thread at a time may do so for an address."""
        before = self._states[address]
        try:
            document = _document(address)
            measured = measurements_of(read_page(address + METRICS_PATH, timeout_s=TIMEOUT_S, largest=LARGEST_PAGE))
        except PageError as error:
            self._fail(before, str(error))
            return
        except (ValueError, KeyError) as error:
            self._fail(before, f"cannot read {address}: {error}")
            return
        now, earlier = time.monotonic(), self._read_at.get(address)
        if before.measured is not None and earlier is not None:
            measured.measure_rates(before.measured, now - earlier)
        self._read_at[address] = now
        self._states[address] = ApplicationSample(address, time.time(), document, measured)

    def _fail(self, before: ApplicationSample, error: str) -> None:
        if before.error is None:
            LOG.info("cannot read application address=%s error=%s", before.address, error)
        self._states[before.address] = ApplicationSample(
            before.address, before.taken_s, before.document, before.measured, error
        )

    def _run(self, address: str) -> None:
        while not self._closed.is_set():
            begin_s = time.monotonic()
            self.read(address)
            taken_s = time.monotonic() - begin_s
            self._closed.wait(max(self._interval_s - taken_s, IDLE_FACTOR * taken_s))


def _document(address: str) -> ApplicationDocument | None:
    """The topology of an application; None where its server has none. Raises PageError and ValueError."""
    try:
        return read_document(read_page(address + PATH, timeout_s=TIMEOUT_S, largest=LARGEST_DOCUMENT))
    except PageError as error:
        if error.status == _NOT_FOUND:
            return None
        raise
