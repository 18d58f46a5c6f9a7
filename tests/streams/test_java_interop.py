"""One application, by turns Java's and Python's: Kafka Streams 3.9.2 continues where this runtime has stopped, and
back.

Both have the same topology (a new key, counts, windowed counts, a join of tables), so they share repartition topics,
changelogs, and the offsets of the group with their metadata. Exactly once: the output has no gap and no record twice,
whichever language wrote it. Two applications take turns in opposite order, so that each language creates all the
internal topics once.

A group has members of one kind at a time: the coordinator admits the other kind when the last of the former is gone,
which takes session.timeout.ms, as neither leaves the group when it ends.
"""

from __future__ import annotations

import random
import struct
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from odradek.pytest_plugin import BrokerFactory
from odradek.streams.commit_metadata import decode_metadata
from odradek.streams.config import StreamsConfig
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Materialized, Produced
from odradek.streams.group.committed_offsets import fetch
from odradek.streams.group.connection import CoordinatorLink, parse_bootstrap
from odradek.streams.group.group_protocol import MembershipConfig
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import LONG, STRING, windowed_serde
from odradek.streams.topology import Topology
from odradek.streams.windows import TimeWindows
from tests.jvm.process import QUICK_START, QUIET, BackgroundProcess, java_command
from tests.streams import counting
from tests.support.eventually import eventually

