"""SIGKILL and a rerun, of all streaming jobs at once: the guarantees of each hold after any of it.

The jobs run in one Spark session of a process that is killed when a drawn number of batches is done: one of them has
just printed a batch, the others are anywhere. Then they run to their end in the session of the tests. ODRADEK_SEED
draws other numbers, and ODRADEK_KILLS sets how often it is killed: with three each job is among the first in one of the
runs.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from tests.spark_jobs import (
    archive_job,
    dedup_sink_job,
    replay_job,
    sessions_job,
    snapshot_job,
    topics,
    windows_job,
)
from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.killing import run_killed, run_to_the_end

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.usefixtures("spark")]
EVENTS = 210
KILLS = int(os.environ.get("ODRADEK_KILLS", "1"))
SEED = int(os.environ.get("ODRADEK_SEED", "1"))


def copied(bootstrap: str, source: str, target: str) -> None:
    """The copies are their records, in order, when only the first of each origin counts; some may be there again."""
    wanted = replay_job.copies_of(topics.read(bootstrap, {source: 3}))
    found = replay_job.as_read(bootstrap, target)
    without_time = [each[:4] for each in found]
    assert list(dict.fromkeys(without_time)) == [each[:4] for each in wanted]


def test_every_job_keeps_its_guarantee_when_it_is_killed_and_run_again(
    spark_broker: BrokerProcess, spark_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in spark_environment.items():
        monkeypatch.setenv(name, value)
    at = spark_broker.bootstrap
    records, replayed, mirrored, windowed, clicked, doubled = (
        topics.unique(name) for name in ("records", "replayed", "mirrored", "windowed", "clicked", "doubled")
    )
    replay_job.fill(at, records, 600)
    topics.make_topics(at, {replayed: 3, mirrored: 3, windowed: 2, clicked: 2, doubled: 2})
    events = windows_job.drawn(EVENTS, SEED, disorder_ms=60_000)
    topics.write(at, oracle.records(windowed, events))
    clicks = sessions_job.drawn(EVENTS, SEED)
    topics.write(at, oracle.records(clicked, clicks))
    doubles = dedup_sink_job.drawn(EVENTS, SEED)
    topics.write(at, oracle.records(doubled, doubles))

    own = ("--bootstrap", at, "--topic", records)
    folders = {
        name: tmp_path / name for name in ("archive", "windows", "sessions", "state", "sqlite", "parquet", "snapshot")
    }
    jobs = {
        "archive": [*own, *_places(folders["archive"], "archive"), "--once", "--batch-records", "900"],
        "replay": [*own, "--to", replayed, "--checkpoint", str(tmp_path / "replay"), "--batch-records", "900"],
        "mirror": [
            *(*own, "--to-bootstrap", at, "--to-topic", mirrored, "--once", "--batch-records", "900"),
            *("--checkpoint", str(tmp_path / "mirror")),
        ],
        "snapshot": [*own, "--output", str(folders["snapshot"])],
        "windows": windows_job.arguments(at, windowed, folders["windows"]),
        "sessions": sessions_job.arguments(at, clicked, folders["sessions"], "session_window"),
        "sessions.state": sessions_job.arguments(at, clicked, folders["state"], "state"),
        "dedup_sink": dedup_sink_job.arguments(at, doubled, folders["sqlite"], "events.sqlite"),
        "dedup_sink.parquet": dedup_sink_job.arguments(at, doubled, folders["parquet"], "events"),
    }
    draw = random.Random(SEED)
    kills = [draw.randrange(2, 6) for _ in range(KILLS)]
    jobs = {name: jobs[name] for name in draw.sample(list(jobs), len(jobs))}
    notified = run_killed(jobs, kills)
    assert all(notified), "a run was killed before any batch"
    assert run_to_the_end(jobs) == dict.fromkeys(jobs, 0)

    seen = topics.read(at, {records: 3})
    assert archive_job.read_files(folders["archive"]) == archive_job.as_archived(seen)
    copied(at, records, replayed)
    copied(at, records, mirrored)
    rows = [(each.partition, each.offset, each.key, each.value) for each in seen]
    assert snapshot_job.table_of(folders["snapshot"]) == oracle.latest(rows)

    batches = oracle.batches_of(folders["windows"] / "checkpoint", events, windows_job.LATENESS_MS)
    counts = oracle.closed_windows(batches, windows_job.SIZE_MS, windows_job.ADVANCE_MS)
    assert windows_job.written(folders["windows"]) == windows_job.as_rows(counts)
    for name in ("sessions", "state"):
        batches = oracle.batches_of(folders[name] / "checkpoint", clicks, sessions_job.LATENESS_MS)
        closed = Counter(oracle.closed_sessions(batches, sessions_job.GAP_MS))
        assert sessions_job.written(folders[name]) == closed, name
    for name, sink in (("sqlite", "events.sqlite"), ("parquet", "events")):
        checkpoint = folders[name] / f"checkpoint-{sink}"
        batches = oracle.batches_of(checkpoint, doubles, dedup_sink_job.LATENESS_MS)
        kept = oracle.once_each(batches, dedup_sink_job.LATENESS_MS)
        query = json.loads((checkpoint / "metadata").read_text())["id"]
        expected = Counter((n, each.partition, each.offset, each.key, each.at) for n, each in kept)
        assert dedup_sink_job.written(folders[name], sink, query) == expected, name


def _places(folder: Path, output: str) -> list[str]:
    return ["--checkpoint", str(folder / "checkpoint"), "--output", str(folder / output)]
