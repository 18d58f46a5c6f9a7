"""The views that `odradek top` opens, without a cluster: records that no terminal obeys, configs, logs on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import DataTable, Input

from odradek.admin.configs import ConfigSynonym, DescribedConfig
from odradek.console.messages import RecordQuery
from odradek.console.record_view import record_view
from odradek.protocol.batch import Record, build, stamp
from odradek.records.consumed import ConsumedRecord
from odradek.top.app import ClusterTop
from odradek.top.cells import safe_lines
from odradek.top.config_table import config_tables, config_text
from odradek.top.log_reports import log_report, logs_report, segment_report
from odradek.top.message_screen import MessageScreen, with_search
from odradek.top.record_text import text_of
from odradek.top.reports import Report, facts
from tests.console.samples import sample, topic
from tests.console.workspaces import GivenWorkspace
from tests.top.panes import SIZE, about, answer, context_of, report_rows, table_of

EVIL = "[red]evil[/red]\x1b[2J\x9b31m\u202e\r\n[link=file:///etc]x[/link]"
HOSTILE = ConsumedRecord("orders", 0, 7, 1_000, EVIL.encode(), b'{"a": "\\u001b[2J[bold]"}', ((EVIL, EVIL.encode()),))
BINARY = ConsumedRecord("orders", 0, 8, -1, None, b"\x00\x1b[31m\xff", ())


def controls(text: str) -> list[str]:
    """The characters of a text that a terminal would obey."""
    return [each for each in text if not each.isprintable() and each != "\n"]


def test_a_hostile_record_is_shown_as_text() -> None:
    shown = text_of(record_view(HOSTILE, 1000, indented=True))
    assert controls(shown.plain) == []
    assert "[red]evil[/red]" in shown.plain
    assert "header [red]evil" in shown.plain
    assert '\n{\n  "a": "\\u001b[2J[bold]"\n}' in shown.plain
    assert {str(span.style) for span in shown.spans} <= {"bold", "dim"}, "no markup of the record is a style"
    assert controls(text_of(record_view(BINARY, 1000)).plain) == []
    assert "1b 5b 33 31" in text_of(record_view(BINARY, 1000)).plain
    long = text_of(record_view(replace_value(HOSTILE, b"x" * 2000), 1000))
    assert "the first" in long.plain
    assert safe_lines("a\tb\r\nc\x07").plain == "a    b\nc\ufffd"


def replace_value(record: ConsumedRecord, value: bytes) -> ConsumedRecord:
    return record._replace(value=value)


def test_a_search_is_one_filter() -> None:
    query = RecordQuery("orders", positions={0: 3}, text="before")
    assert with_search(query, "a: b") == replace(query, text="a: b", positions={})
    assert with_search(query, "key: ^k") == replace(query, text="", key="^k", positions={})
    assert with_search(query, "where:value.a > 1").where == "value.a > 1"
    assert with_search(query, "header:a=b").header == "a=b"
    assert not with_search(query, "").is_filtered


def test_configs_have_values_sources_and_documentation() -> None:
    synonyms = (ConfigSynonym("log.retention.ms", EVIL, "STATIC_BROKER_CONFIG"),)
    own = DescribedConfig("retention.ms", EVIL, "DYNAMIC_TOPIC_CONFIG", False, False, "LONG", synonyms, f"Keep {EVIL}")
    secret = DescribedConfig("ssl.key.password", None, "DEFAULT_CONFIG", True, True, "PASSWORD", (), None)
    report = Report(facts("topic"), config_tables([own, secret]))
    (changed,) = table_of(report, "changed configs")
    assert changed[0::2] == ["retention.ms", "this topic", "yes"]
    assert table_of(report, "all configs", "key") == [["ssl.key.password", "hidden", "default", "password", "no"]]
    text = config_text(own).plain
    assert controls(text) == []
    assert "Keep [red]evil" in text
    assert "server.properties: log.retention.ms = [red]evil" in text
    assert "hidden" in config_text(secret).plain


def test_a_log_on_disk_and_its_segment(tmp_path: Path) -> None:
    log = tmp_path / "orders-0"
    log.mkdir()
    data = bytearray(build([Record(each, 1_000 + each, b"k", b"v") for each in range(3)]))
    stamp(data, 0, 0, 3)
    (log / f"{0:020d}.log").write_bytes(bytes(data))
    context = context_of(GivenWorkspace(), [tmp_path])
    assert table_of(logs_report(context), "logs") == [["orders-0", "0", "1", f"{len(data)} B"]]
    assert table_of(log_report(context, 0, "orders-0"), "segments")[0][:2] == ["0", f"{len(data)} B"]
    (batch,) = table_of(segment_report(context, 0, "orders-0", 0), "batches")
    assert batch[:4] + batch[6:7] + batch[9:] == ["0", "0", "2", "3", "3", "data", "holds"]
    data[-1] ^= 1
    (log / f"{0:020d}.log").write_bytes(bytes(data) + bytes(70))
    damaged = segment_report(context, 0, "orders-0", 0)
    assert table_of(damaged, "batches")[0][-1] == "wrong"
    assert "magic 0" in damaged.about.plain
    with pytest.raises(KeyError):
        log_report(context, 0, "absent-0")
    assert "--data-dir" in logs_report(context_of(GivenWorkspace())).about.plain


@pytest.mark.slow
async def test_the_records_of_a_topic_by_keys() -> None:
    workspace = GivenWorkspace(records=[HOSTILE, BINARY])
    workspace.history.add(sample(1000.0, topic("orders")))
    app, queries = ClusterTop(context_of(workspace)), workspace.given.queries
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2", "m")
        assert isinstance(app.screen, MessageScreen)
        assert "topic orders   all partitions   newest   2 of 2 that were read, up to the end" in await about(pilot)
        first, second = report_rows(app)
        assert first[:3] == ["1970-01-01 00:00:01.000Z", "0", "7"]
        assert controls("".join(first + second)) == []
        assert second[3:] == ["null", "00 1b 5b 33 31 6d ff", ""]
        await answer(pilot, "slash", "evil")
        assert "search: evil" in await about(pilot)
        assert queries[-1].text == "evil"
        assert len(report_rows(app)) == 1
        await answer(pilot, "slash", "key:(")
        assert "is not a regular expression" in await about(pilot)
        await pilot.press("escape")
        for key, text, expected in (
            ("o", "12", ("offset", 12)),
            ("t", "1970-01-01T00:00:02", ("time", 2_000)),
            ("p", "3", ("time", 2_000)),
        ):
            await answer(pilot, key, text)
            await about(pilot)
            assert (queries[-1].start, queries[-1].amount) == expected
        assert queries[-1].partition == 3
        await answer(pilot, "t", "soon")
        assert "'soon' is neither" in await about(pilot)
        await pilot.press("u", "w", "b")
        await about(pilot)
        assert (queries[-1].read_committed, queries[-1].raw, queries[-1].start) == (False, True, "beginning")
        await pilot.press("f")
        assert "live" in await about(pilot)
        assert (queries[-1].start, queries[-1].positions) == ("newest", {})
        await pilot.press("enter")
        assert "[red]evil[/red]" in await about(pilot, "text")
        await pilot.press("escape", "escape", "question_mark")
        assert "q" in str(app.screen.query_one("Static").render())
        await pilot.press("escape", "9")
        assert "--data-dir" in await about(pilot)
        assert not app.screen.query_one(Input).display
        assert app.screen.query_one(DataTable).row_count == 0
