"""The examples in the driver: the output of each topology for a few records."""

from __future__ import annotations

import importlib
import itertools
import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.streams import JSON, LONG, STRING, Window, Windowed
from odradek.streams.driver import TopologyTestDriver
from odradek.streams.examples import clicks, dead_letters, running, snapshot, stocks, transfer, word_count
from odradek.streams.serdes import BYTES

NAMES: Final = (
    "word_count",
    "stocks",
    "clicks",
    "transfer",
    "snapshot",
    "snapshot_topic",
    "queries_http",
    "dead_letters",
)


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_a_session(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example = importlib.import_module(f"odradek.streams.examples.{name}")
    with pytest.raises(SystemExit) as ended:
        example.main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert f"\n    python -m odradek.streams.examples.{name}" in printed
    assert "--bootstrap-servers" in printed
    assert "--seconds" in printed


# ---- word count


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("all streams lead to Kafka", ["all", "streams", "lead", "to", "kafka"]),
        ("join, kafka: summit!", ["join", "kafka", "summit"]),
        (" leading", ["", "leading"]),
        ("", [""]),
        (", ,", []),
        ("größe", ["gr", "e"]),  # Java's \W is about ASCII
    ],
)
def test_words_are_split_as_in_java(line: str, words: list[str]) -> None:
    assert word_count.words_of(line) == words


def test_word_count() -> None:
    with TopologyTestDriver(word_count.topology(), word_count.CONFIG) as driver:
        lines = driver.create_input_topic(word_count.INPUT, STRING, STRING)
        counts = driver.create_output_topic(word_count.OUTPUT, STRING, LONG)
        lines.pipe_input("all streams lead to kafka")
        lines.pipe_input("hello kafka streams")
        notified = counts.read_key_values_to_list()
    assert notified == [
        *[(word, 1) for word in ("all", "streams", "lead", "to", "kafka", "hello")],
        ("kafka", 2),
        ("streams", 2),
    ]


def test_word_count_by_windows() -> None:
    with TopologyTestDriver(word_count.topology(word_count.duration("5s")), word_count.CONFIG) as driver:
        lines = driver.create_input_topic(word_count.INPUT, STRING, STRING)
        counts = driver.create_output_topic(word_count.WINDOWED_OUTPUT, STRING, LONG)
        for line, at in [("a b", 0), ("a", 4999), ("a", 5000)]:
            lines.pipe_input(None, line, timestamp=at)
        notified = counts.read_key_values_to_list()
    assert notified == [("[a@0/5000]", 1), ("[b@0/5000]", 1), ("[a@0/5000]", 2), ("[a@5000/10000]", 1)]


@pytest.mark.parametrize(("text", "ms"), [("250ms", 250), ("5s", 5000), ("2m", 120_000), ("1h", 3_600_000)])
def test_durations(text: str, ms: int) -> None:
    assert word_count.duration(text) == timedelta(milliseconds=ms)


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "-5s", "0s"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=text or "^$"):
        word_count.duration(text)


# ---- stocks


def test_stocks_emits_each_window_once() -> None:
    with TopologyTestDriver(stocks.topology()) as driver:
        trades = driver.create_input_topic(stocks.TRADES, STRING, JSON)
        notified = driver.create_output_topic(stocks.STATISTICS, stocks.WINDOW_KEYS, JSON)
        for at, price in [(10_000, 4.0), (10_500, 1.0), (14_000, 7.0)]:
            trades.pipe_input("KAFK", {"price": price, "size": 1}, timestamp=at)
        emitted = [record.key.window for record in notified.read_records_to_list() if record.key is not None]
        assert all(window.end <= 13_000 for window in emitted)
        trades.pipe_input("ODRA", {"price": 1.0, "size": 1}, timestamp=16_000)
        last = notified.read_records_to_list()[-1]
        assert last.key == Windowed("KAFK", Window(10_000, 15_000))
        assert last.value == {"count": 3, "minimum": 1.0, "average": 4.0}
        trades.pipe_input("KAFK", {"price": 0.5, "size": 1}, timestamp=14_999)  # a second late, and no more
        trades.pipe_input("KAFK", {"price": 0.5, "size": 1}, timestamp=9_000)
        assert driver.dropped_records > 0
        trades.pipe_input("ODRA", {"price": 1.0, "size": 1}, timestamp=20_000)
        windows = {record.key: record.value for record in notified.read_records_to_list()}
    assert windows[Windowed("KAFK", Window(11_000, 16_000))] == {"count": 2, "minimum": 0.5, "average": 3.75}
    assert Windowed("KAFK", Window(10_000, 15_000)) not in windows


# ---- clicks


def test_clicks() -> None:
    with TopologyTestDriver(clicks.topology()) as driver:
        views = driver.create_input_topic(clicks.VIEWS, STRING, JSON)
        profiles = driver.create_input_topic(clicks.PROFILES, STRING, JSON)
        searches = driver.create_input_topic(clicks.SEARCHES, STRING, JSON)
        activity = driver.create_output_topic(clicks.ACTIVITY, STRING, JSON)
        profiles.pipe_input("k", {"name": "Josef K.", "city": "Prague"}, timestamp=0)
        searches.pipe_input("k", {"terms": "land surveyor"}, timestamp=1000)
        views.pipe_input("k", {"page": "/castle"}, timestamp=2000)
        views.pipe_input("k", {"page": "/court"}, timestamp=2001)
        profiles.pipe_input("k", {"name": "Josef K.", "city": "the castle"}, timestamp=3000)
        views.pipe_input("k", {"page": "/village"}, timestamp=5000)
        views.pipe_input("nobody", {"page": "/castle"}, timestamp=7000)
        views.pipe_input("nobody", {"page": "/castle"}, timestamp=9000)
        notified = activity.read_key_values_to_list()
    known = {"name": "Josef K.", "city": "Prague"}
    assert notified == [
        ("k", {"page": "/castle", **known, "search": "land surveyor"}),
        ("k", {"page": "/court", **known, "search": None}),
        ("k", {"page": "/village", "name": "Josef K.", "city": "the castle", "search": None}),
        ("nobody", {"page": "/castle", "name": None, "city": None, "search": None}),
    ]


