"""The timeline: elections, ISR changes, controllers, brokers, topics and rebalances since the console was started."""

from __future__ import annotations

from typing import Final

from odradek.console.timeline import ChangeKind
from odradek.console.web.views import Shown, ViewRequest

_PER_PAGE: Final = 100


def show(request: ViewRequest) -> Shown:
    """The newest events first."""
    kind, listing = request.query.get("kind", ""), request.listing()
    kinds = [each for each in ChangeKind if each.value == kind]
    found = request.history.timeline.newest(kinds, listing.search)
    pages = max(1, -(-len(found) // _PER_PAGE))
    number = min(max(1, listing.page), pages)
    values = {
        "changes": found[(number - 1) * _PER_PAGE : number * _PER_PAGE],
        "count": len(found),
        "kinds": [each.value for each in ChangeKind],
        "kind": kind,
        "search": listing.search,
        "number": number,
        "pages": pages,
        "interval_s": request.settings.interval_s,
    }
    return Shown("timeline.html", values)
