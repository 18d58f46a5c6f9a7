"""JSON document of an application's topology, at /topology beside its metrics page: for a console in another process.

    {"application_id": "shop", "topology": {"subtopologies": [...], "stores": [...], "internal_topics": [...]}}

A reader trusts nothing of it: every field is checked, and the order of nodes, which excludes cycles.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.streams.topology_view.model import Kind, NodeView, StateStoreView, SubtopologyView, TopologyView

PATH: Final = "/topology"
_KINDS: Final[dict[str, Kind]] = {"source": "source", "processor": "processor", "sink": "sink"}


@dataclass(frozen=True, slots=True)
class ApplicationDocument:
    """An application.id and the topology of the application."""

    application_id: str
    view: TopologyView

    def text(self) -> str:
        """The document."""
        return json.dumps({"application_id": self.application_id, "topology": self.view.as_json()})


def read_document(text: str) -> ApplicationDocument:
    """The content of a document. Raises ValueError for any other text."""
    try:
        data = json.loads(text)
        return ApplicationDocument(_text(data["application_id"]), _view(data["topology"]))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no document of a topology: {error!r}") from error


def _view(data: Any) -> TopologyView:
    stores = [
        StateStoreView(_text(each["name"]), _text(each["place"]), each["logged"] is True, int(each["subtopology"]))
        for each in data["stores"]
    ]
    parts = tuple(_subtopology(each) for each in data["subtopologies"])
    return TopologyView(parts, tuple(stores), frozenset(_texts(data["internal_topics"])))


def _subtopology(data: Any) -> SubtopologyView:
    nodes = tuple(
        NodeView(
            _text(each["name"]),
            _KINDS[_text(each["kind"])],
            _texts(each["topics"]),
            _texts(each["stores"]),
            _texts(each["successors"]),
        )
        for each in data["nodes"]
    )
    _check_order(nodes)
    return SubtopologyView(int(data["id"]), data["is_global"] is True, nodes)


def _check_order(nodes: Sequence[NodeView]) -> None:
    """Raise ValueError unless each node has a name of its own and its successors are after it."""
    places = {node.name: place for place, node in enumerate(nodes)}
    if not nodes or len(places) < len(nodes):
        raise ValueError("no document of a topology: a sub-topology without nodes, or two nodes of one name")
    for place, node in enumerate(nodes):
        if any(places.get(name, -1) <= place for name in node.successors):
            raise ValueError(f"no document of a topology: the successors of {node.name!r} are not after it")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list")
    return tuple(_text(each) for each in values)
