"""One record as text for a terminal: where it is, key, value and headers, without a character that controls it."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from odradek.console.record_view import ContentView, RecordView, record_view
from odradek.protocol.topic_partition import TopicPartition
from odradek.top.cells import WRONG, safe, safe_lines
from odradek.top.context import TopContext
from odradek.top.reports import facts

LONGEST: Final = 64 * 1024
"""Characters of a key, a value or a header; a terminal draws no more of them in time."""


def read_record(context: TopContext, place: TopicPartition, offset: int, *, raw: bool) -> Text:
    """The record at an offset. Raises what the client raises, and LookupError where there is none."""
    with context.workspace.client() as client:
        record = context.workspace.browser.record_at(client, place, offset, raw=raw)
    if record is None:
        raise LookupError(f"record at offset {offset}: compaction or retention removed it, or it is a marker")
    return text_of(record_view(record, LONGEST, indented=True))


def text_of(view: RecordView) -> Text:
    """A record with all of its content."""
    record = view.record
    found = facts(f"{record.topic}-{record.partition}", offset=record.offset, time=view.time or "-")
    for title, content in (("key", view.key), ("value", view.value)):
        found.append_text(_part(title, content))
    for name, content in view.headers:
        found.append_text(_part(f"header {name}", content))
    return found


def _part(title: str, content: ContentView) -> Text:
    found = Text("\n\n").append_text(safe(title, "bold"))
    size = "" if content.kind in ("null", "empty") else f", {content.size:,} bytes"
    found.append_text(safe(f"  {content.kind}{size}{f', {content.schema}' if content.schema else ''}", "dim"))
    if content.failure:
        found.append("\n").append_text(safe(content.failure, WRONG))
    if content.text:
        found.append("\n").append_text(safe_lines(content.text))
    if content.is_cut:
        found.append(f"\n… the first {LONGEST:,} characters", "yellow")
    return found


def short(content: ContentView, null: str = "null") -> Text:
    """A key or a value in one line of a list."""
    if content.kind in ("null", "empty"):
        return Text(null if content.kind == "null" else "empty", "dim")
    text = " ".join(content.text.split("\n")) if content.kind == "text" else content.text
    if content.kind == "binary":
        text = " ".join(line[10:58].strip() for line in content.text.split("\n"))
    return safe(text + ("…" if content.is_cut else ""), WRONG if content.failure else "")
