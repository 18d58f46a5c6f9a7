"""Changes the cells of a table that differ, and keeps the cursor on its object."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widgets import DataTable

from odradek.top.cells import PaneRows


def fill(table: DataTable[Text], columns: Sequence[str], shown: PaneRows) -> None:
    """Put the rows into the table, with the cursor on the same object. Titles are the keys of its columns."""
    keys = [key.value for key in table.rows]
    if keys == list(shown.rows):
        for key, cells in shown.rows.items():
            for column, cell in zip(columns, cells, strict=True):
                if not same(table.get_cell(key, column), cell):
                    table.update_cell(key, column, cell)
        return
    at = table.cursor_row
    chosen = keys[at] if 0 <= at < len(keys) else None
    table.clear()
    for key, cells in shown.rows.items():
        table.add_row(*cells, key=key)
    if chosen is not None and chosen in shown.rows:
        table.move_cursor(row=table.get_row_index(chosen))


def retitle(table: DataTable[Text], columns: Sequence[str]) -> None:
    """Give an empty table its columns."""
    table.clear(columns=True)
    for column in columns:
        table.add_column(column, key=column)


def chosen_key(table: DataTable[Text]) -> str | None:
    """The key of the row at the cursor; None in an empty table."""
    if not table.is_valid_row_index(table.cursor_row):
        return None
    return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value


def same(old: Text, new: Text) -> bool:
    """Whether two cells look the same; Text compares without the style of the whole."""
    return old.plain == new.plain and old.style == new.style
