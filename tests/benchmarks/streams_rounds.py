"""How stream applications are measured: case by case all contestants in turn, against one broker, in rounds.

The clock of a run starts when the application prints that it begins to read (Kafka Streams and Odradek: state RUNNING;
the others: at their first record), and stops at the time that the broker has written into the last record of the output
(LogAppendTime). The end offset of the output is polled to detect that moment; the output is read afterwards and has to
hold the expected records. CPU is that of the application's process between these moments.

No run begins once the time is up; the report lists the runs that were skipped for that.
"""

from __future__ import annotations

import os
import shutil
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.benchmarks import streams_load, usage
from tests.benchmarks.cluster_rounds import ClusterSample
from tests.benchmarks.contestants import Contestant
from tests.benchmarks.rounds import MB, Failure, Say
from tests.benchmarks.streams_applications import Place, RunningApplication, command
from tests.benchmarks.streams_cases import StreamsCase
from tests.benchmarks.streams_topologies import COUNTS, STORE

TIMEOUT_S: Final = 120.0
LONGEST_S: Final = 40.0
_LOOK_S: Final = 0.1
_QUIET_S: Final = 1.2  # longer than a commit interval
_LONG: Final = struct.Struct(">q")
_FOREVER: Final = {"retention.ms": "-1"}
_STAMPED: Final = {**_FOREVER, "message.timestamp.type": "LogAppendTime"}

Beside = Callable[[int], AbstractContextManager[object]]


class DifferentResultError(Exception):
    """An output that differs from the expected one."""


