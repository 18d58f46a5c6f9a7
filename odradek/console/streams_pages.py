"""Stream applications as rows and pictures: throughput, time and lag of nodes, sizes of stores, lag of topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.console.streams_monitor import ApplicationSample
from odradek.streams.picture import NO_NOTES, picture
from odradek.streams.topology_view import amounts
from odradek.streams.topology_view.annotations import notes_of
from odradek.streams.topology_view.measurements import Measurements, StoreMeasurement
from odradek.streams.topology_view.model import StateStoreView, TopologyView

LARGEST_PICTURE: Final = 600
"""Nodes and edges: the time for a picture grows with their product."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node; texts are `amounts.ABSENT` where there is no measurement."""

    name: str
    kind: str
    subtopology: str
    rate: str
    time: str
    lag: str


@dataclass(frozen=True, slots=True)
class StoreRow:
    """A store."""

    name: str
    place: str
    changelog: str
    keys: str
    disk: str
    memtables: str


@dataclass(frozen=True, slots=True)
class LagRow:
    """A topic, by its name on the metrics page: dots are underscores."""

    topic: str
    lag: str
    partitions: str


@dataclass(frozen=True, slots=True)
class ApplicationPage:
    """One application."""

    address: str
    title: str
    """The application.id, or the address."""
    taken_s: float | None
    error: str | None
    tasks: int
    threads: int
    rate: float | None
    """Records a second that all sources read; None on a first page."""
    lag: float | None
    detailed: bool
    svg: str
    """The picture, with all texts escaped; empty where there is none."""
    too_large: bool
    """Whether a picture would take too long."""
    nodes: list[NodeRow]
    stores: list[StoreRow]
    lags: list[LagRow]


def application_page(state: ApplicationSample, name: str) -> ApplicationPage:
    """The page of an application; `name` distinguishes its picture from others in the same document."""
    measured = state.measured if state.measured is not None else Measurements()
    view = None if state.document is None else state.document.view
    edges = 0 if view is None else sum(1 + len(node.successors) + len(node.stores) for node in view.nodes())
    drawn = view if view is not None and edges <= LARGEST_PICTURE else None
    notes = NO_NOTES if drawn is None or state.measured is None else notes_of(drawn, measured)
    return ApplicationPage(
        address=state.address,
        title=state.address if state.document is None else state.document.application_id,
        taken_s=state.taken_s,
        error=state.error,
        tasks=len(measured.tasks),
        threads=round(measured.threads),
        rate=_rate(view, measured),
        lag=sum(sum(each.values()) for each in measured.lag.values()) if measured.lag else None,
        detailed=measured.detailed,
        svg="" if drawn is None else picture(drawn, notes, name),
        too_large=view is not None and drawn is None,
        nodes=_nodes(view, measured),
        stores=_stores(view, measured),
        lags=[_lag(topic, lags) for topic, lags in sorted(measured.lag.items())],
    )


def _rate(view: TopologyView | None, measured: Measurements) -> float | None:
    if view is None:
        return None
    found = [measured.nodes.get(each.name) for each in view.nodes() if each.kind == "source"]
    rates = [each.rate for each in found if each is not None and each.rate is not None]
    return sum(rates) if rates else None


def _lag(topic: str, lags: Mapping[int, float]) -> LagRow:
    by_partition = " ".join(f"{each}:{lags[each]:.0f}" for each in sorted(lags))
    return LagRow(topic, amounts.count(sum(lags.values())), by_partition)


def _nodes(view: TopologyView | None, measured: Measurements) -> list[NodeRow]:
    """The nodes of the topology; without one, those of the metrics page."""
    if view is None:
        return [
            NodeRow(name, "", "", amounts.rate(each.rate), amounts.duration(each.latency_ns), amounts.ABSENT)
            for name, each in sorted(measured.nodes.items())
        ]
    found = []
    for part in view.subtopologies:
        for node in part.nodes:
            each = measured.nodes.get(node.name)
            found.append(
                NodeRow(
                    node.name,
                    node.kind,
                    str(part.id),
                    amounts.rate(None if each is None else each.rate),
                    amounts.duration(None if each is None else each.latency_ns),
                    amounts.count(measured.lag_of(node, view)),
                )
            )
    return found


def _stores(view: TopologyView | None, measured: Measurements) -> list[StoreRow]:
    if view is None:
        return [_store(None, name, measured.stores[name]) for name in sorted(measured.stores)]
    return [_store(each, each.name, measured.stores.get(each.name, StoreMeasurement())) for each in view.stores]


def _store(view: StateStoreView | None, name: str, measured: StoreMeasurement) -> StoreRow:
    return StoreRow(
        name,
        "" if view is None else view.place,
        "" if view is None else "yes" if view.logged else "no",
        ("~" if measured.is_estimate else "") + amounts.count(measured.keys),
        amounts.size(measured.disk_bytes),
        amounts.size(measured.memtable_bytes),
    )
