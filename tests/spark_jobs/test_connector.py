"""The connector's jars: named, or found by Spark's own Ivy, once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import connector
from odradek.spark_jobs.errors import JobError
from tests.spark_jobs.copies import START, Record
from tests.spark_jobs.topics import make_topics, unique, write

COUNT = """
import sys
from odradek.spark_jobs.session import job_session
with job_session("sample", "local[1]") as spark:
    records = spark.read.format("kafka").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
    print("records:", records.load().count())
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, in which no jars are recorded, and no jars that the environment names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(connector.JARS_VARIABLE, raising=False)
    return tmp_path / "cache"


def made(folder: Path, *names: str) -> list[Path]:
    jars = [folder / name for name in names]
    for jar in jars:
        jar.touch()
    return jars


def started(*jars: Path) -> dict[str, str]:
    """Settings of a session for which Ivy found these jars, in Spark's form."""
    return {"spark.jars.packages": connector.CONNECTOR, "spark.jars": ",".join(jar.as_uri() for jar in jars)}


def test_jars_are_resolved_unless_they_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = made(tmp_path, "a.jar", "b.jar")
    assert connector.settings()["spark.jars.packages"] == connector.CONNECTOR
    for named in (str(tmp_path), os.pathsep.join(map(str, jars)), ",".join(map(str, jars))):
        monkeypatch.setenv(connector.JARS_VARIABLE, named)
        assert connector.settings() == {"spark.jars": ",".join(map(str, jars))}
    monkeypatch.setenv(connector.JARS_VARIABLE, str(tmp_path / "c.jar"))
    with pytest.raises(JobError, match=r"names .*c\.jar, where no jar is"):
        connector.settings()


def test_jars_are_resolved_once_while_they_are_there(tmp_path: Path) -> None:
    jars = made(tmp_path, "a b.jar", "c.jar")
    connector.remember({"spark.jars": jars[0].as_uri()})  # named, or another's: Ivy did not resolve the connector
    assert "spark.jars.packages" in connector.settings()
    connector.remember(started(*jars))
    assert connector.settings() == {"spark.jars": ",".join(map(str, jars))}
    jars[1].unlink()
    assert "spark.jars.packages" in connector.settings()


@pytest.mark.parametrize("damage", ["", "[", '{"a": 1}', "[1]", "\0", b"\xff".decode("latin1")])
def test_a_damaged_record_of_jars_is_ignored(damage: str, tmp_path: Path, own_cache: Path) -> None:
    connector.remember(started(*made(tmp_path, "a.jar")))
    (note,) = (own_cache / "odradek").iterdir()
    note.write_text(damage, "latin1")
    assert "spark.jars.packages" in connector.settings()


def test_a_cache_that_cannot_be_written_to_is_no_failure(tmp_path: Path, own_cache: Path) -> None:
    own_cache.write_text("in the way")
    connector.remember(started(*made(tmp_path, "a.jar")))
    assert "spark.jars.packages" in connector.settings()


@pytest.mark.jvm
@pytest.mark.slow
def test_spark_finds_the_connector_itself_and_later_sessions_reuse_it(
    spark_broker: BrokerProcess, spark_environment: dict[str, str]
) -> None:
    """All other tests get the jars that Ivy finds. It keeps its jars in the cache of the tests."""
    topic = unique("found")
    make_topics(spark_broker.bootstrap, {topic: 1})
    write(spark_broker.bootstrap, [Record(topic, 0, 0, b"key", b"value", (), START)])
    given = [Path(jar) for jar in spark_environment[connector.JARS_VARIABLE].split(os.pathsep)]
    home = given[0].parents[2] / "ivy"
    environment = {**os.environ, "JAVA_HOME": spark_environment["JAVA_HOME"]}
    environment["SPARK_SUBMIT_OPTS"] = f"-Duser.home={home} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    command = [sys.executable, "-c", COUNT, spark_broker.bootstrap, topic]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.stdout.endswith("records: 1\n"), ended.stderr
    assert "4 artifacts copied" in ended.stderr or "4 already retrieved" in ended.stderr
    found = [Path(jar) for jar in connector.settings()["spark.jars"].split(",")]
    assert sorted(jar.read_bytes() for jar in found) == sorted(jar.read_bytes() for jar in given)


@pytest.mark.jvm
@pytest.mark.slow
def test_a_folder_is_filled_with_the_jars_of_the_session(spark_environment: dict[str, str], tmp_path: Path) -> None:
    given = [Path(jar) for jar in spark_environment[connector.JARS_VARIABLE].split(os.pathsep)]
    folder = tmp_path / "jars"
    command = [sys.executable, "-m", "odradek.spark_jobs.fetch_connector", str(folder)]
    environment = {**os.environ, **spark_environment}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert {jar.name: jar.read_bytes() for jar in folder.iterdir()} == {jar.name: jar.read_bytes() for jar in given}
    assert ended.stderr.endswith(f"set {connector.JARS_VARIABLE}={folder}\n")