class StreamsCourse:
    """The cases over one broker, which runs. The results are in `samples`, `failures` and `left_out`.

    `beside` gives a context for the pid of each application of Odradek, for a profiler. A run that is not done after
    `longest_s` has failed.
    """

    def __init__(
        self,
        broker: Contestant,
        folder: Path,
        names: Sequence[str],
        say: Say,
        *,
        budget_s: float,
        beside: Beside | None,
        longest_s: float = LONGEST_S,
    ) -> None:
        self.samples: list[ClusterSample] = []
        self.failures: list[Failure] = []
        self.left_out: list[str] = []
        """Runs of the first round that were skipped because the time was up."""
        self._broker = broker
        self._folder = folder
        self._names = names
        self._say = say
        self._began = time.monotonic()
        self._deadline = self._began + budget_s
        self._longest_s = longest_s
        self._beside = beside or (lambda pid: nullcontext())
        self._topics = Topics(broker.bootstrap)
        self._expected: dict[tuple[object, ...], Counter[bytes]] = {}
        self._made: set[str] = set()

    def run(self, cases: Sequence[StreamsCase], rounds: int) -> None:
        """Run up to `rounds` rounds. A failure is recorded and does not end the rest."""
        longest_s = 0.0
        for number in range(1, rounds + 1):
            began = time.monotonic()
            if number > 1 and began + longest_s > self._deadline:
                self._say(f"the time is up: {number - 1} of {rounds} rounds were run")
                return
            for case in cases:
                for name in case.contestants:
                    if name in self._names:
                        self._run_one(case, name, number)
            longest_s = max(longest_s, time.monotonic() - began)

    def _run_one(self, case: StreamsCase, name: str, number: int) -> None:
        elapsed_s = time.monotonic() - self._began
        if time.monotonic() > self._deadline:
            if number == 1:
                self.left_out.append(f"{case.name}: {name}")
            return
        self._say(f"[{elapsed_s:4.0f} s gone] round {number}, {case.name}: {name}")
        try:
            measured = self._restore(case, name, number) if case.restores else self._measure(case, name, number)
        except Exception as error:
            self._fail(case, name, number, error)
        else:
            self._say(
                f"    {measured['records_per_s']:,.0f} records a second, {measured['cpu_s_per_million']:.2f} CPU s/M"
            )
            self.samples.append(ClusterSample(case.name, name, number, measured))

    def _fail(self, case: StreamsCase, name: str, number: int, error: Exception) -> None:
        notified = str(error).strip().splitlines() or [""]
        self.failures.append(Failure(case.name, name, number, f"{type(error).__name__}: {notified[0]}"))
        self._say(f"    failed: {self.failures[-1].reason}")

    def close(self) -> None:
        """Release the clients."""
        self._topics.close()

    # ---- one run

    def _measure(self, case: StreamsCase, name: str, number: int) -> Mapping[str, float]:
        count = case.records_for(name)
        place = self._place(case, name, number, self._source(case, count))
        wanted = self._wanted(case, count)
        self._topics.make(place.output, _STAMPED)
        try:
            os.sync()
            with RunningApplication(command(name, case, place)) as application:
                application.await_line("RUNNING")
                with self._beside(application.pid):
                    watch = Watch(application)
                    self._await(case, place.output, wanted, watch)
                memory = usage.memory(application.pid)
        finally:
            self._clean(place)
        elapsed_s, cpu_s = watch.until(watch.ended_ms / 1000)
        return {
            "records_per_s": count / elapsed_s,
            "cpu_s_per_million": cpu_s / count * 1_000_000,
            "resident_mb": memory.resident / MB,
            "seconds": elapsed_s,
        }

    def _await(self, case: StreamsCase, topic: str, wanted: Counter[bytes], watch: Watch) -> None:
        """Wait until the output is complete. Raises DifferentResultError when it does not get complete in time."""
        deadline = time.monotonic() + self._longest_s
        end, since = 0, time.monotonic()
        counts = case.kind in COUNTS
        enough = sum(wanted.values())
        while True:
            watch.look()
            now, before = time.monotonic(), end
            end = self._topics.end(topic)
            if end != before:
                since = now
            if (end >= enough and not counts) or (end and now - since > _QUIET_S):
                found, watch.ended_ms = self._topics.read(topic, counts)
                if found == wanted:
                    return
                since = now
            if now > deadline:
                found, _ = self._topics.read(topic, counts)
                notified = f"the output has {sum(found.values()):,} records, not {enough:,}"
                raise DifferentResultError(f"after {self._longest_s:g} s {notified}")
            time.sleep(_LOOK_S)

    def _restore(self, case: StreamsCase, name: str, number: int) -> Mapping[str, float]:
        """How long it takes to restore a store of which no file is left on this machine."""
        place = self._place(case, name, number, self._source(case, 1))
        changelog = f"{place.application}-{STORE}-changelog"
        self._topics.make(changelog, {"cleanup.policy": "compact"})
        self._topics.make(place.output, _STAMPED)
        self._topics.fill(
            changelog,
            ((streams_load.key(at), _LONG.pack(at), streams_load.FIRST_MS + at) for at in range(case.records)),
        )
        try:
            os.sync()
            with RunningApplication(command(name, case, place)) as application, self._beside(application.pid):
                _, restored, seconds = application.await_line("RESTORED", self._longest_s).split()
                cpu_s, memory = usage.cpu_seconds(application.pid), usage.memory(application.pid)
        finally:
            self._clean(place)
        if int(restored) != case.records:
            raise DifferentResultError(f"{restored} records were restored, not {case.records}")
        return {
            "records_per_s": case.records / float(seconds),
            "cpu_s_per_million": cpu_s / case.records * 1_000_000,  # includes the time of the start
            "resident_mb": memory.resident / MB,
            "seconds": float(seconds),
        }

    def _place(self, case: StreamsCase, name: str, number: int, source: str) -> Place:
        application = f"{case.name}-{name}-{number}"
        folder = self._folder / application
        folder.mkdir()
        return Place(self._broker.bootstrap, application, source, f"{application}-output", self._table(), folder)

    def _clean(self, place: Place) -> None:
        shutil.rmtree(place.folder, ignore_errors=True)
        self._topics.drop(place.application)

    # ---- input and tables, written once

    def _source(self, case: StreamsCase, count: int) -> str:
        topic = f"records-{case.value_bytes}-{count}"
        if topic not in self._made:
            self._say(f"filling {topic}")
            self._topics.make(topic, _FOREVER)
            self._topics.fill(topic, streams_load.records(count, case.value_bytes))
            self._made.add(topic)
        return topic

    def _table(self) -> str:
        if "rows" not in self._made:
            self._topics.make("rows", _FOREVER)
            self._topics.fill("rows", streams_load.rows())
            self._made.add("rows")
        return "rows"

    def _wanted(self, case: StreamsCase, count: int) -> Counter[bytes]:
        asked = (case.kind, count, case.value_bytes)
        if asked not in self._expected:
            self._expected[asked] = streams_load.expected(case.kind, count, case.value_bytes)
        return self._expected[asked]


