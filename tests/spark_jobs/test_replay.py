"""replay: order, key, value, headers and times of copies, as librdkafka reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import archive, replay
from odradek.spark_jobs.errors import DONE, FAILED, NOT_THERE
from tests.spark_jobs import topics
from tests.spark_jobs.archive_job import committed, run_archive
from tests.spark_jobs.copies import START, Record
from tests.spark_jobs.replay_job import PARTITIONS, as_read, copies_of, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

jvm = pytest.mark.jvm
slow = pytest.mark.slow


def run_replay(bootstrap: str, topic: str, to: str, folder: Path, *more: str) -> int:
    own = ["--topic", topic, "--to", to, "--checkpoint", str(folder / "replay")]
    return replay.main(["--bootstrap", bootstrap, *own, *more])


@jvm
@slow
@pytest.mark.usefixtures("spark")
def test_copies_are_their_records_in_order_from_an_archive_and_from_a_topic(
    spark_broker: BrokerProcess, tmp_path: Path
) -> None:
    bootstrap = spark_broker.bootstrap
    topic, again, noon = (topics.unique(name) for name in ("played", "again", "noon"))
    fill(bootstrap, topic, 900)
    topics.make_topics(bootstrap, dict.fromkeys((again, noon), PARTITIONS))
    seen = topics.read(bootstrap, {topic: PARTITIONS})
    group = topics.unique("replay")
    between = [START + timedelta(seconds=100, milliseconds=1), START + timedelta(seconds=200)]
    times = ["--from", between[0].isoformat(), "--until", between[1].replace(tzinfo=None).isoformat()]
    limits = [round(moment.timestamp() * 1000) for moment in between]
    chosen = [each for each in seen if limits[0] <= each.timestamp_ms < limits[1] and each.offset < 300]
    assert len(chosen) == 99 * PARTITIONS
    assert run_replay(bootstrap, topic, noon, tmp_path / "1", *times, "--group", group) == DONE
    assert as_read(bootstrap, noon) == copies_of(chosen)
    assert committed(bootstrap, group, topic) == dict.fromkeys(range(PARTITIONS), 200)

    assert run_archive(bootstrap, [topic], tmp_path) == DONE
    stored = ["--archive", str(tmp_path / "archive")]
    assert run_replay(bootstrap, topic, again, tmp_path / "2", *stored, "--batch-records", "1800") == DONE
    assert as_read(bootstrap, again) == copies_of(seen)
    check_places(bootstrap, topic, stored, tmp_path)


def check_places(bootstrap: str, topic: str, stored: list[str], folder: Path) -> None:
    """A range of offsets, of the topic and of its archive."""
    offsets = topics.unique("offsets")
    topics.make_topics(bootstrap, {offsets: PARTITIONS})
    places = ["--from", f'{{"{topic}": {{"0": 250, "2": 299}}}}', "--until", f'{{"{topic}": {{"0": 260, "1": 4}}}}']
    chosen = [
        each
        for each in topics.read(bootstrap, {topic: PARTITIONS})
        if each.offset in {0: range(250, 260), 1: range(4)}.get(each.partition, range(299, 9999))
    ]
    for way, name in ((), "3"), (stored, "4"):
        before = as_read(bootstrap, offsets)
        assert run_replay(bootstrap, topic, offsets, folder / name, *places, *way) == DONE
        whole = as_read(bootstrap, offsets)
        assert sorted(map(repr, whole)) == sorted(map(repr, before + copies_of(chosen)))


@jvm
@slow
@pytest.mark.usefixtures("spark")
def test_a_replay_resumes_with_the_slice_in_which_it_ended(
    spark_broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = spark_broker.bootstrap
    topic, again = topics.unique("cut"), topics.unique("cut-again")
    fill(bootstrap, topic, 900)
    topics.make_topics(bootstrap, {again: PARTITIONS})
    write = replay._write
    writes = 0

    def cut(copies: DataFrame, settings: dict[str, str]) -> None:
        """The second slice is written, and the process ends before it records that."""
        nonlocal writes
        writes += 1
        write(copies, settings)
        if writes == 2:
            raise RuntimeError("cut")

    small = ["--batch-records", "900"]
    monkeypatch.setattr(replay, "_write", cut)
    assert run_replay(bootstrap, topic, again, tmp_path, *small) == FAILED
    topics.write(bootstrap, [Record(topic, 0, 0, b"too late to be of the range")])
    # The range and its slices are those of the first run, even if this one requests others.
    assert run_replay(bootstrap, topic, again, tmp_path, "--from", "latest", "--batch-records", "100000") == DONE

    seen = topics.read(bootstrap, {topic: PARTITIONS})
    wanted = copies_of([each for each in seen if each.value != b"too late to be of the range"])
    found = as_read(bootstrap, again)
    assert list(dict.fromkeys(found)) == wanted
    twice = len(found) - len(wanted)
    assert 0 < twice <= 900

    capsys.readouterr()
    assert run_replay(bootstrap, topic, again, tmp_path, *small) == DONE
    assert len(as_read(bootstrap, again)) == len(found)
    assert capsys.readouterr().err == ""


@jvm
@slow
@pytest.mark.usefixtures("spark")
def test_missing_topics_and_archives_are_reported_in_a_line_with_status_3(
    spark_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = spark_broker.bootstrap
    topic, narrow = topics.unique("wide"), topics.unique("narrow")
    topics.make_topics(bootstrap, {topic: 2, narrow: 1})
    topics.write(bootstrap, [Record(topic, 1, 0, b"value")])
    for arguments, notified in (
        ((topic, "nowhere"), "no such topic: nowhere"),
        (("nothing", narrow), "no such topic: nothing"),
        ((topic, narrow), f"{narrow} has 1 partitions, of the 2 that the records come from"),
        ((topic, topic, "--archive", str(tmp_path)), f"{tmp_path} is no archive"),
    ):
        case = tmp_path / str(len(notified))
        assert run_replay(bootstrap, arguments[0], arguments[1], case, *arguments[2:]) == NOT_THERE
        assert capsys.readouterr().err.splitlines()[-1] == f"replay: {notified}"
    archive.Archive(tmp_path / "archive", "empty")
    assert run_replay(bootstrap, topic, topic, tmp_path, "--archive", str(tmp_path / "archive")) == NOT_THERE
    assert capsys.readouterr().err.splitlines()[-1] == f"replay: the archive has nothing of {topic}"


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=4),
    st.integers(1, 20),
)
def test_slices_cover_the_range_once_and_in_order(places: dict[int, tuple[int, int]], step: int) -> None:
    start = {"t": {n: min(both) for n, both in places.items()}}
    end = {"t": {n: max(both) for n, both in places.items()}}
    covered: dict[int, list[int]] = {n: [] for n in places}
    for begin, behind in replay.ReplayPlan(start, end, step).slices():
        assert begin != behind
        for n in places:
            assert behind["t"][n] - begin["t"][n] <= step
            covered[n] += range(begin["t"][n], behind["t"][n])
    assert covered == {n: list(range(start["t"][n], end["t"][n])) for n in places}


@pytest.mark.parametrize("moment", [START, datetime(1970, 1, 1, tzinfo=UTC)])
@jvm
@slow
def test_transform_sorts_and_names_origins(spark: Any, moment: datetime) -> None:
    from tests.spark_jobs.copies import SCHEMA

    made = [Record("t", 0, offset, None, headers=(), timestamp=moment) for offset in (3, 1, 2)]
    frame = spark.createDataFrame([each.row for each in made], SCHEMA).coalesce(1)
    rows = replay.transform(frame, "to").collect()
    assert [bytes(row.headers[0].value) for row in rows] == [b"t:0:1", b"t:0:2", b"t:0:3"]
    assert {bytes(row.headers[1].value) for row in rows} == {str(round(moment.timestamp() * 1000)).encode()}
    assert {row.topic for row in rows} == {"to"}
