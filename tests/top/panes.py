"""What the panes of a running `odradek top` show."""

from __future__ import annotations

from textual.widgets import DataTable, Static

from odradek.top.app import ClusterTop

SIZE = (100, 24)


def rows(app: ClusterTop, name: str) -> list[list[str]]:
    """The texts of a pane."""
    table = app.query_one(f"#{name}-table", DataTable)
    return [[cell.plain for cell in table.get_row(key)] for key in table.rows]


def status(app: ClusterTop) -> str:
    """The line of state."""
    return str(app.query_one("#status", Static).render())
