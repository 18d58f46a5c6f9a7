"""Plots as SVG paths, made by the server: a line over time in a box of fixed units, which CSS scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 600.0
HEIGHT: Final = 120.0
MOST_POINTS: Final = 240


@dataclass(frozen=True, slots=True)
class LinePlot:
    """A line and the area below it; coordinates are in a box of `width` by `height`. Empty without two points."""

    line: str
    area: str
    width: float
    height: float
    lowest: float
    highest: float
    seconds: float
    """From the first point to the last."""


def line_plot(points: Sequence[tuple[float, float]], width: float = WIDTH, height: float = HEIGHT) -> LinePlot:
    """The plot of (time in seconds, number) from zero up to the largest number."""
    if len(points) < 2:
        return LinePlot("", "", width, height, 0, 0, 0)
    shown = _thinned(points)
    first, last = shown[0][0], shown[-1][0]
    span = (last - first) or 1.0
    highest = max(value for _, value in shown)
    scale = highest or 1.0
    places = [
        (round((time - first) / span * width, 1), round(height - value / scale * (height - 2) - 1, 1))
        for time, value in shown
    ]
    line = "M" + "L".join(f"{x:g},{y:g}" for x, y in places)
    area = f"{line}L{places[-1][0]:g},{height:g}L{places[0][0]:g},{height:g}Z"
    return LinePlot(line, area, width, height, min(value for _, value in shown), highest, last - first)


def spark_line(values: Sequence[float], width: float = 120.0, height: float = 24.0) -> LinePlot:
    """The plot of numbers at equal distances."""
    return line_plot([(float(number), value) for number, value in enumerate(values)], width, height)


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most `MOST_POINTS` of them: of each group the largest, so that no peak is lost."""
    if len(points) <= MOST_POINTS:
        return points
    size = -(-len(points) // (MOST_POINTS - 1))
    groups = [points[start : start + size] for start in range(0, len(points) - 1, size)]
    return [*(max(group, key=lambda each: each[1]) for group in groups), points[-1]]