RELEASE: Final = "streams-3.9.2"
DEADLINE_S: Final = 60.0
MINUTE_MS: Final = 60_000
WORDS: Final = [f"word{number}" for number in range(12)]
PARTITIONS: Final = 2
BROKER: Final = {**counting.BROKER, "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
OUTPUTS: Final = ("counts", "windowed", "joined")
INTERNAL: Final = ("-changelog", "-repartition")


def topology(application: str) -> Topology:
    """The topology of Interop.java."""
    builder = StreamsBuilder()
    words = (
        builder.stream("lines", Consumed(STRING, STRING))
        .map(lambda key, word: (word, key))
        .group_by_key(Grouped(STRING, STRING))
    )
    words.count(Materialized("totals")).to_stream().to(f"{application}-counts", Produced(STRING, LONG))
    (
        words.windowed_by(TimeWindows.of_size_and_grace(MINUTE_MS, 10 * MINUTE_MS))
        .count()
        .to_stream()
        .to(f"{application}-windowed", Produced(windowed_serde(STRING, MINUTE_MS), LONG))
    )
    left = builder.table("left", Consumed(STRING, STRING))
    right = builder.table("right", Consumed(STRING, STRING), Materialized("rights"))
    left.join(right, lambda one, other: f"{one}+{other}").to_stream().to(
        f"{application}-joined", Produced(STRING, STRING)
    )
    return builder.build()


class JavaTurn:
    """Java runs the application."""

    def __init__(self, bootstrap: str, application: str, folder: Path) -> None:
        program = str(Path(__file__).with_name("Interop.java"))
        arguments = [bootstrap, application, str(folder / f"{application}-java")]
        self._process = BackgroundProcess(java_command(RELEASE, program, arguments, [*QUICK_START, *QUIET]))

    def await_running(self) -> str:
        """Returns the text of describe()."""
        self._process.stdout.wait_for("RUNNING", DEADLINE_S)
        return self._process.stdout.lines()[0].replace("\\n", "\n")

    def end(self, abruptly: bool) -> None:
        if abruptly:
            self._process.kill()
        else:
            self._process.stop(DEADLINE_S)


class PythonTurn:
    """Python runs it."""

    def __init__(self, bootstrap: str, application: str, folder: Path) -> None:
        self._streams = KafkaStreams(
            topology(application),
            {
                **counting.QUICK,
                "application.id": application,
                "bootstrap.servers": bootstrap,
                "state.dir": str(folder / f"{application}-python"),
                "processing.guarantee": "exactly_once_v2",
                "producer.transaction.timeout.ms": 3_000,
            },
        )
        self._streams.start()

    def await_running(self) -> str:
        self._streams.wait_until(State.RUNNING, DEADLINE_S)
        return self._streams.topology.describe()

    def end(self, abruptly: bool) -> None:
        assert self._streams.close(DEADLINE_S)


class Harness:
    """The input, its batch result, and the output of the applications."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._drawn = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._now = time.time_ns() // 1_000_000 - 5 * MINUTE_MS
        self.before = 0
        """How many words there were before the last ones."""
        self.counts: dict[str, int] = defaultdict(int)
        self.windowed: dict[tuple[str, int], int] = defaultdict(int)
        self._rows: dict[str, dict[str, str]] = {"left": {}, "right": {}}

    def write(self, count: int) -> None:
        """This many words, and a row of a table with each third of them."""
        drawn = self._drawn
        self.before = sum(self.counts.values())
        for number in range(count):
            self._now += drawn.randrange(100)
            word = drawn.choice(WORDS)
            self._producer.produce("lines", word.encode(), f"line{number}".encode(), timestamp=self._now)
            self.counts[word] += 1
            self.windowed[word, self._now // MINUTE_MS * MINUTE_MS] += 1
            if number % 3 == 0:
                table, key, row = drawn.choice(["left", "right"]), drawn.choice(WORDS), f"{number}"
                self._rows[table][key] = row
                self._producer.produce(table, row.encode(), key.encode(), timestamp=self._now)
        assert self._producer.flush(DEADLINE_S) == 0

    @property
    def joined(self) -> dict[str, str]:
        left, right = self._rows["left"], self._rows["right"]
        return {key: f"{left[key]}+{right[key]}" for key in left.keys() & right.keys()}

    def read(self, application: str, output: str) -> dict[Any, list[Any]]:
        """The whole output for each key, in its order."""
        found: dict[Any, list[Any]] = defaultdict(list)
        for key, value in counting.read_all(self._bootstrap, f"{application}-{output}"):
            assert key is not None
            assert value is not None
            if output == "windowed":
                found[key[:-8].decode(), struct.unpack(">q", key[-8:])[0]].append(int.from_bytes(value, "big"))
            elif output == "counts":
                found[key.decode()].append(int.from_bytes(value, "big"))
            else:
                found[key.decode()].append(value.decode())
        return found

    def await_some(self, application: str) -> None:
        """Until the application has processed some of the records written last."""
        eventually(lambda: sum(map(len, self.read(application, "counts").values())), lambda found: found > self.before)

    def check(self, application: str) -> None:
        """Await the complete output, and check it."""
        total = sum(self.counts.values())
        for output, expected in (("counts", self.counts), ("windowed", self.windowed)):
            found = eventually(
                lambda output=output: self.read(application, output),
                lambda found: sum(map(len, found.values())) >= total,
            )
            assert found == {key: list(range(1, count + 1)) for key, count in expected.items()}
        eventually(
            lambda: {key: rows[-1] for key, rows in self.read(application, "joined").items()},
            lambda found: found == self.joined,
        )


def await_empty(admin: AdminClient, group: str) -> None:
    """Until the last member is gone."""
    eventually(
        lambda: admin.describe_consumer_groups([group])[group].result(DEADLINE_S).state,
        lambda state: state is ConsumerGroupState.EMPTY,
    )


def internal_topics(admin: AdminClient, application: str) -> dict[str, tuple[int, Mapping[str, str | None]]]:
    """The partitions and all configs of an application's internal topics, by name without the application's."""
    found: dict[str, tuple[int, Mapping[str, str | None]]] = {}
    for name, topic in admin.list_topics(timeout=DEADLINE_S).topics.items():
        if name.startswith(f"{application}-") and name.endswith(INTERNAL):
            (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)]).values()
            configs = {entry.name: entry.value for entry in future.result(DEADLINE_S).values()}
            found[name.removeprefix(application)] = len(topic.partitions), configs
    return found


def check_committed(admin: AdminClient, bootstrap: str, group: str, latest_ms: int, killed: bool) -> None:
    """Beside each offset is the time of its partition, as both languages write it."""
    config = MembershipConfig.of({**StreamsConfig({"application.id": group, "bootstrap.servers": bootstrap})})
    link = CoordinatorLink(parse_bootstrap(bootstrap), group, "test", DEADLINE_S)
    names = [name for name in admin.list_topics(timeout=DEADLINE_S).topics if name.startswith(f"{group}-")]
    sources = ["lines", "left", "right", *(name for name in names if name.endswith("-repartition"))]
    places = [(name, partition) for name in sources for partition in range(PARTITIONS)]
    try:
        committed = fetch(link, config, places, True)
    finally:
        link.forget()
    least = 1 if killed else len(places) - 2  # a partition of a table may have no rows yet
    assert len(committed) >= least
    for place, found in committed.items():
        partition_time, numbers = decode_metadata(found.metadata)
        assert latest_ms - 10 * MINUTE_MS < partition_time <= latest_ms, (group, place, found)
        assert numbers == {}


@pytest.mark.jvm
@pytest.mark.slow
def test_java_and_python_take_turns(odradek_broker_factory: BrokerFactory, tmp_path: Path) -> None:
    broker = odradek_broker_factory(BROKER)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    orders: dict[str, tuple[type[JavaTurn | PythonTurn], ...]]
    orders = {"java-first": (JavaTurn, PythonTurn, JavaTurn), "python-first": (PythonTurn, JavaTurn, PythonTurn)}
    topics = ["lines", "left", "right", *(f"{name}-{output}" for name in orders for output in OUTPUTS)]
    counting.make_topics(broker.bootstrap, dict.fromkeys(topics, PARTITIONS))
    harness = Harness(broker.bootstrap, 3)
    made: dict[str, dict[str, tuple[int, Mapping[str, str | None]]]] = {}
    for number in range(3):
        harness.write(1_500)
        turns = {name: turn[number](broker.bootstrap, name, tmp_path) for name, turn in orders.items()}
        try:
            notified = {name: turn.await_running().replace(name, "") for name, turn in turns.items()}
            assert notified["java-first"] == notified["python-first"]
            for name in turns:
                harness.await_some(name) if number < 2 else harness.check(name)
        finally:
            for turn in turns.values():
                turn.end(abruptly=number == 0)
        for name in orders:
            await_empty(admin, name)
            check_committed(admin, broker.bootstrap, name, time.time_ns() // 1_000_000, killed=number == 0)
            made[name] = made.get(name) or internal_topics(admin, name)
            assert internal_topics(admin, name) == made[name]
    assert len(made["java-first"]) >= 5
    assert made["java-first"] == made["python-first"]