class Watch:
    """CPU clock of an application over time."""

    def __init__(self, application: RunningApplication) -> None:
        self._application = application
        self._seen: list[tuple[float, float]] = []
        self.ended_ms = 0
        self.look()

    def look(self) -> None:
        """Read the clock. Raises ToolError where the application has ended."""
        self._application.check()
        try:
            self._seen.append((time.time(), usage.cpu_seconds(self._application.pid)))
        except ProcessLookupError:
            self._application.check()  # it has ended since: this raises with the reason
            raise

    def until(self, moment: float) -> tuple[float, float]:
        """Seconds and CPU seconds from the first reading to a moment (s since the epoch)."""
        began, cpu_before_s = self._seen[0]
        cpu_s = next((cpu for at, cpu in self._seen if at >= moment), self._seen[-1][1])
        return max(moment - began, 0.001), cpu_s - cpu_before_s


class Topics:
    """The broker's topics, of one partition each."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._looking = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "log_level": 2})

    def close(self) -> None:
        """Release the clients."""
        self._looking.close()

    def make(self, topic: str, config: Mapping[str, str]) -> None:
        """Create a topic."""
        for done in self._admin.create_topics([NewTopic(topic, 1, 1, config=dict(config))]).values():
            done.result(TIMEOUT_S)

    def fill(self, topic: str, records: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Write records to a topic, all acknowledged."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "linger.ms": 20,
                "batch.size": 200_000,
                "queue.buffering.max.messages": 1_000_000,
                "enable.idempotence": True,
                "log_level": 2,
            }
        )
        for key, value, timestamp in records:
            while True:
                try:
                    producer.produce(topic, value, key, 0, timestamp=timestamp)
                    break
                except BufferError:
                    producer.poll(0.1)
        if producer.flush(TIMEOUT_S):
            raise TimeoutError(f"{topic} cannot be filled within {TIMEOUT_S:g} s")

    def drop(self, prefix: str) -> None:
        """Delete the topics whose names begin so."""
        names = [name for name in self._admin.list_topics(timeout=TIMEOUT_S).topics if name.startswith(prefix)]
        if names:
            for done in self._admin.delete_topics(names).values():
                done.result(TIMEOUT_S)

    def end(self, topic: str) -> int:
        """The end offset of a topic; markers of transactions count."""
        found = self._looking.get_watermark_offsets(Position(topic, 0), timeout=TIMEOUT_S)
        return 0 if found is None else int(found[1])

    def read(self, topic: str, counts: bool) -> tuple[Counter[bytes], int]:
        """The contents of an output in the form of `streams_load.expected`, and the time of its last record in ms."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "bench",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        latest: dict[bytes, bytes] = {}
        total = last_ms = 0
        try:
            consumer.assign([Position(topic, 0, OFFSET_BEGINNING)])
            deadline = time.monotonic() + TIMEOUT_S
            while time.monotonic() < deadline:
                for message in consumer.consume(10_000, 0.1):
                    error = message.error()
                    if error is None:
                        total += 1
                        last_ms = message.timestamp()[1]
                        if counts:
                            latest[message.key() or b""] = message.value() or b""
                    elif error.code() == KafkaError._PARTITION_EOF:
                        return (summed_up(latest) if counts else Counter({b"": total})), last_ms
        finally:
            consumer.close()
        raise TimeoutError(f"{topic} cannot be read within {TIMEOUT_S:g} s")


def summed_up(latest: Mapping[bytes, bytes]) -> Counter[bytes]:
    """The counts of each word over its windows; they are 8 bytes, or texts."""
    found: Counter[bytes] = Counter()
    for key, value in latest.items():
        word, _, _ = key.partition(b"@")
        found[word] += int(value) if value.isdigit() else _LONG.unpack(value)[0]
    return found
