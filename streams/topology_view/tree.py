"""A topology as a tree for terminals, with the measurements of a running application in columns beside it.

    Sub-topology 0                                  RECORDS/S   TIME  LAG
    text
    └─ KSTREAM-SOURCE-0000000000                        1,204  350 ns   12
       └─ KSTREAM-KEY-SELECT-0000000001                 1,204  400 ns    -

A node with several predecessors is below the first of them; below the others its name is followed by an arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from odradek.streams.text_table import text_table
from odradek.streams.topology_view import amounts
from odradek.streams.topology_view.measurements import Measurements
from odradek.streams.topology_view.model import NodeView, StateStoreView, SubtopologyView, TopologyView

_ASCII: Final = str.maketrans({"─": "-", "│": "|", "└": "`", "├": "|", "→": ">", "↑": "^", "…": "...", "µ": "u"})
_STORE_HEADINGS: Final = ("STORE", "KIND", "CHANGELOG", "SUB-TOPOLOGY")
_HINT: Final = "Only sources have measurements: metrics.recording.level=DEBUG measures all nodes."


def as_ascii(text: str) -> str:
    """The text for a terminal without Unicode."""
    return text.translate(_ASCII)


def draw(view: TopologyView, measured: Measurements | None = None) -> str:
    """The text of a topology."""
    parts = [_subtopology(each, view, measured) for each in view.subtopologies]
    if view.stores:
        parts.append(_stores(view, measured))
    if measured is not None:
        if measured.lag:
            parts.append(_lags(measured))
        if not measured.detailed:
            parts.append(_HINT)
    return "\n\n".join(parts)


# ---- nodes


def _subtopology(part: SubtopologyView, view: TopologyView, measured: Measurements | None) -> str:
    title = f"Sub-topology {part.id}" + (" (global, makes no tasks)" if part.is_global else "")
    lines = list(_lines(part))
    if measured is None:
        return "\n".join([title, *(text for text, _ in lines)])
    rows = [[text, *_columns(node, view, measured)] for text, node in lines]
    return text_table((title, "RECORDS/S", "TIME", "LAG"), rows, {title})


def _columns(node: NodeView | None, view: TopologyView, measured: Measurements) -> list[str]:
    """Throughput, time and lag of the node of a line; nothing for lines of topics."""
    if node is None:
        return ["", "", ""]
    found = measured.nodes.get(node.name)
    lag = amounts.count(measured.lag_of(node, view)) if node.kind == "source" else ""
    if found is None:
        return [amounts.ABSENT, amounts.ABSENT, lag]
    return [amounts.rate(found.rate), amounts.duration(found.latency_ns), lag]


def _lines(part: SubtopologyView) -> Iterator[tuple[str, NodeView | None]]:
    """The lines of one sub-topology, with the node that each one is about."""
    nodes = {node.name: node for node in part.nodes}
    drawn: set[str] = set()
    for source in part.nodes:
        if source.kind == "source":
            yield ", ".join(source.topics), None
            yield from _branch(source, nodes, "", True, drawn)


def _branch(
    root: NodeView, nodes: dict[str, NodeView], indent: str, last: bool, drawn: set[str]
) -> Iterator[tuple[str, NodeView | None]]:
    waiting = [(root, indent, last)]
    while waiting:
        node, indent, last = waiting.pop()
        text = f"{indent}{'└─ ' if last else '├─ '}{node.name}"
        if node.name in drawn:
            yield f"{text} ↑", None
            continue
        drawn.add(node.name)
        stores = f" [{', '.join(node.stores)}]" if node.stores else ""
        yield f"{text}{stores}{f' → {node.topics[0]}' if node.kind == 'sink' else ''}", node
        below = indent + ("   " if last else "│  ")
        children = [nodes[name] for name in node.successors]
        waiting += [(child, below, number == 0) for number, child in enumerate(reversed(children))]


# ---- stores and lag


def _stores(view: TopologyView, measured: Measurements | None) -> str:
    rows = [_store_cells(store) for store in view.stores]
    if measured is None:
        return text_table(_STORE_HEADINGS, rows, _STORE_HEADINGS)
    for row, store in zip(rows, view.stores, strict=True):
        found = measured.stores.get(store.name)
        if found is None:
            row += [amounts.ABSENT] * 3
            continue
        keys = ("~" if found.is_estimate else "") + amounts.count(found.keys)
        row += [keys, amounts.size(found.disk_bytes), amounts.size(found.memtable_bytes)]
    return text_table((*_STORE_HEADINGS, "KEYS", "DISK", "MEMTABLES"), rows, _STORE_HEADINGS)


def _store_cells(store: StateStoreView) -> list[str]:
    return [store.name, store.place, "yes" if store.logged else "no", str(store.subtopology)]


def _lags(measured: Measurements) -> str:
    rows = [
        [topic, amounts.count(sum(lags.values())), " ".join(f"{each}:{lags[each]:.0f}" for each in sorted(lags))]
        for topic, lags in sorted(measured.lag.items())
    ]
    return text_table(("TOPIC", "LAG", "BY PARTITION"), rows, {"TOPIC", "BY PARTITION"})
