"""The program of `odradek top`: panes with tables, a search, and the keys.

Another thread takes the samples (`odradek.console.sampler`); the program draws the pane that is shown when there is a
new one, and changes only the cells that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Sparkline, Static, TabbedContent, TabPane

from odradek.console.alerts import AlertLevel, ClusterAlert, alerts_of
from odradek.console.overview import overview_of
from odradek.top.access_report import access_screen
from odradek.top.broker_report import broker_screen
from odradek.top.cells import NO_ROWS, WRONG, clock, safe
from odradek.top.context import TopContext
from odradek.top.group_report import group_screen
from odradek.top.help_screen import HelpScreen
from odradek.top.log_reports import log_screen, logs_screen
from odradek.top.message_screen import MessageScreen
from odradek.top.panes import PANES, Pane, summary
from odradek.top.tables import chosen_key, fill, retitle
from odradek.top.topic_report import TopicScreen
from odradek.top.transaction_reports import transactions_screen

OVERVIEW: Final = "overview"
NAMES: Final = (OVERVIEW, *(pane.name for pane in PANES))
BY_NAME: Final = {pane.name: pane for pane in PANES}
REFRESH_S: Final = 0.5
OF_VIEW: Final = 3
"""What is drawn depends on the pane, the search and the order; the rest is data."""
REPORTS: Final[Mapping[str, tuple[str, Callable[[TopContext], Screen[Any]]]]] = {
    "transactions": ("7", transactions_screen),
    "access": ("8", access_screen),
    "logs": ("9", logs_screen),
}
"""Views with a screen of their own, which is read when it is opened: the key and the screen of each."""
_LEVELS: Final = {AlertLevel.CRITICAL: WRONG, AlertLevel.WARNING: "yellow", AlertLevel.NOTE: ""}


class ClusterTop(App[None]):
    """The program. Its panes are of the samples; the screens that it opens read what they show."""

    TITLE = "odradek top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(key), f"pane('{name}')", name.capitalize(), show=False) for key, name in enumerate(NAMES, 1)),
        *(Binding(key, f"report('{name}')", name.capitalize()) for name, (key, _) in REPORTS.items()),
        ("slash", "search", "Search"),
        ("m", "messages", "Messages"),
        ("l", "log", "Log"),
        ("escape", "clear", "All"),
        ("s", "sort", "Sort"),
        ("p", "pause", "Pause"),
        ("question_mark", "help", "Help"),
        ("q", "quit", "Quit"),
    ]
    CSS = """
    #status { height: 1; padding: 0 1; background: $panel; }
    #find { display: none; height: 3; }
    #rate { height: 4; margin: 0 1; }
    #numbers { height: auto; padding: 1 1 0 1; }
    DataTable { height: 1fr; }
    """

    def __init__(self, context: TopContext) -> None:
        """Takes no sample, and closes nothing."""
        super().__init__()
        self.animation_level = "none"
        self._cluster = context
        self._history = context.workspace.history
        self._searches = dict.fromkeys(NAMES, "")
        self._sorts = {pane.name: pane.sorts[0] for pane in PANES}
        self._paused = False
        self._alerts: list[ClusterAlert] = []
        self._shown = NO_ROWS
        self._status = Text()
        self._drawn: tuple[object, ...] | None = None

    def compose(self) -> ComposeResult:
        """A line of state, the panes, the search, the keys."""
        yield Static(id="status")
        with TabbedContent(id="panes"):
            with TabPane("1 Overview", id=OVERVIEW), Vertical():
                yield Static(id="numbers")
                yield Sparkline([], id="rate")
                yield DataTable(id=f"{OVERVIEW}-table", cursor_type="row")
            for key, pane in enumerate(PANES, 2):
                with TabPane(f"{key} {pane.name.capitalize()}", id=pane.name):
                    yield DataTable(id=f"{pane.name}-table", cursor_type="row", zebra_stripes=True)
        yield Input(placeholder="words that a name contains; Enter keeps them, Escape shows all", id="find")
        yield Footer()

    def on_mount(self) -> None:
        """Give the tables their titles, and draw at an interval."""
        self._table(OVERVIEW).add_columns("ALERT", "WHAT TO DO")
        for pane in PANES:
            retitle(self._table(pane.name), pane.columns)
        self.set_interval(REFRESH_S, self._draw)
        self._table(OVERVIEW).focus()
        self._draw()

    # ---- keys

    def action_pane(self, name: str) -> None:
        """Show a pane."""
        self.query_one(TabbedContent).active = name
        self._table(name).focus()
        self._draw()

    def action_search(self) -> None:
        """Open the search of the pane that is shown."""
        if self._pane is not None:
            find = self.query_one(Input)
            find.display = True
            find.value = self._searches[self._pane.name]
            find.focus()

    def action_clear(self) -> None:
        """End the search: show all rows."""
        self._close_search("")

    def action_sort(self) -> None:
        """The next order of the pane."""
        if self._pane is not None:
            sorts = self._pane.sorts
            at = sorts.index(self._sorts[self._pane.name])
            self._sorts[self._pane.name] = sorts[(at + 1) % len(sorts)]
            self._draw()

    def action_pause(self) -> None:
        """Stop drawing new samples, or begin again."""
        self._paused = not self._paused
        self._draw_status()

    def action_report(self, name: str) -> None:
        """Open one of REPORTS."""
        if len(self.screen_stack) == 1:
            self.push_screen(REPORTS[name][1](self._cluster))

    def action_messages(self) -> None:
        """The records of the topic or the partition at the cursor."""
        name, key = self._chosen
        if name == "topics":
            self.push_screen(MessageScreen(self._cluster, key))
        elif name == "partitions":
            topic, _, partition = key.rpartition("-")
            self.push_screen(MessageScreen(self._cluster, topic, int(partition)))

    def action_log(self) -> None:
        """The log of the partition at the cursor, as it is on disk."""
        name, key = self._chosen
        if name == "partitions":
            self.push_screen(log_screen(self._cluster, key))

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(HelpScreen())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A key that does nothing in the pane is not shown."""
        if not self.query(TabbedContent):
            return True
        pane = self.query_one(TabbedContent).active
        return {"messages": pane in ("topics", "partitions"), "log": pane == "partitions"}.get(action, True)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the user types."""
        if self._pane is not None and event.input.display:
            self._searches[self._pane.name] = event.value
            self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the search, and return to the rows."""
        self._close_search(event.value)

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """A pane that is chosen, also with the mouse."""
        self.refresh_bindings()
        self._draw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the object of a row: a topic, a group, a broker, what an alert is about."""
        key = event.row_key.value or ""
        name = (event.data_table.id or "").removesuffix("-table")
        if name in ("topics", "partitions"):
            self.push_screen(TopicScreen(self._cluster, key if name == "topics" else key.rpartition("-")[0]))
        elif name == "groups":
            self.push_screen(group_screen(self._cluster, key))
        elif name == "brokers":
            self.push_screen(broker_screen(self._cluster, int(key)))
        elif name == OVERVIEW and key.isdigit() and int(key) < len(self._alerts):
            self._go(*target_of(self._alerts[int(key)].path))

    # ---- drawing

    @property
    def _pane(self) -> Pane | None:
        """The pane that is shown; None for the overview."""
        return BY_NAME.get(self.query_one(TabbedContent).active)

    @property
    def _chosen(self) -> tuple[str, str]:
        """The pane, and the key of the row at the cursor; two empty texts without one."""
        pane = self._pane
        key = None if pane is None else chosen_key(self._table(pane.name))
        return ("", "") if pane is None or key is None else (pane.name, key)

    def _table(self, name: str) -> DataTable[Text]:
        return self.query_one(f"#{name}-table", DataTable)

    def _go(self, name: str, search: str) -> None:
        self._searches[name] = search
        self.action_pane(name)

    def _close_search(self, search: str) -> None:
        find = self.query_one(Input)
        find.display = False
        if self._pane is not None:
            self._searches[self._pane.name] = search
            self._table(self._pane.name).focus()
        self._draw()

    def _draw(self) -> None:
        if len(self.screen_stack) > 1 or not self.query("#status"):  # at the end the widgets go before the timer
            return
        self._draw_status()
        pane, history = self._pane, self._history
        name = pane.name if pane is not None else OVERVIEW
        view = (name, self._searches[name], self._sorts.get(name), history.sample, history.disk, history.error)
        if self._drawn is not None:
            compared = OF_VIEW if self._paused else len(view)  # paused, a pane that was not shown is drawn yet
            if all(old is new for old, new in zip(self._drawn[:compared], view, strict=False)):
                return
        self._drawn = view
        if pane is None:
            self._draw_overview()
            return
        self._shown = pane.rows(self._history, self._searches[pane.name], self._sorts[pane.name])
        fill(self._table(pane.name), pane.columns, self._shown)
        self._draw_status()

    def _draw_status(self) -> None:
        sample, pane, text = self._history.sample, self._pane, Text()
        if sample is None:
            text.append("waiting for the cluster" if self._history.error is None else "the cluster does not answer")
        else:
            text.append_text(safe(f"cluster {sample.cluster_id or '-'}  {clock(sample.taken_s)}"))
        if self._history.error is not None:
            text.append("  ").append_text(safe(self._history.error, WRONG))
        if self._paused:
            text.append("  paused", "yellow")
        if pane is not None:
            search, shown = self._searches[pane.name], self._shown
            text.append(f"  {len(shown.rows):,} of {shown.matching:,}{f' ({shown.total:,})' if search else ''}")
            text.append(f"  by {self._sorts[pane.name].removeprefix('-')}", "dim")
            if search:
                text.append_text(safe(f"  search: {search}", "yellow"))
        if text != self._status:
            self._status = text
            self.query_one("#status", Static).update(text)

    def _draw_overview(self) -> None:
        overview = overview_of(self._history)
        self._alerts = alerts_of(self._history)
        if overview is not None:
            self.query_one("#numbers", Static).update(summary(overview))
            self.query_one(Sparkline).data = list(overview.records_over_time)
        table = self._table(OVERVIEW)
        row = table.cursor_row
        table.clear()
        for index, alert in enumerate(self._alerts):
            table.add_row(safe(alert.text, _LEVELS[alert.level]), safe(alert.advice), key=str(index))
        if not self._alerts and overview is not None:
            table.add_row(Text("All is well."), Text(""))
        table.move_cursor(row=row)


def target_of(path: str) -> tuple[str, str]:
    """The pane and its search for the path of a page of the console: `/topics?health=offline`, `/groups/billing`."""
    place, _, query = path.partition("?")
    _, name, *rest = place.split("/", 2)
    if name == "topics" and query.startswith("health="):
        return "partitions", query.removeprefix("health=")
    return (name, rest[0] if rest else "") if name in BY_NAME else (OVERVIEW, "")
