"""The configs of a topic or a broker as tables: values, where they come from, and their documentation."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from odradek.admin.configs import DescribedConfig
from odradek.console.config_pages import SORTS, SOURCES, configs_page
from odradek.console.paging import Listing
from odradek.top.cells import Cells, PaneRows, safe, safe_lines, shown
from odradek.top.reports import ReportTable, facts
from odradek.top.text_screen import TextScreen

COLUMNS: Final = ("CONFIG", "VALUE", "SOURCE", "TYPE", "CHANGE")


def config_tables(entries: list[DescribedConfig]) -> tuple[ReportTable, ReportTable]:
    """The configs that differ from the default, and all of them."""

    def table(title: str, *, changed: bool) -> ReportTable:
        def rows(listing: Listing) -> PaneRows:
            return shown(configs_page(entries, listing, changed=changed), lambda each: each.name, _cells)

        return ReportTable(title, COLUMNS, rows, lambda key: _documentation(entries, key), tuple(SORTS))

    return table("changed configs", changed=True), table("all configs", changed=False)


def _cells(entry: DescribedConfig) -> Cells:
    source = SOURCES.get(entry.source, entry.source)
    return (
        safe(entry.name),
        value_text(entry),
        safe(source, "" if source == "default" else "yellow"),
        safe(entry.type.lower()),
        Text("no" if entry.read_only else "yes"),
    )


def value_text(entry: DescribedConfig) -> Text:
    """A value in one line; that of a password is not known to clients."""
    if entry.sensitive:
        return Text("hidden", "dim")
    return Text("null", "dim") if entry.value is None else safe(entry.value)


def _documentation(entries: list[DescribedConfig], name: str) -> TextScreen | None:
    entry = next((each for each in entries if each.name == name), None)
    return None if entry is None else TextScreen(lambda _: config_text(entry))


def config_text(entry: DescribedConfig) -> Text:
    """A config with its documentation, and the values that it has at each level."""
    found = facts(entry.name, source=SOURCES.get(entry.source, entry.source), type=entry.type.lower())
    found.append("\n\n").append_text(value_text(entry))
    if entry.documentation:
        found.append("\n\n").append_text(safe_lines(entry.documentation))
    for each in entry.synonyms:
        value = Text("hidden", "dim") if entry.sensitive else safe("null" if each.value is None else each.value)
        found.append("\n").append_text(
            safe(f"{SOURCES.get(each.source, each.source)}: {each.name} = ").append_text(value)
        )
    return found
