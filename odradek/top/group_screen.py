"""One group in `odradek top`: how far it is behind in each partition, and which member reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from odradek.console.group_pages import GroupDetail
from odradek.console.sample import CLIENT_ERRORS
from odradek.top.panes import number, safe

COLUMNS: Final = ("TOPIC", "PARTITION", "OFFSET", "LOG END", "LAG", "CLIENT", "HOST", "MEMBER")
REFRESH_S: Final = 2.0


class GroupScreen(ModalScreen[None]):
    """The group, read again every two seconds in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter", "app.pop_screen", "Back")]
    CSS = """
    GroupScreen { align: center middle; }
    #group { width: 95%; height: 90%; border: round $primary; padding: 0 1; }
    """

    def __init__(self, group_id: str, read: Callable[[str], GroupDetail]) -> None:
        """`read` reads the group; it raises what the client raises."""
        super().__init__()
        self._group_id = group_id
        self._read = read
        self._reads = False

    def compose(self) -> ComposeResult:
        """A line about the group, and its partitions."""
        with Vertical(id="group"):
            yield Static(Text("reading…"), id="about")
            yield DataTable(id="lags", cursor_type="row")

    def on_mount(self) -> None:
        """Read the group now, and again later."""
        self.query_one(DataTable).add_columns(*COLUMNS)
        self._again()
        self.set_interval(REFRESH_S, self._again)

    def _again(self) -> None:
        if not self._reads:
            self._reads = True
            self.run_worker(self._load, thread=True)

    def _load(self) -> None:
        try:
            found: GroupDetail | str = self._read(self._group_id)
        except CLIENT_ERRORS as error:
            found = str(error)
        self.app.call_from_thread(self._draw, found)

    def _draw(self, found: GroupDetail | str) -> None:
        self._reads = False
        about = self.query_one("#about", Static)
        if isinstance(found, str):
            about.update(safe(f"group {self._group_id}: {found}"))
            return
        group, table = found.group, self.query_one(DataTable)
        text = f"group {group.group_id}   {group.state}   {len(group.members)} members   lag {found.lag:,}"
        about.update(safe(text, "bold"))
        row = table.cursor_row
        table.clear()
        for each in found.partitions:
            member = each.member
            table.add_row(
                safe(each.topic),
                number(each.partition),
                number(each.committed_offset),
                number(each.log_end_offset),
                number(each.lag),
                safe(member.client_id if member else "-"),
                safe(member.host if member else "-"),
                safe(member.member_id if member else "-"),
            )
        table.move_cursor(row=row)
