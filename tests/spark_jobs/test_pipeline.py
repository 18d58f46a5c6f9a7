"""The pipeline example: one command from lines of text to a picture, with the counts of the text itself."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import pipeline
from tests.jvm.kafka import VERSION
from tests.jvm.process import QUICK_START, QUIET, java_command
from tests.spark_jobs.guide import COMMANDS, PIPELINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

PNG = b"\x89PNG\r\n\x1a\n"
LINES = 100


def test_the_report_counts_the_words_of_the_text(
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


def console_producer(folder: Path) -> Path:
    """A kafka-console-producer.sh: the stock one of the release that the tests pin."""
    program = folder / "kafka-console-producer.sh"
    command = java_command(VERSION, "kafka.tools.ConsoleProducer", [], (*QUICK_START, *QUIET))
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return program


def test_console_producer_lines_are_counted_and_a_broker_with_words_is_unchanged(
    spark: SparkSession, spark_broker: BrokerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    text.write_text("to be or not to be\n" * 5)
    at = ["--bootstrap", spark_broker.bootstrap, "--text", str(text), "--rate", "100"]
    assert pipeline.main([*at, "--output", str(tmp_path / "none"), "--console-producer", str(tmp_path / "no")]) == 1
    assert f"{tmp_path / 'no'} is no program that can be run" in capfd.readouterr().err
    typed = ["--console-producer", str(console_producer(tmp_path))]
    assert pipeline.main([*at, "--output", str(tmp_path / "words"), *typed]) == 0
    report = (tmp_path / "words" / "report.txt").read_text()
    assert report.split() == ["be", "10", "to", "10", "not", "5", "or", "5"]
    assert pipeline.main([*at, "--output", str(tmp_path / "more")]) == 1
    assert "would be counted, too" in capfd.readouterr().err