# ---- transfer


def test_transfers_conserve_money() -> None:
    with TopologyTestDriver(transfer.topology()) as driver:
        orders = driver.create_input_topic(transfer.ORDERS, STRING, JSON)
        entries = driver.create_output_topic(transfer.ENTRIES, STRING, JSON)
        orders.pipe_input("anna", {"deposit": 100})
        orders.pipe_input("anna", {"to": "bert", "amount": 30})
        orders.pipe_input("bert", {"to": "anna", "amount": 31})  # the balance is too low
        orders.pipe_input("bert", {"to": "carl", "amount": 30})
        notified = entries.read_key_values_to_list()
        store = driver.get_key_value_store("accounts")
        assert store is not None
        assert dict(store.all()) == {"anna": 70, "bert": 0, "carl": 30}
    assert [(account, entry["change"]) for account, entry in notified if account and entry] == [
        ("anna", 100),
        ("anna", -30),
        ("bert", 30),
        ("bert", -30),
        ("carl", 30),
    ]
    all_entries = [(account, entry) for account, entry in notified if account and entry]
    assert transfer.audit(all_entries) == transfer.Audit(3, 100, 100, 0)
    assert transfer.audit(all_entries[:-1]) == transfer.Audit(2, 100, 70, 30)


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        ([(100, 100, "one"), (100, 200, "one")], "one was entered twice"),
        ([(100, 100, "one"), (50, 200, "two")], "a had 100; after 50 it has 200"),
        ([(100, 100, "one"), (-50, 50, "two"), (60, 110, "two")], "two took 50 and gave 60"),
    ],
)
def test_the_audit_finds_errors(entries: list[tuple[int, int, str]], wrong: str) -> None:
    written = [("a", {"change": change, "balance": balance, "cause": cause}) for change, balance, cause in entries]
    with pytest.raises(ValueError, match=wrong):
        transfer.audit(written)


# ---- snapshot


def test_a_snapshot_is_recovered_and_no_record_counts_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def pipe(values: list[float]) -> list[Any]:
        with TopologyTestDriver(snapshot.topology(tmp_path)) as driver:
            readings = driver.create_input_topic(snapshot.READINGS, STRING, JSON)
            summaries = driver.create_output_topic(snapshot.SUMMARIES, STRING, JSON)
            for value in values:
                readings.pipe_input("sensor", value)
            return summaries.read_values_to_list()

    assert pipe([1.0, 3.0])[-1] == {"count": 2, "least": 1.0, "most": 3.0, "mean": 2.0}
    # A driver begins at offset 0 again, as an application does whose commit was lost: two records come again.
    assert pipe([1.0, 3.0, 5.0]) == [{"count": 3, "least": 1.0, "most": 5.0, "mean": 3.0}]
    assert "0_0: recovered 1 sensors after snapshot-readings-0@1" in capsys.readouterr().out
    assert [each.name for each in tmp_path.iterdir()] == ["0_0.json"]


# ---- dead letters


def test_dead_letters() -> None:
    dead: list[tuple[Any, Any, dict[str, bytes | None]]] = []
    letters = dead_letters.DeadLetters(lambda key, value, headers: dead.append((key, value, dict(headers or []))))
    with TopologyTestDriver(dead_letters.topology(), letters.config()) as driver:
        orders = driver.create_input_topic(dead_letters.ORDERS, STRING, BYTES)
        totals = driver.create_output_topic(dead_letters.TOTALS, STRING, LONG)
        huge = 10**20
        for key, value in [
            ("1", b'{"pieces": 2, "total": 500}'),
            ("2", b"no JSON at all"),
            ("3", b'{"pieces": 0, "total": 100}'),
            ("4", b'{"pieces": 1, "total": %d}' % huge),
            ("5", b'{"pieces": 4, "total": 400}'),
        ]:
            orders.pipe_input(key, value, headers=[("trace", key.encode())])
        assert totals.read_key_values_to_list() == [("1", 500), ("5", 400)]
    assert [(key, value) for key, value, _ in dead] == [
        (b"2", b"no JSON at all"),
        (b"3", b'{"pieces": 0, "total": 100}'),
        (b"4", str(huge).encode()),
    ]
    assert [headers["__streams.errors.offset"] for *_, headers in dead] == [b"1", b"2", b"3"]
    assert [headers["__streams.errors.exception"] for *_, headers in dead] == [
        b"JSONDecodeError",
        b"ZeroDivisionError",
        b"error",
    ]
    assert [headers["trace"] for *_, headers in dead] == [b"2", b"3", b"4"]


def test_generated_input_fits_the_topologies() -> None:
    for written in itertools.islice(stocks.trades(), 20):
        assert json.loads(written.value or b"")["price"] > 0
    assert {written.topic for written in itertools.islice(clicks.clicks(), 50)} == {
        clicks.VIEWS,
        clicks.PROFILES,
        clicks.SEARCHES,
    }


def test_a_missing_broker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ANSWER_S", 0.1)
    with pytest.raises(SystemExit, match=r"no broker answers at 127\.0\.0\.1:1 "):
        stocks.main(["--bootstrap-servers", "127.0.0.1:1"])
