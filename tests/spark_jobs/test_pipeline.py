"""The pipeline example: one command from lines of text to a picture, with the counts of the text itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import pipeline
from tests.spark_jobs.test_guide import COMMANDS, PIPELINE
from tests.spark_jobs.topics import make_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PNG = b"\x89PNG\r\n\x1a\n"
LINES = 100


def test_the_report_counts_what_was_in_the_text(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command of docs/spark.md."""
    (words_of_guide,) = [command[3:] for command in COMMANDS if command[2] == PIPELINE]
    assert words_of_guide[2:] == ["--lines", str(LINES), "--size", "1s"]
    folder = tmp_path / "words"
    arguments = [word.replace("/tmp/odradek", str(tmp_path)) for word in words_of_guide]
    assert pipeline.main(arguments) == 0
    words = Counter(word for line in pipeline.made_up_lines(LINES) for word in line.split())
    most = sorted(words.items(), key=lambda each: (-each[1], each[0]))[:6]
    assert [line.split() for line in (folder / "report.txt").read_text().splitlines()] == [
        [word, str(count)] for word, count in most
    ]
    windows = spark.read.parquet(str(folder / "windows")).collect()
    assert len({row.window_start for row in windows}) in (5, 6)  # 5 s of lines, by windows that begin when they do
    assert sum(row["count"] for row in windows if bytes(row.key) != pipeline.LAST_WORD.encode()) == words.total()
    assert (folder / "report.png").read_bytes().startswith(PNG)
    capfd.readouterr()
    assert pipeline.main(arguments) == 1
    assert "is there already" in capfd.readouterr().err


def test_a_broker_with_words_of_its_own_is_left_alone(
    spark: SparkSession, spark_broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_topics(spark_broker.bootstrap, {pipeline.INPUT: 1})
    assert pipeline.main(["--output", str(tmp_path / "words"), "--bootstrap", spark_broker.bootstrap]) == 1
    assert "would be counted, too" in capfd.readouterr().err
