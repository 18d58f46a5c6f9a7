"""Exactly once through kill -9 of the processes of a source and a sink, over a real broker: files, and PostgreSQL.

ODRADEK_SEED=7             other moments, other victims
ODRADEK_SOAK_ROUNDS=10     ten times as many kills
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import psycopg
import pytest

from odradek.broker_process import BrokerProcess
from tests.streams import counting
from tests.streams.connectors.processes import Storm, start
from tests.support.nemesis import ROUNDS, SEED

pytestmark = pytest.mark.slow

KILLS = 3 * max(1, ROUNDS)
RECORDS = 600
"""Records that are written before each kill."""


def test_files(streams_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, chance = "connect-lines", random.Random(SEED)
    counting.make_topics(streams_broker.bootstrap, {topic: 2})
    folders = tmp_path / "input", tmp_path / "output"
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("CONNECT_INPUT", str(folders[0]))
    monkeypatch.setenv("CONNECT_OUTPUT", str(folders[1]))
    monkeypatch.setenv("CONNECT_TOPIC", topic)
    files = [folders[0] / f"{name}.log" for name in "abc"]
    lines: dict[str, list[str]] = defaultdict(list)

    def write(count: int) -> None:
        for _ in range(count):
            file = chance.choice(files)
            lines[file.stem].append(f"{file.stem} {len(lines[file.stem])}")
            with file.open("a") as appended:
                appended.write(f"{lines[file.stem][-1]}\n")

    def stored() -> list[dict[str, object]]:
        files = sorted(folders[1].rglob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    storm = Storm(
        [
            lambda: start("lines_source", streams_broker.bootstrap, "lines-source"),
            lambda: start("lines_sink", streams_broker.bootstrap, "lines-sink", topics=topic),
        ],
        lambda: len(stored()),
        chance,
    )
    written = storm.strike(write, KILLS, RECORDS)
    committed = [value.decode() for _, value in counting.read_all(streams_broker.bootstrap, topic) if value]
    assert sorted(committed) == sorted(line for each in lines.values() for line in each)
    found = stored()
    assert len(found) == written
    assert len({(each["partition"], each["offset"]) for each in found}) == written
    assert sorted(str(each["value"]) for each in found) == sorted(committed)
    assert not list(folders[1].rglob(".tmp-*"))


def test_postgres(
    streams_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: str
) -> None:
    topic, chance = "connect-rows", random.Random(SEED)
    counting.make_topics(streams_broker.bootstrap, {topic: 2})
    monkeypatch.setenv("CONNECT_POSTGRES", postgres)
    monkeypatch.setenv("CONNECT_TOPIC", topic)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE source_rows (id bigserial PRIMARY KEY, item text)")
        connection.execute("CREATE TABLE sink_rows (id bigint, item text)")

        def write(count: int) -> None:
            connection.execute("INSERT INTO source_rows (item) SELECT 'item' FROM generate_series(1, %s)", (count,))

        def arrived() -> int:
            row = connection.execute("SELECT count(*) FROM sink_rows").fetchone()
            return int(row[0]) if row else 0

        storm = Storm(
            [
                lambda: start("rows_source", streams_broker.bootstrap, "rows-source"),
                lambda: start("rows_sink", streams_broker.bootstrap, "rows-sink", topics=topic),
            ],
            arrived,
            chance,
        )
        written = storm.strike(write, KILLS, RECORDS)
        rows = connection.execute("SELECT id FROM sink_rows ORDER BY id").fetchall()
    assert [each for (each,) in rows] == list(range(1, written + 1))
