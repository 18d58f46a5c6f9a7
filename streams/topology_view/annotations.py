"""Measurements as notes beside the boxes of a topology's picture."""

from __future__ import annotations

from odradek.streams.picture import Notes
from odradek.streams.topology_view import amounts
from odradek.streams.topology_view.measurements import Measurements
from odradek.streams.topology_view.model import TopologyView


def notes_of(view: TopologyView, measured: Measurements) -> Notes:
    """The throughput and time of nodes, the lag of topics, and the sizes of stores."""
    notes: dict[tuple[str, str], str] = {}
    for node in view.nodes():
        found = measured.nodes.get(node.name)
        if found is not None and found.rate is not None:
            time = f", {amounts.duration(found.latency_ns)}" if found.latency_ns is not None else ""
            notes[node.kind, node.name] = f"{amounts.rate(found.rate)}/s{time}"
        lag = measured.lag_of(node, view)
        if lag is not None and len(node.topics) == 1:
            notes["topic", node.topics[0]] = f"lag {amounts.count(lag)}"
    for name, store in measured.stores.items():
        disk = f", {amounts.size(store.disk_bytes)}" if store.disk_bytes is not None else ""
        notes["store", name] = f"{'~' if store.is_estimate else ''}{amounts.count(store.keys)} keys{disk}"
    return notes
