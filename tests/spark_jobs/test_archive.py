"""archive: the files hold what librdkafka reads, read by pyarrow, which does not use Spark's logs."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import archive
from odradek.spark_jobs.errors import DONE, NOT_THERE, NotThereError
from tests.spark_jobs import topics
from tests.spark_jobs.archive_job import (
    as_archived,
    committed,
    delete_records,
    read_files,
    records,
    run_archive,
    write_transactions,
)
from tests.spark_jobs.copies import SCHEMA, START, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
LINE = r"archive: batch (\d+), ([\d,]+) rows, [\d,]+ rows/s, lag ([\d,]+), offsets (.+)"


@pytest.mark.usefixtures("spark")
def test_archive_has_every_record_once_with_all_fields_that_a_consumer_sees(
    spark_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap, count = spark_broker.bootstrap, 2_000
    sizes = {topics.unique("archived"): 3, topics.unique("archived-too"): 1}
    large, small = sizes
    topics.make_topics(bootstrap, sizes)
    topics.write(bootstrap, records(large, 3, count, "large"))
    write_transactions(bootstrap, large, 3)
    topics.write(bootstrap, records(small, 1, 500, "small"))
    group = topics.unique("archive")
    more = ("--batch-records", str(count * 4 // 5), "--group", group)
    assert run_archive(bootstrap, [large, small], tmp_path, *more) == DONE
    check_reported(capsys.readouterr().err, count + 1_500, {name: committed(bootstrap, group, name) for name in sizes})
    # The next run continues from there, and one without new records adds none.
    topics.write(bootstrap, records(large, 3, 1_000, "more"))
    assert run_archive(bootstrap, [large, small], tmp_path, "--codec", "gzip") == DONE
    assert run_archive(bootstrap, [large, small], tmp_path) == DONE

    seen = topics.read(bootstrap, sizes)
    assert len(seen) == count + 1_000 + 1_000 + 500
    assert read_files(tmp_path) == as_archived(seen)


def check_reported(printed: str, rows: int, offsets: dict[str, dict[int, int]]) -> None:
    """A line for each batch; the last one has no lag, and its offsets are the group's."""
    notified = [re.fullmatch(LINE, line) for line in printed.splitlines()]
    assert len(notified) > 1
    lines = [each for each in notified if each is not None]
    assert len(lines) == len(notified), printed
    assert [int(each[1]) for each in lines] == list(range(len(lines)))
    assert sum(int(each[2].replace(",", "")) for each in lines) == rows
    lags = [int(each[3].replace(",", "")) for each in lines]
    assert lags == sorted(set(lags), reverse=True)
    assert lags[-1] == 0
    reported_offsets = json.loads(lines[-1][4])
    assert {name: {int(n): at for n, at in places.items()} for name, places in reported_offsets.items()} == offsets


@pytest.mark.usefixtures("spark")
def test_missing_topics_and_brokers_are_reported_in_a_line_with_status_3(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, other = topics.unique("errors"), topics.unique("errors-too")
    topics.make_topics(bootstrap, {topic: 1, other: 1})
    topics.write(bootstrap, records(topic, 1, 100, "errors"))

    assert run_archive(bootstrap, ["no-such-topic"], tmp_path) == NOT_THERE
    assert _printed(capsys) == "archive: no such topic: no-such-topic"
    assert not (tmp_path / "archive").exists()

    assert run_archive(bootstrap, [topic], tmp_path, "--from", f'{{"{topic}": {{"3": 0}}}}') == NOT_THERE
    assert _printed(capsys) == f"archive: {topic} has no partition 3: it has 1"

    assert run_archive(bootstrap, [topic], tmp_path) == DONE
    capsys.readouterr()
    assert run_archive(bootstrap, [other], tmp_path) == NOT_THERE
    assert _printed(capsys).endswith(f"is the checkpoint of the topics {topic}; choose another folder")

    (tmp_path / "checkpoint").rename(tmp_path / "elsewhere")
    assert run_archive(bootstrap, [topic], tmp_path) == NOT_THERE
    assert "was written from another checkpoint" in _printed(capsys)
    (tmp_path / "checkpoint" / "odradek.json").unlink()
    (tmp_path / "checkpoint").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "checkpoint")

    topics.write(bootstrap, records(topic, 1, 100, "lost"))
    delete_records(bootstrap, topic, 150)
    assert run_archive(bootstrap, [topic], tmp_path) == NOT_THERE
    assert _printed(capsys) == f"archive: offset 100 of {topic}-0 is gone: the partition begins at 150"
    again = tmp_path / "again"
    assert run_archive(bootstrap, [topic], again, "--from", f'{{"{topic}": {{"0": 120}}}}') == NOT_THERE
    assert _printed(capsys) == f"archive: offset 120 of {topic}-0 is gone: the partition begins at 150"


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_of_a_topic_that_was_created_anew_is_rejected(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = topics.unique("anew")
    topics.make_topics(bootstrap, {topic: 1})
    topics.write(bootstrap, records(topic, 1, 10, "first"))
    assert run_archive(bootstrap, [topic], tmp_path) == DONE
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(topics.TIMEOUT_S)
    remake(bootstrap, topic)
    topics.write(bootstrap, records(topic, 1, 20, "second"))
    capsys.readouterr()
    assert run_archive(bootstrap, [topic], tmp_path) == NOT_THERE
    assert f"is the checkpoint of a topic {topic} that was deleted since, and made anew" in _printed(capsys)


def remake(bootstrap: str, topic: str) -> None:
    """The broker answers a deletion before it is done."""
    from confluent_kafka import KafkaError, KafkaException

    while True:
        try:
            topics.make_topics(bootstrap, {topic: 1})
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


class CutError(Exception):
    """The end of a process, as far as files show."""


@pytest.fixture
def batch(spark: SparkSession) -> DataFrame:
    made = [
        Record("2024", partition, offset, b"value", timestamp=START + timedelta(days=offset % 2))
        for partition in (0, 1)
        for offset in range(5)
    ]
    frame = spark.createDataFrame([each.row for each in made], SCHEMA)
    from pyspark.sql import functions as f

    return frame.withColumn("timestampType", f.lit(0)).repartitionByRange(2, "partition").cache()


def test_a_batch_that_was_interrupted_anywhere_is_complete_when_it_is_written_again(
    spark: SparkSession, batch: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = sorted((row.topic, row.partition, row.offset) for row in batch.collect())
    rename = Path.replace
    cuts = 0
    while True:
        left = cuts

        def cut(self: Path, target: Path) -> Path:
            nonlocal left
            if left == 0:
                raise CutError
            left -= 1
            return rename(self, target)

        folder = tmp_path / str(cuts)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", cut)
            try:
                archive.Archive(folder / "archive", "checkpoint").write(batch, 7)
                survived = True
            except CutError:
                survived = False
        # Again, in files of another number, as on a machine with a different number of cores.
        archive.Archive(folder / "archive", "checkpoint").write(batch.coalesce(1), 7)
        assert sorted((row[0], row[1], row[2]) for row in read_files(folder)) == wanted, cuts
        if survived:
            break
        cuts += 1
    assert cuts == 6  # the note, four files, and the end
    found = archive.read_archive(spark, str(folder / "archive"))
    assert found.where("topic = '2024'").count() == 10


def test_an_archive_belongs_to_one_checkpoint(tmp_path: Path) -> None:
    archive.Archive(tmp_path, "one")
    archive.Archive(tmp_path, "one")
    with pytest.raises(NotThereError, match="another checkpoint"):
        archive.Archive(tmp_path, "two")
    assert archive.archive_id(str(tmp_path)) == "one"
