"""Metrics page of all processes: the metrics of every client with the label `process`, and those of the supervisor.

The names of a client's metrics are those of `streams/metrics_page.py`, so dashboards of one process serve for several.
A process that does not answer in time is absent from them for this scrape, not from the supervisor's own metrics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from odradek.streams.page_server import serve_pages
from odradek.streams.supervisor.supervisor import ProcessStatus, Supervisor

SCRAPE_TIMEOUT_S: Final = 2.0
"""How long a process has for its metrics: shorter than the 10 s that Prometheus waits for the page."""
PREFIX: Final = "odradek_streams_process"

Status = Callable[[float], Awaitable[Sequence[ProcessStatus]]]
"""The processes, given a timeout in seconds: `Supervisor.status`."""


class SupervisorCollector(Collector):
    """Collects the metrics of all processes at each scrape, in the thread of the scrape."""

    def __init__(self, status: Status, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` runs `status`."""
        self._status = status
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """One family for each name. Raises TimeoutError where the loop does not run any more."""

        async def status() -> Sequence[ProcessStatus]:
            return await self._status(SCRAPE_TIMEOUT_S)

        found = asyncio.run_coroutine_threadsafe(status(), self._loop).result(2 * SCRAPE_TIMEOUT_S)
        yield from _of_supervisor(found)
        families: dict[str, Metric] = {}
        for each in found:
            for name, labels, value in each.samples:
                family = families.get(name)
                if family is None:
                    family = families[name] = Metric(name, name, "gauge")
                family.add_sample(name, {"process": str(each.process), **labels}, value)
        yield from families.values()

    def describe(self) -> list[Metric]:
        """Describes no metric in advance: names come and go with tasks."""
        return []


def _of_supervisor(found: Sequence[ProcessStatus]) -> Iterator[Metric]:
    up = GaugeMetricFamily(f"{PREFIX}_up", "1 while a process runs", labels=["process", "pid"])
    state = GaugeMetricFamily(f"{PREFIX}_state", "1 for the state of the client", labels=["process", "state"])
    uptime = GaugeMetricFamily(f"{PREFIX}_uptime_seconds", "Since the start of the process", labels=["process"])
    restarts = CounterMetricFamily(f"{PREFIX}_restarts", "Starts after an unexpected end", labels=["process"])
    for each in found:
        number = str(each.process)
        up.add_metric([number, "" if each.pid is None else str(each.pid)], each.pid is not None)
        state.add_metric([number, each.state], 1)
        uptime.add_metric([number], each.uptime_s)
        restarts.add_metric([number], each.restarts)
    return iter((up, state, uptime, restarts))


@contextmanager
def serve_processes(supervisor: Supervisor, loop: asyncio.AbstractEventLoop, host: str, port: int) -> Iterator[int]:
    """Serve the page, and the topology beside it, until the end of the block, in threads of its own. `loop` runs the
    supervisor. Yields the port; 0 selects a free one.

    Raises OSError where the address is not available.
    """
    registry = CollectorRegistry()
    registry.register(SupervisorCollector(supervisor.status, loop))
    with serve_pages(registry, supervisor.document, host, port) as chosen:
        yield chosen
