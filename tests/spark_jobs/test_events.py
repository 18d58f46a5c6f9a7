"""The options for a record's key, time and id, and records that do not have them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from odradek.spark_jobs import dedup_sink, events, sessions, snapshot, windows
from odradek.spark_jobs.errors import WRONG_USAGE
from tests.spark_jobs.copies import SCHEMA, START, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALWAYS = ["--bootstrap", "localhost:1", "--topic", "t", "--output", "out"]
STREAMING = [*ALWAYS, "--checkpoint", "checkpoint"]
MOMENT = datetime(2026, 3, 1, 12, 0, 0, 5000, tzinfo=UTC)


@pytest.mark.jvm
@pytest.mark.slow
def test_parts_and_times_are_found_or_replaced(spark: SparkSession) -> None:
    """The last header of a name counts, as in Kafka; invalid times are replaced by the record's own."""
    values = (b'{"user": {"id": "u1"}, "at": 1772366400005}', b'{"at": "2026-03-01T13:00:00.005999+01:00"}', b"x", None)
    headers = ((("id", b"1"), ("id", b"2")), (("id", None),), (("other", b"3"),), ())
    records = [
        Record("t", 0, offset, value, b"key\xff", each)
        for offset, (value, each) in enumerate(zip(values, headers, strict=True))
    ]
    frame = spark.createDataFrame([record.row for record in records], SCHEMA)
    rows = frame.orderBy("offset").select(
        *(events.part_of(name).alias(name[0]) for name in ("key", "header:id", "$.user.id")),
        events.time_of("$.at").alias("at"),
        events.time_of("header:other").alias("headed"),
        events.time_of("timestamp").alias("own"),
    )
    found = rows.collect()
    assert [bytes(row.k) for row in found] == [b"key\xff"] * 4
    assert [row.h and bytes(row.h) for row in found] == [b"2", None, None, None]
    assert [row["$"] for row in found] == ["u1", None, None, None]
    assert [row.at.astimezone(UTC) for row in found] == [MOMENT, MOMENT, START, START]
    assert [row.headed.timestamp() for row in found] == [START.timestamp(), START.timestamp(), 0.003, START.timestamp()]
    assert {row.own.astimezone(UTC) for row in found} == {START}


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0ms", 0), ("250ms", 250), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("2d", 172_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert events.duration_ms(text) == ms
    assert events.interval(ms) == f"{ms} milliseconds"


@pytest.mark.parametrize(
    ("main", "arguments", "notified"),
    [
        (windows.main, [*STREAMING, "--size", "10"], "'10' is not a duration as 250ms, 10s, 5m, 1h or 2d"),
        (windows.main, [*STREAMING, "--size", "0s"], "0s is shorter than 1ms"),
        (
            windows.main,
            [*STREAMING, "--size", "1s", "--advance", "2s"],
            "--advance 2000ms is longer than --size 1000ms",
        ),
        (windows.main, [*STREAMING, "--size", "1s", "--key", "user"], "'user' is not key, header:NAME or a path as"),
        (windows.main, [*STREAMING, "--size", "1s", "--time", "key"], "'key' is not timestamp, header:NAME or a path"),
        (windows.main, STREAMING, "Missing option '--size'"),
        (sessions.main, STREAMING, "Missing option '--gap'"),
        (sessions.main, [*STREAMING, "--gap", "1s", "--engine", "x"], "Invalid value for '--engine'"),
        (dedup_sink.main, STREAMING, "Missing option '--lateness'"),
        (snapshot.main, [*ALWAYS, "--keep", "0"], "Invalid value for '--keep'"),
    ],
)
def test_wrong_usage_is_reported_before_spark_starts(
    main: object, arguments: list[str], notified: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(main)
    assert main(arguments) == WRONG_USAGE
    assert notified in capsys.readouterr().err


@pytest.mark.parametrize("main", [windows.main, sessions.main, dedup_sink.main, snapshot.main])
def test_help_shows_a_whole_example(main: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "    python -m odradek.spark_jobs." in shown
    assert "--bootstrap localhost:9092" in shown
