"""Stream applications: the topology of each with its measurements."""

from __future__ import annotations

from markupsafe import Markup

from odradek.console.streams_monitor import StreamsMonitor
from odradek.console.streams_pages import application_page
from odradek.console.web.views import Shown, ViewRequest


class StreamsPages:
    """The pages of the applications that the console was started with."""

    def __init__(self, monitor: StreamsMonitor) -> None:
        self._monitor = monitor

    def show(self, request: ViewRequest) -> Shown:
        """All applications."""
        applications = [application_page(each, f"-{number}") for number, each in enumerate(self._monitor.states())]
        pictures = {each.address: Markup(each.svg) for each in applications}
        return Shown("streams.html", {"applications": applications, "pictures": pictures})
