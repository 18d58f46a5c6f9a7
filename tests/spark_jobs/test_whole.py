"""Each job, whole: 40,000 records of all codecs among aborted batches, over a cluster of Odradek all of whose leaders
change in the midst of the job, and over Apache Kafka. The output of a job equals plain Python's for the same input, and
is the same on both.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from odradek.cluster_process import ClusterProcess
from odradek.spark_jobs import (
    archive,
    dedup_sink,
    mirror,
    progress,
    reconcile,
    replay,
    sessions,
    snapshot,
    source,
    windows,
)
from odradek.spark_jobs.command import offsets_json, parse_offsets
from odradek.spark_jobs.errors import DIFFERENCES, DONE
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
from tests.spark_jobs.copies import Record
from tests.spark_jobs.whole_input import LATE_MS, PARTITIONS, RECORDS, Plan
from tests.support.partition_moves import elect_preferred, reassign

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.usefixtures("spark")]

BATCH: Final = RECORDS * 3 // 10
LEAST_BATCHES: Final = 4
SIZE_MS: Final = 10_000
GAP_MS: Final = 5_000
LATENESS_MS: Final = 3_000
SINCE: Final = LATE_MS + 20_000
TAIL: Final = 100
DEADLINE_S: Final = 300.0
Check = Callable[[Any, Any], None]


class Ground:
    """A cluster with the input in it, where jobs write to `folder`. Leaders of `cluster` can change."""

    def __init__(self, bootstrap: str, cluster: ClusterProcess | None, plan: Plan, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.plan = plan
        self.folder = folder
        self._cluster = cluster
        self.moves = cluster is not None
        self.group = f"{plan.topic}-group"
        self.replayed, self.tail = f"{plan.topic}-replayed", f"{plan.topic}-tail"
        sizes = {plan.topic: PARTITIONS, self.replayed: PARTITIONS, self.mirrored(plan.topic): PARTITIONS}
        self._sizes = sizes | {self.tail: 1, self.mirrored(self.tail): 1}
        topics.make_topics(bootstrap, self._sizes, replicas=3 if cluster else 1)
        if cluster is not None:
            for name in self._sizes:
                cluster.await_topic(name)
        plan.write(bootstrap)

    @staticmethod
    def mirrored(topic: str) -> str:
        """The name of a topic's copy."""
        return f"{topic}-mirrored"

    def move_leaders(self) -> None:
        """Another broker becomes the leader of each partition of the input and of its copies."""
        if self._cluster is None:
            return
        brokers = sorted(self._cluster.brokers)
        wanted = {}
        for place in [(name, number) for name, size in self._sizes.items() for number in range(size)]:
            behind = brokers.index(self._cluster.leader_of(*place)) + 1
            wanted[place] = brokers[behind:] + brokers[:behind]
        reassign(self._cluster, wanted)
        elect_preferred(self._cluster, wanted)

    def run(self, job: Any, *more: str, status: int = DONE) -> None:
        """Runs a job on the input."""
        assert job.main(["--bootstrap", self.bootstrap, "--topic", self.plan.topic, *more]) == status

    def stream(self, job: Any, output: str, *more: str) -> Path:
        """Runs a job that writes by foreachBatch, once; returns its folder, with its checkpoint in it."""
        folder = self.folder / job.__name__.rpartition(".")[2]
        places = ("--checkpoint", str(folder / "checkpoint"), "--output", str(folder / output))
        if not folder.exists():
            with moving_in_the_second_batch(self):
                self.run(job, "--once", "--batch-records", str(BATCH), *places, *more)
        return folder

    def archive(self) -> Path:
        """Runs that job, or reuses its output; returns its folder."""
        return self.stream(archive, "archive", "--group", self.group)

    def replay(self) -> None:
        """Runs that job, if it has not run."""
        checkpoint = self.folder / "replay"
        if not checkpoint.exists():
            more = ("--from", oracle.moment(SINCE).isoformat(), "--batch-records", str(BATCH))
            with moving_at_call(self, 1, replay, "_write", LEAST_BATCHES):
                self.run(replay, *more, "--to", self.replayed, "--checkpoint", str(checkpoint))

    def batches(self, folder: Path, header: str | None = None) -> list[oracle.Batch]:
        """The records of each batch of a query."""
        events = self.plan.events(header)
        batches = oracle.batches_of(folder / "checkpoint", events, LATENESS_MS)
        assert sum(len(batch.events) for batch in batches) == len(events)
        assert len([batch for batch in batches if batch.events]) >= LEAST_BATCHES
        return batches


