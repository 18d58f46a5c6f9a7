"""The first page: the cluster at a glance."""

from __future__ import annotations

from odradek.console.alerts import alerts_of
from odradek.console.overview import overview_of
from odradek.console.web.plots import line_plot
from odradek.console.web.views import Shown, ViewRequest

_RECENT: int = 8
"""Events of the timeline."""


def show(request: ViewRequest) -> Shown:
    """Brokers, controller, throughput, alerts."""
    history = request.history
    values = {
        "overview": overview_of(history),
        "alerts": alerts_of(history),
        "plot": line_plot(list(history.records)),
        "metrics": list(history.metrics.values()),
        "changes": history.timeline.newest()[:_RECENT],
    }
    return Shown("overview.html", values)
