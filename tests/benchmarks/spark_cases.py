"""The cases of the Spark jobs: archive, windows and mirror over topics of 1 KB and of 100 B records.

Both brokers stay up and take turns, round by round; one Spark session on all cores serves both. A job runs to the end
of its topic (--once); its time is that of the whole run, from the first request to the broker to the last commit,
without the start of Spark. Round 0 warms up and is not counted. Topics are filled before, by librdkafka, the same for
both. The output of a job is counted afterwards. Broker and Spark share the machine, so the ratio shows what a job gains
or loses by the broker and not the limit of Spark.
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from confluent_kafka import Producer

from odradek.spark_jobs import archive, mirror, windows
from odradek.spark_jobs.connector import JARS_VARIABLE
from odradek.spark_jobs.kafka_admin import KafkaAdmin
from odradek.spark_jobs.session import open_session
from tests.benchmarks import usage
from tests.benchmarks.broker_course import BrokerCourse
from tests.benchmarks.cases import TOOL_START_S
from tests.benchmarks.cluster_cases import Measure
from tests.benchmarks.contestants import Contestant, contestant
from tests.benchmarks.picking import pick_from
from tests.benchmarks.rounds import MB
from tests.jvm.jars import classpath
from tests.jvm.java import find_java, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES: Final = ("kafka", "odradek")
PARTITIONS: Final = 4
BATCHES: Final = 4
"""How many batches a job makes of a topic."""
KEYS: Final = 1_000
TIMEOUT_S: Final = 120.0

Job = Literal["archive", "windows", "mirror"]
MEASURES: Final = (
    Measure("records_per_s", "records a second", 0, least=1.0),
    Measure("seconds", "s of the job", 2),
    Measure("cpu_s", "CPU s of the broker", 2, largest=0.5),
    Measure("resident_mb", "resident MB of the broker", 0),
)


@dataclass(frozen=True, slots=True)
class SparkCase:
    """One job over one topic. `expected_s` is a guess at the length of a round of both."""

    name: str
    title: str
    job: Job
    value_bytes: int
    records: int
    expected_s: float
    measures: tuple[Measure, ...] = MEASURES

    def scaled(self, factor: float) -> SparkCase:
        """The same with `factor` times the records."""
        records = max(1_000, round(self.records * factor))
        expected_s = TOOL_START_S + (self.expected_s - TOOL_START_S) * records / self.records
        return replace(self, records=records, expected_s=expected_s)

    @property
    def amount(self) -> str:
        """The size in words."""
        return f"{self.records:,} records"


_SIZES: Final = (("1kb", "1 KB", 1_000, 50_000), ("100b", "100 B", 100, 200_000))
SPARK_CASES: tuple[SparkCase, ...] = tuple(
    SparkCase(f"spark-{job}-{size}", f"{job}, records of {words}", job, value_bytes, records, 20)
    for job in ("archive", "windows", "mirror")
    for size, words, value_bytes, records in _SIZES
)


def pick(names: Sequence[str]) -> tuple[list[SparkCase], list[str]]:
    """The cases of these names, all if there are none, and the names that are not of a case here."""
    return pick_from(SPARK_CASES, names)


class SparkCourse(BrokerCourse):
    """The cases, one after the other, each with all rounds."""

    def run(self, cases: Sequence[SparkCase]) -> None:
        """Run them all. A failure is recorded and does not end the rest."""
        with self._brokers(contestant) as contestants, ExitStack() as stack:
            own = active() is None
            spark = session()
            if own:
                stack.callback(spark.stop)
            for case in cases:
                self._run_case(case, contestants, spark)

    def _run_case(self, case: SparkCase, contestants: Sequence[Contestant], spark: SparkSession) -> None:
        source = f"{case.name}-source"
        try:
            for each in contestants:
                self._say(f"{case.name}: filling {case.amount}: {each.name}")
                each.make_topic(source, PARTITIONS)
                fill(each.bootstrap, source, case)
        except Exception as error:
            self._fail(case.name, "both", 0, error)
            return
        for number in self._rounds_in_time(case.name):
            for each in contestants:
                folder = self._folder / each.name / f"{case.name}-{number}"
                run = functools.partial(measure, spark, each, case, source, folder)
                self._keep(case.name, each.name, number, run)
        for each in contestants:
            each.drop_topic(source)


def active() -> SparkSession | None:
    """The session that this process has already."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def session() -> SparkSession:
    """The session of this process, or a new one with the pinned jars."""
    found = active()
    if found is not None:
        return found
    os.environ[JARS_VARIABLE] = os.pathsep.join(map(str, classpath("spark-4.2.0")))
    os.environ["JAVA_HOME"] = str(java_home(find_java()))
    return open_session("bench")


