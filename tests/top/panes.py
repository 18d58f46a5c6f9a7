"""What the panes of a running `odradek top` show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from odradek.console.log_inspector import LogInspector
from odradek.console.paging import LARGEST_PAGE, Listing
from odradek.console.workspace import Workspace
from odradek.top.app import ClusterTop
from odradek.top.context import TopContext
from odradek.top.reports import Report

SIZE = (100, 24)


def rows(app: ClusterTop, name: str) -> list[list[str]]:
    """The texts of a pane."""
    table = app.query_one(f"#{name}-table", DataTable)
    return [[cell.plain for cell in table.get_row(key)] for key in table.rows]


def status(app: ClusterTop) -> str:
    """The line of state."""
    return str(app.query_one("#status", Static).render())


def context_of(workspace: Workspace, data_dirs: Sequence[Path] = ()) -> TopContext:
    """What the views read from."""
    return TopContext(workspace, LogInspector(data_dirs))


async def about(pilot: Pilot[Any], name: str = "about") -> str:
    """The text of the screen in front, when its reads have ended."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    return str(pilot.app.screen.query_one(f"#{name}", Static).render())


def report_rows(app: ClusterTop) -> list[list[str]]:
    """The texts of the table of the screen in front."""
    table = app.screen.query_one(DataTable)
    return [[cell.plain for cell in table.get_row(key)] for key in table.rows]


def table_of(report: Report, title: str, search: str = "", sort: str = "") -> list[list[str]]:
    """The texts of a table of a report."""
    table = next(each for each in report.tables if each.title == title)
    shown = table.rows(Listing(search, 1, LARGEST_PAGE, sort or table.sorts[0]))
    assert all(len(cells) == len(table.columns) for cells in shown.rows.values())
    return [[cell.plain for cell in cells] for cells in shown.rows.values()]


async def answer(pilot: Pilot[Any], key: str, text: str) -> None:
    """Press a key that asks for something, and answer."""
    await pilot.press(key)
    pilot.app.screen.query_one(Input).value = text
    await pilot.press("enter")
