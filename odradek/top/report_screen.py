"""The screen of a report: read in a thread, now and again, and drawn as a text, a line and one table at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Sparkline, Static

from odradek.top.cells import NO_ROWS, WRONG, PaneRows, listing_of, safe
from odradek.top.context import READ_ERRORS, reason_of
from odradek.top.reports import Report, ReportTable
from odradek.top.tables import chosen_key, fill, retitle

REFRESH_S: Final = 3.0
SHORTEST_LINE: Final = 2
"""Numbers of a series that is drawn."""
_View = tuple[int, str, int]
"""The number of a table, the search, and the number of its order."""


class ReportScreen(Screen[None]):
    """A report. One thread reads at a time; a search that changes meanwhile is read after it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "table", "Next table", priority=True),
        ("slash", "search", "Search"),
        ("s", "sort", "Sort"),
        ("r", "again", "Read again"),
        ("escape,q", "back", "Back"),
    ]
    CSS = """
    ReportScreen #about { height: auto; padding: 0 1; background: $panel; }
    ReportScreen #line { display: none; height: 3; margin: 0 1; }
    ReportScreen #tables { height: 1; padding: 0 1; }
    ReportScreen #find { display: none; height: 3; }
    ReportScreen DataTable { height: 1fr; }
    """

    def __init__(self, read: Callable[[], Report], refresh_s: float | None = REFRESH_S) -> None:
        """`read` raises one of READ_ERRORS where it fails. None for `refresh_s` reads once, until the user asks."""
        super().__init__()
        self._read = read
        self._refresh_s = refresh_s
        self._report: Report | None = None
        self._table_number = 0
        self._search = ""
        self._sort_number = 0
        self._is_reading = False
        self._is_due = False
        self._titles: tuple[str, ...] = ()
        self._error = ""
        self._rows: tuple[_View | None, PaneRows] = (None, NO_ROWS)

    def compose(self) -> ComposeResult:
        """The text, the line, the titles of the tables, one table, the search and the keys."""
        yield Static(Text("reading…"), id="about")
        yield Sparkline([], id="line")
        yield Static(id="tables")
        yield DataTable(id="rows", cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="words that a row contains; Enter keeps them, Escape shows all", id="find")
        yield Footer()

    def on_mount(self) -> None:
        """Read now, and again later."""
        self.query_one(DataTable).focus()
        self._load()
        if self._refresh_s is not None:
            self.set_interval(self._refresh_s, self._tick)

    # ---- keys

    def action_table(self) -> None:
        """Show the next table."""
        if self._report is not None:
            self._table_number = (self._table_number + 1) % len(self._report.tables)
            self._search, self._sort_number = "", 0
            self._rows = (None, NO_ROWS)
            self._close_search()

    def action_search(self) -> None:
        """Open the search."""
        find = self.query_one(Input)
        find.display = True
        find.value = self._search
        find.focus()

    def action_sort(self) -> None:
        """The next order of the table."""
        if self._table is not None:
            self._sort_number = (self._sort_number + 1) % len(self._table.sorts)
            self._load(anew=False)

    def action_again(self) -> None:
        """Read the object and its table again."""
        self._load()

    def action_back(self) -> None:
        """End the search, or leave the screen."""
        if self.query_one(Input).display or self._search:
            self._search = ""
            self._close_search()
        else:
            self.dismiss()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the user types."""
        if event.input.display and event.value != self._search:
            self._search = event.value
            self._load(anew=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the search, and return to the rows."""
        self._search = event.value
        self._close_search()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open what the row is about."""
        table, key = self._table, event.row_key.value
        screen = None if table is None or table.open is None or key is None else table.open(key)
        if screen is not None:
            self.app.push_screen(screen)

    # ---- reading, in a thread

    @property
    def chosen(self) -> tuple[str, str] | None:
        """The title of the table that is shown, and the key of the row at the cursor."""
        key = chosen_key(self.query_one(DataTable))
        return None if self._table is None or key is None else (self._table.title, key)

    @property
    def _table(self) -> ReportTable | None:
        return None if self._report is None else self._report.tables[self._table_number]

    def _tick(self) -> None:
        if self.is_current and not (self._table is not None and self._table.is_costly):
            self._load()

    def _close_search(self) -> None:
        self.query_one(Input).display = False
        self.query_one(DataTable).focus()
        self._load(anew=False)

    def _load(self, *, anew: bool = True) -> None:
        if self._is_reading:
            self._is_due = True
            return
        self._is_reading, self._is_due = True, False
        view, report = (self._table_number, self._search, self._sort_number), None if anew else self._report
        self.run_worker(lambda: self._read_rows(report, view), thread=True)

    def _read_rows(self, report: Report | None, view: _View) -> None:
        number, search, sort = view
        shown, error = NO_ROWS, ""
        try:
            report = report if report is not None else self._read()
            table = report.tables[number]
            shown = table.rows(listing_of(search, table.sorts[sort]))
        except READ_ERRORS as failed:
            error = reason_of(failed)
        self.app.call_from_thread(self._draw, report, view, shown, error)

    def _draw(self, report: Report | None, view: _View, shown: PaneRows, error: str) -> None:
        self._is_reading = False
        if not self.is_attached:
            return
        self._report = report if report is not None else self._report
        self._error = error
        if self._report is not None and view == (self._table_number, self._search, self._sort_number):
            self._rows = (view, shown)
            columns = self._report.tables[view[0]].columns
            table = self.query_one(DataTable)
            if columns != self._titles:
                retitle(table, columns)
                self._titles = columns
            fill(table, columns, shown)
        self._draw_texts()
        if self._is_due:
            self._load(anew=False)

    def _draw_texts(self) -> None:
        report, about = self._report, Text("reading…") if self._report is None else self._report.about.copy()
        if self._error:
            about = safe(self._error, WRONG) if report is None else about.append("\n").append(safe(self._error, WRONG))
        self.query_one("#about", Static).update(about)
        if report is None:
            return
        line = self.query_one(Sparkline)
        line.display = len(report.series) >= SHORTEST_LINE
        line.data = list(report.series)
        self.query_one("#tables", Static).update(self._state(report))

    def _state(self, report: Report) -> Text:
        """The titles of the tables, and what is shown of the one in front."""
        found, (_, shown) = Text(), self._rows
        for number, each in enumerate(report.tables):
            found.append(f" {each.title} ", "reverse" if number == self._table_number else "dim").append(" ")
        found.append(f" {len(shown.rows):,} of {shown.matching:,}")
        if self._search:
            found.append(f" ({shown.total:,})").append_text(safe(f"  search: {self._search}", "yellow"))
        sort = report.tables[self._table_number].sorts[self._sort_number]
        return found.append(f"  by {sort.removeprefix('-')}", "dim") if sort else found
