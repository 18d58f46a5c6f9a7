"""A screen of text that scrolls: one record with all of its content, the documentation of a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from odradek.top.cells import WRONG, safe
from odradek.top.context import READ_ERRORS, reason_of


class TextScreen(Screen[None]):
    """A text that a function returns; it is called in a thread, and again when the user chooses the other form."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q", "app.pop_screen", "Back"), ("w", "raw", "Raw bytes")]
    CSS = "TextScreen VerticalScroll { padding: 0 1; }"

    def __init__(self, read: Callable[[bool], Text], *, has_raw: bool = False) -> None:
        """`read` returns the text, or with True that of the raw bytes; it raises one of READ_ERRORS."""
        super().__init__()
        self._read = read
        self._has_raw = has_raw
        self._is_raw = False

    def compose(self) -> ComposeResult:
        """The text, and the keys."""
        with VerticalScroll():
            yield Static(Text("reading…"), id="text")
        yield Footer()

    def on_mount(self) -> None:
        """Read the text."""
        self.query_one(VerticalScroll).focus()
        self._load()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without a raw form its key is not shown."""
        return action != "raw" or self._has_raw

    def action_raw(self) -> None:
        """Change between the decoded record and its bytes."""
        self._is_raw = not self._is_raw
        self._load()

    def _load(self) -> None:
        is_raw = self._is_raw
        self.run_worker(lambda: self._read_text(is_raw), thread=True)

    def _read_text(self, is_raw: bool) -> None:
        try:
            found = self._read(is_raw)
        except READ_ERRORS as error:
            found = safe(reason_of(error), WRONG)
        self.app.call_from_thread(self._draw, found, is_raw)

    def _draw(self, found: Text, is_raw: bool) -> None:
        if self.is_attached and is_raw == self._is_raw:
            self.query_one("#text", Static).update(found)
