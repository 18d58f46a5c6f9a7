"""The records of a topic in `odradek top`: the newest, from an offset, since a time, live, and what a search finds.

They are read as on the console's page (`odradek.console.messages`), by the same keys of a query.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from odradek.console.messages import RecordPage, RecordQuery
from odradek.console.moments import moment_ms
from odradek.console.record_view import RecordView, record_view, time_text
from odradek.top.cells import WRONG, Cells, PaneRows, number, safe
from odradek.top.context import READ_ERRORS, TopContext, reason_of
from odradek.top.record_text import read_record, short
from odradek.top.tables import fill, retitle
from odradek.top.text_screen import TextScreen

COLUMNS: Final = ("TIME", "PARTITION", "OFFSET", "KEY", "VALUE", "HEADERS")
LIMIT: Final = 100
TAIL_S: Final = 1.0
ASKED: Final[Mapping[str, str]] = {
    "offset": "offset to begin at",
    "time": "how long ago or when, in UTC: 2h, or 2026-01-31T12:00:00",
    "partition": "number of a partition; nothing for all",
    "search": "text in key or value; or key:REGEX, header:NAME=VALUE, where:value.amount > 100.0 (CEL)",
}
"""What a key of the screen asks for, and the hint."""
_FILTERS: Final = ("key", "header", "where")


class MessageScreen(Screen[None]):
    """The records of a topic, or of one of its partitions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("n", "newest", "Newest"),
        ("b", "beginning", "Beginning"),
        ("o", "ask('offset')", "Offset"),
        ("t", "ask('time')", "Time"),
        ("f", "tail", "Tail"),
        ("slash", "ask('search')", "Search"),
        ("m", "more", "More"),
        ("p", "ask('partition')", "Partition"),
        ("u", "uncommitted", "Uncommitted"),
        ("w", "raw", "Raw"),
        ("escape,q", "back", "Back"),
    ]
    CSS = """
    MessageScreen #about { height: auto; padding: 0 1; background: $panel; }
    MessageScreen #ask { display: none; height: 3; }
    MessageScreen DataTable { height: 1fr; }
    """

    def __init__(
        self, context: TopContext, topic: str, partition: int | None = None, start: str = "newest", amount: int = 0
    ) -> None:
        """None for all partitions; `start` and `amount` are those of a `RecordQuery`."""
        super().__init__()
        self._cluster = context
        self._query = RecordQuery(topic, partition, start, amount, LIMIT)
        self._search = ""
        self._is_tail = False
        self._is_reading = False
        self._is_due = False
        self._asked = ""
        self._page: RecordPage | None = None
        self._error = ""

    def compose(self) -> ComposeResult:
        """A line about the records, the records, a question, the keys."""
        yield Static(Text("reading…"), id="about")
        yield DataTable(id="rows", cursor_type="row", zebra_stripes=True)
        yield Input(id="ask")
        yield Footer()

    def on_mount(self) -> None:
        """Read the records."""
        table = self.query_one(DataTable)
        retitle(table, COLUMNS)
        table.focus()
        self._load()
        self.set_interval(TAIL_S, self._tick)

    # ---- keys

    def action_newest(self) -> None:
        """The newest records."""
        self._begin("newest")

    def action_beginning(self) -> None:
        """The oldest records."""
        self._begin("beginning")

    def action_tail(self) -> None:
        """The newest records, again each second; or stop."""
        is_tail = not self._is_tail
        self._begin("newest")
        self._is_tail = is_tail
        self._draw_about()

    def action_more(self) -> None:
        """The records after those that are shown; of the newest, those before."""
        page = self._page
        if page is None:
            return
        if self._query.start == "newest" and not self._query.positions:
            self._is_tail = False
            if page.older:
                self._change(replace(self._query, before=page.older))
        elif not page.at_end:
            self._change(replace(self._query, positions=page.positions))

    def action_uncommitted(self) -> None:
        """Read records of open and aborted transactions, too; or leave them out."""
        self._change(replace(self._query, read_committed=not self._query.read_committed))

    def action_raw(self) -> None:
        """Decode nothing, or decode again."""
        self._change(replace(self._query, raw=not self._query.raw))

    def action_ask(self, name: str) -> None:
        """Ask for one of ASKED."""
        self._asked = name
        ask = self.query_one(Input)
        ask.placeholder, ask.value = ASKED[name], self._search if name == "search" else ""
        ask.display = True
        ask.focus()

    def action_back(self) -> None:
        """Close the question, end the search, or leave the screen."""
        if self.query_one(Input).display:
            self._close()
        elif self._search:
            self._answer("search", "")
        else:
            self.dismiss()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The answer to a question."""
        self._close()
        try:
            self._answer(self._asked, event.value.strip())
        except ValueError as error:
            self._error = str(error)
            self._draw_about()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open a record."""
        partition, _, offset = (event.row_key.value or "").partition("-")
        place, raw = (self._query.topic, int(partition)), self._query.raw
        self.app.push_screen(
            TextScreen(lambda other: read_record(self._cluster, place, int(offset), raw=raw != other), has_raw=True)
        )

    # ---- the query

    def _answer(self, asked: str, text: str) -> None:
        """Read with the answer. Raises ValueError."""
        if asked == "offset":
            self._begin("offset", _whole(text))
        elif asked == "time":
            self._begin("time", moment_ms(text, int(time.time() * 1000)))
        elif asked == "partition":
            partition = _whole(text) if text else None
            self._change(replace(self._query, partition=partition, positions={}, before={}))
        else:
            self._search = text
            self._change(with_search(self._query, text))

    def _begin(self, start: str, amount: int = 0) -> None:
        self._is_tail = False
        self._change(replace(self._query, start=start, amount=amount, positions={}, before={}))

    def _change(self, query: RecordQuery) -> None:
        self._query = query
        self._load()

    def _close(self) -> None:
        self.query_one(Input).display = False
        self.query_one(DataTable).focus()

    # ---- reading, in a thread

    def _tick(self) -> None:
        if self._is_tail and self.is_current and not self._is_reading:
            self._load()

    def _load(self) -> None:
        if self._is_reading:
            self._is_due = True
            return
        self._is_reading, self._is_due = True, False
        query = self._query
        self.run_worker(lambda: self._browse(query), thread=True)

    def _browse(self, query: RecordQuery) -> None:
        page, error = None, ""
        try:
            with self._cluster.workspace.client() as client:
                page = self._cluster.workspace.browser.browse(client, query)
        except READ_ERRORS as failed:
            error = reason_of(failed)
        views = () if page is None else tuple(record_view(each) for each in page.records)
        self.app.call_from_thread(self._draw, query, page, views, error)

    def _draw(self, query: RecordQuery, page: RecordPage | None, views: tuple[RecordView, ...], error: str) -> None:
        self._is_reading = False
        if not self.is_attached:
            return
        if query == self._query:
            self._error = error
            if page is not None:
                self._page = page
                rows = {f"{each.record.partition}-{each.record.offset}": _cells(each) for each in views}
                fill(self.query_one(DataTable), COLUMNS, PaneRows(rows, len(rows), page.scanned))
            self._draw_about()
        if self._is_due:
            self._load()

    def _draw_about(self) -> None:
        query, page = self._query, self._page
        start = {"offset": f"from offset {query.amount}", "time": f"since {time_text(query.amount)}"}
        where = "all partitions" if query.partition is None else f"partition {query.partition}"
        found = safe(f"topic {query.topic}", "bold").append(f"   {where}   {start.get(query.start, query.start)}")
        if page is not None:
            end = ", up to the end" if page.at_end else ""
            found.append(f"   {len(page.records):,} of {page.scanned:,} that were read{end}")
        for is_on, name in (
            (self._is_tail, "live"),
            (not query.read_committed, "uncommitted, too"),
            (query.raw, "raw bytes"),
        ):
            found.append(f"   {name}" if is_on else "", "yellow")
        if self._search:
            found.append_text(safe(f"   search: {self._search}", "yellow"))
        reasons = dict.fromkeys(reason for each in page.records for _, reason in each.failures) if page else {}
        for reason in [self._error, *reasons][: 1 + 3]:
            if reason:
                found.append("\n").append_text(safe(reason, WRONG))
        self.query_one("#about", Static).update(found)


def with_search(query: RecordQuery, text: str) -> RecordQuery:
    """The query with the filter that the user typed, and no other, from its start."""
    name, colon, rest = text.partition(":")
    given = {name: rest.strip()} if colon and name in _FILTERS else {"text": text}
    text, key, header, where = (given.get(each, "") for each in ("text", *_FILTERS))
    return replace(query, text=text, key=key, header=header, where=where, positions={}, before={})


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _cells(view: RecordView) -> Cells:
    record = view.record
    headers = Text("  ").join(safe(f"{name}=").append_text(short(content)) for name, content in view.headers[:8])
    return (
        Text(view.time or "-"),
        number(record.partition),
        number(record.offset),
        short(view.key),
        short(view.value, "tombstone"),
        headers,
    )
