"""Exactly once through kill -9 and pauses of the processes of a source and a sink, over a real broker: files, and
PostgreSQL.

ODRADEK_SEED=7             other moments, other victims
ODRADEK_SOAK_ROUNDS=10     ten times as many kills
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from odradek.broker_process import BrokerProcess
from tests.streams import counting
from tests.streams.connectors.processes import TIMEOUT_S, Storm, start
from tests.support.eventually import eventually
from tests.support.nemesis import ROUNDS, SEED

pytestmark = pytest.mark.slow

KILLS = 3 * max(1, ROUNDS)
_LOST = re.compile("revoked .*lost=True|session ended")
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


def test_processes_that_are_paused_until_others_have_taken_over(
    streams_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: str
) -> None:
    """Two processes of a source and two of a sink; one of each is stopped amid its work, for longer than its session,
    and continued while its partitions belong to the other one.
    """
    topic = "connect-objects"
    counting.make_topics(streams_broker.bootstrap, {topic: 4})
    monkeypatch.setenv("CONNECT_POSTGRES", postgres)
    monkeypatch.setenv("CONNECT_TOPIC", topic)
    monkeypatch.setenv("CONNECT_INPUT", str(tmp_path))
    files = [tmp_path / f"{number}.log" for number in range(8)]
    written = 0

    def write(count: int) -> None:
        nonlocal written
        for number in range(written, written + count):
            with files[number % len(files)].open("a") as file:
                file.write(json.dumps({"id": number, "item": "item"}) + "\n")
        written += count

    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(postgres, autocommit=True))
        connection.execute("CREATE TABLE IF NOT EXISTS sink_rows (id bigint, item text)")
        connection.execute("TRUNCATE sink_rows")

        def arrived() -> int:
            row = connection.execute("SELECT count(*) FROM sink_rows").fetchone()
            return int(row[0]) if row else 0

        write(RECORDS)
        quick = {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 200, "group_instance_id": ""}
        given = ("objects_source", "objects-source", {}), ("rows_sink", "objects-sink", {"topics": topic})
        processes = [
            stack.enter_context(start(connector, streams_broker.bootstrap, name, **quick, **more))
            for connector, name, more in given
            for _ in range(2)
        ]
        paused = processes[0], processes[2]

        def log_of() -> str:
            return "\n".join(
                line for process in processes for line in [f"{process.pid}:", *process.stderr.lines()[-40:]]
            )

        for process in processes:
            process.stderr.wait_for("new=RUNNING", TIMEOUT_S)
        write(RECORDS)
        eventually(arrived, lambda count: count > RECORDS)
        for process in paused:
            os.kill(process.pid, signal.SIGSTOP)
        write(RECORDS)
        eventually(arrived, lambda count: count == written, log_of, timeout_s=TIMEOUT_S)
        write(RECORDS)
        for process in paused:
            os.kill(process.pid, signal.SIGCONT)
        eventually(arrived, lambda count: count >= written, log_of, timeout_s=TIMEOUT_S)
        for process in paused:
            process.stderr.wait_until(lambda lines: any(map(_LOST.search, lines)), TIMEOUT_S)
        assert [process.stop() for process in processes] == [0] * len(processes)
        rows = connection.execute("SELECT id FROM sink_rows ORDER BY id").fetchall()
    assert [each for (each,) in rows] == list(range(written))
    assert len(counting.read_all(streams_broker.bootstrap, topic)) == written