@contextmanager
def moving_in_the_second_batch(ground: Ground) -> Iterator[None]:
    """Its offsets are known then, and it has read nothing."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    each_batch, notified = DataStreamWriter.foreachBatch, []

    def with_a_move(self: DataStreamWriter, write: Any) -> DataStreamWriter:
        def moved(batch: DataFrame, number: int) -> None:
            notified.append(number)
            if number == 1:
                ground.move_leaders()
            write(batch, number)

        return each_batch(self, moved)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataStreamWriter, "foreachBatch", with_a_move)
        yield
    assert len(notified) >= LEAST_BATCHES


@contextmanager
def moving_at_call(ground: Ground, number: int, owner: Any, name: str, least: int) -> Iterator[None]:
    """Before the call of that number, from 0 on, of at least this many."""
    call, calls = getattr(owner, name), 0

    def moved(*given: Any) -> Any:
        nonlocal calls
        if calls == number:
            ground.move_leaders()
        calls += 1
        return call(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, moved)
        yield
    assert calls >= least > number


@contextmanager
def moving_under_a_running_query(ground: Ground) -> Iterator[None]:
    """After a printed batch; then records are written that a later batch reads, and then the query is stopped."""
    look = progress.Follower.look
    notified: list[int] = []
    ends = {ground.plan.topic: ground.plan.ends, ground.tail: {0: TAIL}}
    deadline = time.monotonic() + DEADLINE_S

    def moved(self: progress.Follower, query: StreamingQuery) -> None:
        assert time.monotonic() < deadline, f"not at {ends} within {DEADLINE_S:g} s"
        look(self, query)
        latest = query.lastProgress
        if latest is None:
            return
        at = latest.sources[0].endOffset
        if not notified:
            ground.move_leaders()
            topics.write(ground.bootstrap, [Record(ground.tail, 0, 0, b"%d" % number) for number in range(TAIL)])
        elif at and parse_offsets(at) == ends:
            query.stop()
        notified.append(latest.batchId)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress.Follower, "look", moved)
        yield
    assert notified[0] < notified[-1] >= LEAST_BATCHES - 1


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan.of(topics.unique("whole"))


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def ground(request: pytest.FixtureRequest, plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """The cluster of Odradek, and again Apache Kafka."""
    cluster = request.getfixturevalue("spark_cluster") if request.param == "odradek" else None
    bootstrap = cluster.bootstrap_servers if cluster else request.getfixturevalue("kafka").bootstrap
    return Ground(bootstrap, cluster, plan, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """The jobs' outputs on the first of the grounds, by name of the test."""
    return {}


@pytest.fixture
def check(request: pytest.FixtureRequest, made: dict[str, Any]) -> Check:
    """Asserts that a job's output is the expected one, and the same as on the other ground."""
    name = request.function.__name__

    def same(found: Any, expected: Any) -> None:
        assert first_difference(found, expected) is None
        assert first_difference(found, made.setdefault(name, found)) is None

    return same


def first_difference(found: Any, expected: Any) -> Any:
    """None where both are equal: 40,000 rows are too many to be shown."""
    if found == expected:
        return None
    left, right = (sorted(each.items(), key=repr) if isinstance(each, dict) else each for each in (found, expected))
    return len(left), len(right), next(pair for pair in zip_longest(left, right) if pair[0] != pair[1])


def test_archive_job(ground: Ground, check: Check) -> None:
    folder = ground.archive()
    check(archive_job.read_files(folder), archive_job.as_archived(ground.plan.committed))
    assert archive_job.committed(ground.bootstrap, ground.group, ground.plan.topic) == ground.plan.ends


def test_replay_job(ground: Ground, check: Check) -> None:
    """From a time on, which lies in the midst of a compressed batch; aborted records count when it is looked up."""
    ground.replay()
    copies = replay_job.as_read(ground.bootstrap, ground.replayed, PARTITIONS)
    check(copies, replay_job.copies_of(ground.plan.since(SINCE)))


