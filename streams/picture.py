"""SVG picture of a topology: a frame for each sub-topology, with layers from topics to topics.

The layout is Sugiyama's in its simplest form: a successor is below its predecessor; an edge that skips layers gets a
point in each; within a layer boxes are ordered by the middle of their neighbors, a few times down and up.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType
from typing import Final, Literal

from odradek.streams.topology_view.model import NodeView, SubtopologyView, TopologyView

Kind = Literal["topic", "source", "processor", "sink", "store", "point"]
Notes = Mapping[tuple[str, str], str]
"""Short texts for boxes, by their kind and their text."""

CHARACTER: Final = 6.6
"""The width of a character of the font, in px."""
HEIGHT: Final = 26
GAP: Final = 18
LAYER: Final = 62
MARGIN: Final = 24
SWEEPS: Final = 8
NO_NOTES: Final[Notes] = MappingProxyType({})
_FILL: Final = {"topic": "#fff3cd", "source": "#d6e9ff", "processor": "#ffffff", "sink": "#d9f2df", "store": "#f1e3ff"}


@dataclass(slots=True, eq=False)
class Box:
    """A box of the picture; `x` and `y` are its middle."""

    kind: Kind
    text: str
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    above: list[Box] = field(default_factory=list, repr=False)
    below: list[Box] = field(default_factory=list, repr=False)
    note: str = ""
    """A measurement, in gray after the text."""

    @property
    def width(self) -> float:
        """The width with room around the text; a point of an edge has little."""
        if self.kind == "point":
            return 4.0
        return (len(self.text) + (len(self.note) + 2 if self.note else 0)) * CHARACTER + 20


@dataclass(slots=True)
class Frame:
    """One sub-topology, laid out."""

    title: str
    layers: list[list[Box]]
    edges: list[tuple[list[Box], bool]]
    """The boxes along each edge, points included; whether the edge leads to a store."""
    width: float
    height: float


def picture(view: TopologyView, notes: Notes = NO_NOTES, name: str = "") -> str:
    """The SVG of a topology, as text, with a note in each box that has one.

    `name` is a part of the ids within the SVG, which differ where several pictures are in one page: letters, digits and
    hyphens.
    """
    arrow = f"arrow{name}"
    frames = [_frame(part, notes) for part in view.subtopologies]
    width = max((frame.width for frame in frames), default=0) + 2 * MARGIN
    parts: list[str] = []
    left = top = bottom = float(MARGIN)
    for frame in frames:  # side by side as long as they fit
        if left > MARGIN and left + frame.width + MARGIN > width:
            left, top = MARGIN, bottom
        parts += _drawn(frame, left, top, arrow)
        left += frame.width + MARGIN
        bottom = max(bottom, top + frame.height + MARGIN)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{bottom:.0f}" '
        f'viewBox="0 0 {width:.0f} {bottom:.0f}" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="11">'
    )
    defined = (
        f'<defs><marker id="{arrow}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>'
    )
    background = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, defined, background, *parts, "</svg>", ""])


# ---- contents of a frame


def _frame(part: SubtopologyView, notes: Notes) -> Frame:
    """Boxes and edges of one sub-topology, with their positions."""
    title = f"Sub-topology {part.id}" + (" (global store, makes no tasks)" if part.is_global else "")
    edges = _edges(part)
    boxes = list({id(box): box for edge in edges for box in edge[:2]}.values())
    if not boxes:
        boxes = [Box("source", node.name) for node in part.nodes]
    for box in boxes:
        box.note = notes.get((box.kind, box.text), "")
    _choose_layers(boxes, edges)
    routes = [_route(upper, lower, boxes, dashed) for upper, lower, dashed in edges]
    layers: list[list[Box]] = [[] for _ in range(max(box.layer for box in boxes) + 1)]
    for box in boxes:
        layers[box.layer].append(box)
    _order(layers)
    width = max(_place(layers), len(title) * CHARACTER + 2 * GAP)
    return Frame(title, layers, routes, width, len(layers) * LAYER + HEIGHT)


def _edges(part: SubtopologyView) -> list[tuple[Box, Box, bool]]:
    """(from, to, whether it leads to a store), topics and stores among the boxes."""
    found: dict[tuple[str, str], Box] = {}

    def box(kind: Kind, text: str) -> Box:
        return found.setdefault((kind if kind in ("topic", "store") else "node", text), Box(kind, text))

    parents: dict[str, list[NodeView]] = {}
    for node in part.nodes:
        for successor in node.successors:
            parents.setdefault(successor, []).append(node)
    edges: list[tuple[Box, Box, bool]] = []
    for node in part.nodes:
        if node.kind == "source":
            edges += [(Box("topic", topic), box("source", node.name), False) for topic in node.topics]
            continue
        edges += [(box(each.kind, each.name), box(node.kind, node.name), False) for each in parents.get(node.name, ())]
        edges += [(box(node.kind, node.name), box("store", store), True) for store in node.stores]
        edges += [(box(node.kind, node.name), box("topic", topic), False) for topic in node.topics]
    return edges


def _choose_layers(boxes: Iterable[Box], edges: Iterable[tuple[Box, Box, bool]]) -> None:
    """Put each box one layer below its lowest predecessor; the order of the edges allows one pass each."""
    pairs = [(upper, lower) for upper, lower, _ in edges]
    moved = True
    while moved:
        moved = False
        for upper, lower in pairs:
            if lower.layer <= upper.layer:
                lower.layer = upper.layer + 1
                moved = True


def _route(upper: Box, lower: Box, boxes: list[Box], dashed: bool) -> tuple[list[Box], bool]:
    """An edge with a point in each layer that it skips; the points are added to the boxes."""
    points = [Box("point", "", layer) for layer in range(upper.layer + 1, lower.layer)]
    boxes += points
    way = [upper, *points, lower]
    for one, other in itertools.pairwise(way):
        one.below.append(other)
        other.above.append(one)
    return way, dashed


# ---- positions


def _order(layers: list[list[Box]]) -> None:
    """Reduce crossings: move every box to the middle of its neighbors in the layer before, down and up again."""
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers[1:] if down else layers[-2::-1]:
            places = {id(box): place for each in layers for place, box in enumerate(each)}

            def middle(box: Box, places: dict[int, int] = places, down: bool = down) -> float:
                neighbours = box.above if down else box.below
                if not neighbours:
                    return places[id(box)]
                return sum(places[id(each)] for each in neighbours) / len(neighbours)

            layer.sort(key=middle)


def _place(layers: list[list[Box]]) -> float:
    """Choose the positions, centered near the boxes above. Returns the width."""
    for number, layer in enumerate(layers):
        right = 0.0
        for box in layer:
            requested = sum(each.x for each in box.above) / len(box.above) if box.above else 0.0
            box.x = max(requested, right + box.width / 2)
            box.y = number * LAYER + LAYER / 2 + HEIGHT
            right = box.x + box.width / 2 + GAP
    everything = [box for layer in layers for box in layer]
    left = min(box.x - box.width / 2 for box in everything)
    for box in everything:
        box.x += GAP - left
    return max(box.x + box.width / 2 for box in everything) + GAP


# ---- drawing


def _drawn(frame: Frame, left: float, top: float, arrow: str) -> list[str]:
    parts = [
        f'<g transform="translate({left:.1f},{top:.1f})">',
        f'<rect width="{frame.width:.1f}" height="{frame.height:.1f}" rx="8" fill="#fafafa" stroke="#bbb"/>',
        f'<text x="12" y="20" font-weight="bold" fill="#333">{escape(frame.title)}</text>',
    ]
    parts += [_drawn_edge(way, dashed, arrow) for way, dashed in frame.edges]
    parts += [_drawn_box(box) for layer in frame.layers for box in layer if box.kind != "point"]
    return [*parts, "</g>"]


def _drawn_edge(way: Sequence[Box], dashed: bool, arrow: str) -> str:
    """A curve from the lower side of one box to the upper side of another, through its points."""
    first, last = way[0], way[-1]
    before = first.y + HEIGHT / 2
    path = f"M{first.x:.1f},{before:.1f}"
    for upper, lower in itertools.pairwise(way):
        y = lower.y - HEIGHT / 2 if lower is last else lower.y
        half = (before + y) / 2
        path += f" C{upper.x:.1f},{half:.1f} {lower.x:.1f},{half:.1f} {lower.x:.1f},{y:.1f}"
        before = y
    style = 'stroke-dasharray="4 3"' if dashed else f'marker-end="url(#{arrow})"'
    return f'<path d="{path}" fill="none" stroke="#555" {style}/>'


def _drawn_box(box: Box) -> str:
    x, y, width = box.x - box.width / 2, box.y - HEIGHT / 2, box.width
    fill = _FILL[box.kind]
    if box.kind == "store":
        shape = (
            f'<path d="M{x:.1f},{y + 4:.1f} v{HEIGHT - 8} a{width / 2:.1f},4 0 0 0 {width:.1f},0 v-{HEIGHT - 8} '
            f'a{width / 2:.1f},4 0 0 0 -{width:.1f},0 a{width / 2:.1f},4 0 0 0 {width:.1f},0" '
            f'fill="{fill}" stroke="#777"/>'
        )
    else:
        radius = HEIGHT / 2 if box.kind == "topic" else 4
        shape = (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT}" rx="{radius:.0f}" '
            f'fill="{fill}" stroke="#777"/>'
        )
    note = f'  <tspan fill="#555">{escape(box.note)}</tspan>' if box.note else ""
    text = f'<text x="{box.x:.1f}" y="{box.y + 4:.1f}" text-anchor="middle">{escape(box.text)}{note}</text>'
    return f"<g><title>{box.kind}: {escape(box.text)}</title>{shape}{text}</g>"
