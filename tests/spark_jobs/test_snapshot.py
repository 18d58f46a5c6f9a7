"""snapshot: the fold of the written records, by offset, in versions that appear whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.spark_jobs import snapshot, snapshot_table
from odradek.spark_jobs.errors import DONE, FAILED, NOT_THERE
from odradek.spark_jobs.snapshot_table import SnapshotTable
from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.copies import SCHEMA, Record
from tests.spark_jobs.snapshot_job import table_of
from tests.spark_jobs.topics import TIMEOUT_S, make_topics, read, unique, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

Row = tuple[int, int, bytes | None, bytes | None]
"""partition, offset, key, value."""
Run = Callable[..., int]
PARTITIONS = 2
COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact,delete",  # brokers reject DeleteRecords for a topic that is compacted only
    "retention_ms": "-1",
    "segment_bytes": "4096",
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": "86400000",
}


def drawn(count: int, seed: int, ends: dict[int, int]) -> list[Row]:
    """Values and tombstones for few keys; the same key is in both partitions. `ends` go on."""
    draw = random.Random(seed)
    rows: list[Row] = []
    for number in range(count):
        partition = draw.randrange(len(ends))
        value = None if draw.random() < 0.3 else f"{seed}-{number}".encode()
        rows.append((partition, ends[partition], f"k{draw.randrange(12)}".encode(), value))
        ends[partition] += 1
    return rows


def write_rows(bootstrap: str, topic: str, rows: list[Row]) -> None:
    write(bootstrap, [Record(topic, partition, offset, value, key) for partition, offset, key, value in rows])


@pytest.fixture
def topic(spark_broker: BrokerProcess) -> str:
    name = unique("snapshot")
    make_topics(spark_broker.bootstrap, {name: PARTITIONS}, **COMPACTED)
    return name


@pytest.fixture
def run(spark: SparkSession, spark_broker: BrokerProcess, topic: str, tmp_path: Path) -> Run:
    """Runs the job on the topic of the test; returns its status."""

    def job(*more: str, output: Path = tmp_path / "table", of: str = topic) -> int:
        own = ["--bootstrap", spark_broker.bootstrap, "--topic", of, "--output", str(output)]
        return snapshot.main([*own, *more])

    return job


def test_versions_are_the_fold_of_the_written_records(
    run: Run, spark_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """Three versions: a new one, one built on it, and one with a new partition. A run without new records makes none;
    old ones are deleted.
    """
    folder, bootstrap = tmp_path / "table", spark_broker.bootstrap
    table = SnapshotTable(str(folder))
    ends, rows, sizes = dict.fromkeys(range(PARTITIONS), 0), [], []
    for version in (1, 2, 3):
        if version == 3:
            _add_partition(bootstrap, topic)
            ends[PARTITIONS] = 0
        more = drawn(150, version, ends)
        write_rows(bootstrap, topic, more)
        rows += more
        assert run("--keep", "2") == DONE
        manifest = table.manifest()
        assert (manifest.version, manifest.offsets) == (version, {topic: ends})
        expected = oracle.latest(rows)
        assert table_of(folder) == expected
        assert manifest.rows == len(expected)
        sizes.append(len(expected))
    assert run("--keep", "2") == DONE
    assert table.versions() == [2, 3]
    assert [len(table_of(folder, version)) for version in (2, 3)] == sizes[1:]
    folders = {path.name for path in (folder / "data").iterdir()}
    assert folders == {Path(table.manifest(version).data).name for version in (2, 3)}
    seen = [(each.partition, each.offset, each.key, each.value) for each in read(bootstrap, {topic: len(ends)})]
    assert oracle.latest(seen) == expected


def _add_partition(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)]).values():
        done.result(TIMEOUT_S)


def test_a_version_that_was_not_published_has_no_effect(
    run: Run, spark_broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ends = tmp_path / "table", dict.fromkeys(range(PARTITIONS), 0)
    rows = drawn(20, 1, ends)
    write_rows(spark_broker.bootstrap, topic, rows)
    assert run() == DONE
    first = table_of(folder)
    more = drawn(20, 2, ends)
    write_rows(spark_broker.bootstrap, topic, more)

    def killed(path: Path, text: str) -> None:
        raise OSError("killed before the rename")

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_table, "write_atomically", killed)
        assert run() == FAILED
    assert SnapshotTable(str(folder)).versions() == [1]
    assert table_of(folder) == first
    assert len(list((folder / "data").iterdir())) == 2
    assert run() == DONE
    assert table_of(folder) == oracle.latest([*rows, *more])
    assert len(list((folder / "data").iterdir())) == 2


def test_an_old_version_is_not_built_on_and_full_builds_anew(
    run: Run, spark_broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """A key that the log does not have any more shows which of them were built on."""
    folder = tmp_path / "table"
    write_rows(spark_broker.bootstrap, topic, [(0, 0, b"gone", b"1"), (0, 1, b"kept", b"1"), (0, 2, b"kept", b"2")])
    assert run() == DONE
    _delete_before(spark_broker.bootstrap, topic, 0, 2)
    assert run("--full") == DONE
    assert table_of(folder) == {(0, b"kept"): (2, b"2")}
    write_rows(spark_broker.bootstrap, topic, [(0, 3, b"new", b"3")])
    assert run("--full-after", "1ms") == DONE
    assert table_of(folder) == {(0, b"kept"): (2, b"2"), (0, b"new"): (3, b"3")}
    write_rows(spark_broker.bootstrap, topic, [(0, 4, b"new", None)])
    _delete_before(spark_broker.bootstrap, topic, 0, 4)
    assert run() == DONE
    assert table_of(folder) == {(0, b"kept"): (2, b"2")}


def _delete_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        done.result(TIMEOUT_S)


def test_deleted_offsets_and_tables_of_another_topic_are_rejected(
    run: Run, spark_broker: BrokerProcess, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_rows(spark_broker.bootstrap, topic, [(0, 0, b"a", b"1")])
    assert run() == DONE
    write_rows(spark_broker.bootstrap, topic, [(0, 1, b"a", b"2"), (0, 2, b"a", b"3")])
    _delete_before(spark_broker.bootstrap, topic, 0, 2)
    assert run() == NOT_THERE
    assert f"offset 1 of {topic}-0 is gone: the partition begins at 2" in capfd.readouterr().err
    other = unique("other")
    assert run(of=other) == NOT_THERE
    assert other in capfd.readouterr().err
    make_topics(spark_broker.bootstrap, {other: 1}, **COMPACTED)
    assert run(of=other) == NOT_THERE
    assert f"the versions are of the topics {topic}" in capfd.readouterr().err
    with SnapshotTable(str(tmp_path / "table")).writing():
        assert run() == FAILED
    assert "another job is writing" in capfd.readouterr().err
    assert run("--full") == DONE


KEYED = st.tuples(st.integers(0, 1), st.sampled_from([b"a", b"b", b"", None]), st.sampled_from([b"1", b"", None]))


@settings(max_examples=2)
@given(rows=st.lists(KEYED, min_size=20, max_size=60), cut=st.integers(0, 60), data=st.data())
def test_any_records_fold_as_in_plain_python_at_once_and_in_two_steps(
    spark: SparkSession, rows: list[tuple[int, bytes | None, bytes | None]], cut: int, data: st.DataObject
) -> None:
    """In any order that Spark has them in; empty is not null."""
    log = [(partition, offset, key, value) for offset, (partition, key, value) in enumerate(rows)]
    parts = [data.draw(st.permutations(part)) for part in (log[:cut], log[cut:], log)]
    frames = [
        spark.createDataFrame(
            [Record("t", partition, offset, value, key).row for partition, offset, key, value in part], SCHEMA
        )
        for part in parts
    ]
    steps = snapshot.transform(frames[1], snapshot.transform(frames[0]))
    for found in (steps.collect(), snapshot.transform(frames[2]).collect()):
        assert _folded(found) == oracle.latest(log)


def _folded(rows: list[Any]) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    found = {(row.partition, bytes(row.key)): (row.offset, bytes(row.value)) for row in rows}
    assert len(found) == len(rows)
    return found