def test_mirror_job(ground: Ground, check: Check) -> None:
    with moving_under_a_running_query(ground):
        more = ("--topic", ground.tail, "--to-bootstrap", ground.bootstrap, "--to-topic", ground.mirrored("{topic}"))
        places = ("--batch-records", str(BATCH), "--checkpoint", str(ground.folder / "mirror"))
        ground.run(mirror, *more, *places)
    copies = replay_job.as_read(ground.bootstrap, ground.mirrored(ground.plan.topic), PARTITIONS)
    check(copies, replay_job.copies_of(ground.plan.committed))
    tail = replay_job.as_read(ground.bootstrap, ground.mirrored(ground.tail), 1)
    assert [value for _, _, value, *_ in tail] == [b"%d" % number for number in range(TAIL)]


def test_reconcile_job(ground: Ground, check: Check, tmp_path: Path) -> None:
    """With a copy, of which the first record is taken away."""
    ground.replay()
    archive_job.delete_records(ground.bootstrap, ground.replayed, 1)
    there = ("--with-bootstrap", ground.bootstrap, "--with-topic", ground.replayed)
    more = ("--from", oracle.moment(SINCE).isoformat(), "--report", str(tmp_path / "report"))
    with moving_at_call(ground, 1, source, "read_range", 2):
        ground.run(reconcile, *there, *more, status=DIFFERENCES)
    report = json.loads((tmp_path / "report").read_text())
    first, count = ground.plan.since(SINCE)[0], len(ground.plan.since(SINCE))
    lost = [{"topic": ground.plan.topic, "partition": 0, "offset": first.offset}]
    notified = [report["records"], report["examples"], report["differences"]["loss"]]
    check(notified, [{"left": count, "right": count - 1}, {"loss": lost}, 1])


def test_snapshot_job(ground: Ground, check: Check) -> None:
    """A version of the first half, and one that is built on it; with the aborted records there is another table."""
    half = {partition: end // 2 for partition, end in ground.plan.ends.items()}
    until = offsets_json({ground.plan.topic: half})
    folders = [ground.folder / "snapshot", ground.folder / "uncommitted"]
    with moving_at_call(ground, 1, source, "read_range", 2):
        ground.run(snapshot, "--output", str(folders[0]), "--until", until)
        ground.run(snapshot, "--output", str(folders[0]))
    ground.run(snapshot, "--output", str(folders[1]), "--isolation", "read_uncommitted")
    first = [each for each in ground.plan.committed if each.offset < half[each.partition]]
    expected = [fold(each) for each in (first, ground.plan.committed, ground.plan.everything)]
    found = [snapshot_job.table_of(folder, version) for folder, version in ((folders[0], 1), (folders[0], 2))]
    check([*found, snapshot_job.table_of(folders[1])], expected)
    assert expected[1] != expected[2]


def fold(seen: Sequence[topics.Seen]) -> dict[tuple[int, bytes], tuple[int, bytes]]:
    return oracle.latest((each.partition, each.offset, each.key, each.value) for each in seen)


def test_windows_job(ground: Ground, check: Check) -> None:
    folder = ground.stream(windows, "out", "--size", f"{SIZE_MS}ms", "--lateness", f"{LATENESS_MS}ms")
    expected = oracle.closed_windows(ground.batches(folder), SIZE_MS, SIZE_MS)
    check(windows_job.written(folder), windows_job.as_rows(expected))
    every = oracle.all_windows(ground.plan.events(), SIZE_MS, SIZE_MS)
    assert any(every[window] != count for window, count in expected.items()), "no record was late"


def test_sessions_job(ground: Ground, check: Check) -> None:
    folder = ground.stream(sessions, "out", "--gap", f"{GAP_MS}ms", "--lateness", f"{LATENESS_MS}ms")
    check(sessions_job.written(folder), Counter(oracle.closed_sessions(ground.batches(folder), GAP_MS)))


def test_dedup_sink_job(ground: Ground, check: Check) -> None:
    """The rows of SQLite equal those of Parquet."""
    sink = "events.sqlite" if ground.moves else "events"
    folder = ground.stream(dedup_sink, sink, "--id", "header:id", "--lateness", f"{LATENESS_MS}ms")
    query = json.loads((folder / "checkpoint" / "metadata").read_text())["id"]
    kept = oracle.once_each(ground.batches(folder, "id"), LATENESS_MS)
    check(dedup_sink_job.written(folder, sink, query), Counter((number, *event) for number, event in kept))
    ids = Counter(event.key for _, event in kept)
    assert max(ids.values()) > 1, "no event was repeated after the lateness"