def fill(bootstrap: str, topic: str, case: SparkCase) -> None:
    """Write the records of a case, in turn to each partition, a ms apart; raises TimeoutError."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 200_000, "log_level": 2})
    value = os.urandom(case.value_bytes // 2).hex().encode()
    now_ms = round(time.time() * 1000) - case.records
    for number in range(case.records):
        key = b"%d" % (number % KEYS)
        while True:
            try:
                producer.produce(topic, value, key, number % PARTITIONS, timestamp=now_ms + number)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(TIMEOUT_S):
        raise TimeoutError(f"{topic} cannot be filled within {TIMEOUT_S:g} s")


def measure(spark: SparkSession, one: Contestant, case: SparkCase, source: str, folder: Path) -> Mapping[str, float]:
    """One run of a job. Raises RuntimeError where it fails or its output is wrong."""
    folder.mkdir()
    copy = f"{source}-copy"
    output = folder / "output"
    common = ["--bootstrap", one.bootstrap, "--topic", source, "--once", "--checkpoint", str(folder / "checkpoint")]
    common += ["--batch-records", str(-(-case.records // BATCHES))]
    jobs: dict[Job, tuple[Callable[[Sequence[str]], int], list[str]]] = {
        "archive": (archive.main, ["--output", str(output)]),
        "windows": (windows.main, ["--output", str(output), "--size", "10s", "--lateness", "1s"]),
        "mirror": (mirror.main, ["--to-bootstrap", one.bootstrap, "--to-topic", copy]),
    }
    main, own = jobs[case.job]
    if case.job == "mirror":
        one.make_topic(copy, PARTITIONS)
    os.sync()
    cpu_s = usage.cpu_seconds(one.pid)
    began = time.perf_counter()
    status = main([*common, *own])
    seconds = time.perf_counter() - began
    cpu_s = usage.cpu_seconds(one.pid) - cpu_s
    resident_mb = usage.memory(one.pid).resident / MB
    if status:
        raise RuntimeError(f"{case.job} ended with status {status}")
    check(spark, one, case, output, copy)
    if case.job == "mirror":
        one.drop_topic(copy)
    shutil.rmtree(folder)
    return {
        "records_per_s": case.records / seconds,
        "seconds": seconds,
        "cpu_s": cpu_s,
        "resident_mb": resident_mb,
    }


def check(spark: SparkSession, one: Contestant, case: SparkCase, output: Path, copy: str) -> None:
    """Raises RuntimeError where the output of a job is wrong."""
    if case.job == "mirror":
        with KafkaAdmin(spark, {"bootstrap.servers": one.bootstrap}) as admin:
            found = sum(admin.ends({copy: PARTITIONS})[copy].values())
        wanted = range(case.records, case.records + 1)
    elif case.job == "archive":
        found = archive.read_archive(spark, str(output)).count()
        wanted = range(case.records, case.records + 1)
    else:
        # The last window stays open, and the watermark closes those that end a second before the last record.
        total = spark.read.parquet(str(output)).groupBy().sum("count").first() if output.exists() else None
        found = 0 if total is None or total[0] is None else total[0]
        wanted = range(max(0, case.records - 21_000), case.records + 1)
    if found not in wanted:
        raise RuntimeError(f"{case.job} wrote {found:,} of {case.records:,} records")
