"""The keys of `odradek top`."""

from __future__ import annotations

from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS: Final = (
    ("everywhere", (("Enter", "open what the row is about"), ("/", "search"), ("Escape", "end the search; back"))),
    (
        "panes",
        (
            ("1 to 6", "overview, topics, partitions, groups, brokers, timeline"),
            ("7", "transactions: all, open, hanging"),
            ("8", "ACLs and users"),
            ("9", "logs on disk, of --data-dir"),
            ("m", "records of the topic or partition at the cursor"),
            ("l", "log of the partition at the cursor"),
            ("s", "next order"),
            ("p", "stop drawing new samples, or begin again"),
            ("q", "end the program"),
        ),
    ),
    (
        "a topic, group, broker, transaction, log",
        (
            ("Tab", "next table: partitions, configs, members, log directories, batches, …"),
            ("s", "next order"),
            ("r", "read again"),
            ("m", "records (of a topic)"),
            ("l", "log of the partition at the cursor (of a topic)"),
        ),
    ),
    (
        "records",
        (
            ("n", "newest"),
            ("b", "from the beginning"),
            ("o", "from an offset"),
            ("t", "since a time"),
            ("f", "newest, again each second"),
            ("m", "more: those that follow, or of the newest those before"),
            ("p", "one partition, or all"),
            ("/", "text in key or value; key:REGEX, header:NAME=VALUE, where:CEL"),
            ("u", "records of open and aborted transactions, too"),
            ("w", "raw bytes, or decoded"),
        ),
    ),
)


class HelpScreen(ModalScreen[None]):
    """A list of the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter,question_mark", "app.pop_screen", "Back")]
    CSS = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll { width: 84; max-width: 95%; height: 90%; border: round $primary; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """The list."""
        found = Text()
        for title, keys in KEYS:
            found.append(f"{title}\n", "bold")
            for key, meaning in keys:
                found.append(f"  {key:<8}", "yellow").append(f"{meaning}\n")
        with VerticalScroll():
            yield Static(found)
