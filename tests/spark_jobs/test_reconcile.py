"""reconcile: every planted fault is found, and no other; on frames, and from topics of both brokers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import archive, reconcile
from odradek.spark_jobs.differences import MATCHES, differences
from tests.spark_jobs.copies import FAULTS, SCHEMA, SPACING, Difference, Record, faulty, partition_of
from tests.spark_jobs.topics import make_topics, unique, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

COUNT = 60
PLACES = range(1, COUNT - SPACING, SPACING)


def frame(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    return spark.createDataFrame([record.row for record in records], SCHEMA)


def found(spark: SparkSession, left: Sequence[Record], right: Sequence[Record], match: Any, *ignore: str) -> Any:
    rows = differences(frame(spark, left), frame(spark, right), match, ignore).collect()
    assert len({tuple(row) for row in rows}) == len(rows)
    return {tuple(row) for row in rows}


def seeds() -> st.SearchStrategy[list[dict[int, str]]]:
    """Faults for some partitions."""
    one = st.fixed_dictionaries({}, optional={place: st.sampled_from(FAULTS) for place in PLACES})
    return st.lists(one, min_size=8, max_size=8)


@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(planted=seeds())
def test_planted_faults_are_found_and_no_others(spark: SparkSession, match: Any, planted: Any) -> None:
    """Each example is one comparison of many partitions: the first with every fault, the others as drawn."""
    every = {place: FAULTS[number % len(FAULTS)] for number, place in enumerate(PLACES)}
    left: list[Record] = []
    right: list[Record] = []
    expected: set[Difference] = set()
    for number, faults in enumerate([every, *planted]):
        records = partition_of("t", number, COUNT)
        copy, wanted = faulty(records, faults, match, appended=number == 1)
        left, right, expected = left + records, right + copy, expected | wanted
    assert {kind for kind, *_ in expected} == set(FAULTS)
    assert found(spark, left, right, match) == expected


def test_each_part_of_a_record_counts_and_null_is_not_empty(spark: SparkSession) -> None:
    record = Record("t", 0, 0, b"value")
    different = [
        replace(record, key=None),
        replace(record, key=b""),
        replace(record, value=None),
        replace(record, value=b""),
        replace(record, key=b"value", value=None),
        replace(record, headers=()),
        replace(record, headers=(("h", None),)),
        replace(record, headers=(("h", b""),)),
        replace(record, headers=(("h", b"1"), ("h", b"1"))),
        replace(record, headers=(("g", b"1"),)),
        replace(record, headers=(("h1", b""),)),
        replace(record, timestamp=record.timestamp + timedelta(milliseconds=1)),
    ]
    all_kinds = [record, *different]
    pairs = [(a, b) for a in all_kinds for b in all_kinds]
    left = [replace(a, offset=number) for number, (a, _) in enumerate(pairs)]
    right = [replace(b, offset=number, partition=0) for number, (_, b) in enumerate(pairs)]
    # A partition for each pair: within one they would count as having changed places.
    left = [replace(each, partition=each.offset) for each in left]
    right = [replace(each, partition=each.offset) for each in right]
    notified = {(kind, partition) for kind, _, partition, *_ in found(spark, left, right, "offset")}
    assert notified == {("corruption", n) for n, (a, b) in enumerate(pairs) if a is not b}


def test_ignored_fields_are_not_compared(spark: SparkSession) -> None:
    record = Record("t", 0, 0, b"value")
    changed = [
        replace(record, key=None, partition=0),
        replace(record, value=None, partition=1),
        replace(record, headers=(), partition=2),
        replace(record, timestamp=record.timestamp + timedelta(1), partition=3),
    ]
    left = [replace(record, partition=number) for number in range(4)]
    assert {row[2] for row in found(spark, left, changed, "offset", "value", "headers")} == {0, 3}
    assert {row[2] for row in found(spark, left, changed, "offset", "key", "timestamp")} == {1, 2}
    with pytest.raises(ValueError, match="offsets is not one of key, value"):
        differences(frame(spark, left), frame(spark, left), "offset", ["offsets"])


def test_copies_in_other_partitions_and_of_nothing(spark: SparkSession) -> None:
    records = partition_of("t", 0, 4)
    copies = [record.copied_to(number, named=True) for number, record in enumerate(records)]
    copies[1] = replace(copies[1], partition=1)
    stranger = Record("t", 0, 9, b"stranger")
    none = replace(records[0], offset=7).copied_to(10, named=True)
    assert found(spark, records, [*copies, stranger, none], "origin") == {
        ("misplaced", "t", 0, records[1].offset, "t", 1, 1),
        ("unexpected", None, None, None, "t", 0, 9),
        ("unexpected", "t", 0, 7, "t", 0, 10),
    }


def test_the_same_content_many_times(spark: SparkSession) -> None:
    """By content, of several equal records it is the last that is missing; a further one is a duplicate."""
    less, more = ([Record("t", partition, number, b"same") for number in range(5)] for partition in (0, 1))
    assert found(spark, less + more[:3], less[:3] + more[:4], "content") == {
        ("loss", "t", 0, 3, None, None, None),
        ("loss", "t", 0, 4, None, None, None),
        ("duplicate", None, None, None, "t", 1, 3),
    }


def run(*arguments: str) -> int:
    return reconcile.main(arguments)


def test_topics(spark: SparkSession, spark_broker: BrokerProcess, tmp_path: Path) -> None:
    """A second run gives the same report."""
    source, copy = unique("source"), unique("copy")
    left: list[Record] = []
    right: list[Record] = []
    expected: dict[str, int] = dict.fromkeys(FAULTS, 0)
    for partition, fault_of in ((0, 0), (1, 2)):
        records = [replace(each, offset=number) for number, each in enumerate(partition_of(source, partition, COUNT))]
        faults = {place: FAULTS[(number + fault_of) % 4] for number, place in enumerate(PLACES)}
        copies, wanted = faulty(records, faults, "origin")
        left, right = left + records, right + [replace(each, topic=copy) for each in copies]
        for kind, *_ in wanted:
            expected[kind] += 1
    reports: list[str] = []
    allowed = [word for kind in FAULTS for word in ("--allow", kind)]
    address = spark_broker.bootstrap
    make_topics(address, {source: 2, copy: 2})
    write(address, left + right)
    common = ("--bootstrap", address, "--topic", source, "--with-bootstrap", address, "--with-topic", copy)
    for more, status in (([], 4), (allowed, 0)):
        file = tmp_path / f"{len(reports)}.json"
        assert run(*common, "--report", str(file), "--examples", "3", *more) == status
        reports.append(file.read_text())
    assert reports[0] == reports[1]
    report = json.loads(reports[0])
    assert report["match"] == "origin"
    assert report["differences"] == {**expected, "misplaced": 0, "unexpected": 0}
    assert report["records"] == {"left": len(left), "right": len(right)}
    assert report["left"]["until"] == {source: {"0": COUNT, "1": COUNT}}
    assert all(len(examples) == 3 for examples in report["examples"].values())
    # A range in which nothing was planted.
    assert run(*common, "--until", json.dumps({source: {"0": 1, "1": 1}})) == 0


def test_an_archive(spark: SparkSession, spark_broker: BrokerProcess, tmp_path: Path) -> None:
    topic, other, bootstrap = unique("archived"), unique("other"), spark_broker.bootstrap
    make_topics(bootstrap, {topic: 1, other: 1})
    write(bootstrap, partition_of(topic, 0, COUNT) + partition_of(other, 0, COUNT))
    folder, report = tmp_path / "archive", tmp_path / "report.json"
    arguments = ["--bootstrap", bootstrap, "--once", "--output", str(folder), "--checkpoint", str(tmp_path / "kept")]
    assert archive.main([*arguments, "--topic", topic, "--topic", other]) == 0
    common = ("--bootstrap", bootstrap, "--topic", topic, "--archive", str(folder))
    assert run(*common) == 0
    write(bootstrap, partition_of(topic, 0, 5))
    first, *_ = sorted(folder.glob(f"topic={topic}/*/*.parquet"))
    shutil.copy(first, first.with_name("again.parquet"))
    assert run(*common, "--report", str(report)) == 4
    found = {kind: count for kind, count in json.loads(report.read_text())["differences"].items() if count}
    assert found == {"loss": 5, "duplicate": COUNT}
    assert run(*common[:-1], str(tmp_path)) == 3


def test_missing_topics(spark: SparkSession, spark_broker: BrokerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    topic, bootstrap = unique("there"), spark_broker.bootstrap
    make_topics(bootstrap, {topic: 1})
    common = ("--bootstrap", bootstrap, "--topic", topic)
    assert run(*common) == 2
    assert run(*common, "--with-bootstrap", bootstrap, "--with-from", "yesterday") == 2
    assert run(*common, "--with-bootstrap", bootstrap, "--with-topic", "nowhere") == 3
    assert "no such topic: nowhere" in capfd.readouterr().err
