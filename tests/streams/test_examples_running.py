"""Each example once as its users run it: a command against a broker. All share one broker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from odradek.streams import LONG, STRING, Consumed, Grouped, Produced, StreamsBuilder
from odradek.streams.examples import dead_letters, snapshot, stocks, transfer, word_count
from odradek.streams.examples.running import Written
from odradek.streams.runtime import KafkaStreams, State
from tests.jvm.process import QUIET, BackgroundProcess, java_command
from tests.jvm.tools import run_tool
from tests.streams import counting
from tests.streams.running_example import TIMEOUT_S, Running, write
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

LINES: Final = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("examples"), counting.BROKER) as running:
        yield running


@pytest.mark.jvm
def test_word_count_as_in_the_tutorial_of_kafka(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES))
    with Running(broker, tmp_path / "state", "word_count", "--partitions", "1") as example:
        example.says("RUNNING")
        to = ["--bootstrap-server", broker.bootstrap, "--topic"]
        run_tool("3.9.2", "kafka-console-producer", [*to, word_count.INPUT], stdin=tmp_path / "lines")
        example.says("summit\t1")
        example.end()
        reading = ("print.key=true", "value.deserializer=org.apache.kafka.common.serialization.LongDeserializer")
        properties = [part for each in reading for part in ("--property", each)]
        limits = ["--from-beginning", "--max-messages", "11", "--timeout-ms", "20000"]
        run_tool(
            "3.9.2",
            "kafka-console-consumer",
            [*to, word_count.OUTPUT, *properties, *limits],
            stdout=tmp_path / "counts",
        )
    assert (tmp_path / "counts").read_text().splitlines() == [
        *("all\t1", "streams\t1", "lead\t1", "to\t1", "kafka\t1"),
        *("hello\t1", "kafka\t2", "streams\t2"),
        *("join\t1", "kafka\t3", "summit\t1"),
    ]


def counts_in(printed: Sequence[str]) -> list[str]:
    """The lines with a word and its count."""
    return [line for line in printed if "\t" in line]


def test_word_count_by_windows_shares_no_state_with_the_count_of_all_time(tmp_path: Path) -> None:
    """One user, one broker, one state directory: counts of windows are in a topic, and an application, of their own."""
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        # How many lines each reads: an application that is new begins with the first.
        for arguments, lines in (([], 1), (["--windows", "1h"], 2), (["--windows", "250ms"], 3), ([], 3)):
            with Running(broker, tmp_path / "state", "word_count", "--partitions", "1", *arguments) as example:
                example.says("RUNNING")
                write(broker, [Written(word_count.INPUT, None, b"kafka")])
                stdout = example.process.stdout
                stdout.wait_until(lambda printed, all_of=lines: len(counts_in(printed)) == all_of, TIMEOUT_S)
                counts = counts_in(example.end())
            assert [each.startswith("[kafka@") for each in counts] == [bool(arguments)] * lines
        plain = counting.read_all(broker.bootstrap, word_count.OUTPUT)
        windowed = counting.read_all(broker.bootstrap, word_count.WINDOWED_OUTPUT)
        names = topics_of(broker)
    assert [key for key, _ in plain] == [b"kafka"] * 4
    assert [LONG.deserialize(value) for _, value in plain if value] == [1, 2, 3, 4]
    assert len(windowed) == 2 + 3
    changelogs = {name for name in names if name.endswith("-changelog")}
    assert {name.partition("-KSTREAM")[0] for name in changelogs} == {
        *("streams-wordcount", "streams-wordcount-3600000ms", "streams-wordcount-250ms")
    }


@pytest.mark.jvm
def test_the_same_application_in_java_writes_the_same(broker: BrokerProcess, tmp_path: Path) -> None:
    """One input, an application of Java's and one of Odradek's: output and changelog are equal.

    Records of a repartition topic that were read are deleted; its name is the same.
    """
    counting.make_topics(broker.bootstrap, dict.fromkeys(("lines", "counts-java", "counts-python"), 1))
    lines = [*LINES, " Größe, ÄÖÜ", "", "a-b--c_d 1.5 !"] * 5
    total = sum(len(word_count.words_of(line)) for line in lines)

    def written(language: str) -> list[Any]:
        topics = [f"counts-{language}", f"words-{language}-counts-changelog"]
        return [counting.read_all(broker.bootstrap, topic) for topic in topics]

    write(broker, [Written("lines", None, line.encode()) for line in lines])
    program = str(Path(counting.__file__).parents[1] / "compatibility" / "WordCount.java")
    where = [broker.bootstrap, "words-java", "lines", "counts-java", str(tmp_path / "java")]
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m", *QUIET]
    java = BackgroundProcess(java_command("streams-3.9.2", program, where, options))
    with java, words_in_python(broker, tmp_path, "words-python", "counts-python") as ours:
        java.stdout.wait_for("running", TIMEOUT_S)
        ours.wait_until(State.RUNNING, TIMEOUT_S)
        expected = eventually(lambda: written("java"), lambda found: [*map(len, found)] == [total, total])
        assert eventually(lambda: written("python"), lambda found: len(found[0]) >= total) == expected
        assert {f"words-{language}-counts-repartition" for language in ("java", "python")} <= topics_of(broker)


def words_in_python(broker: BrokerProcess, folder: Path, application_id: str, counts: str) -> KafkaStreams:
    """WordCount.java in Python."""
    builder = StreamsBuilder()
    (
        builder.stream("lines", Consumed(STRING, STRING))
        .flat_map_values(word_count.words_of)
        .group_by(lambda key, word: word, Grouped(STRING, STRING))
        .count("counts")
        .to_stream()
        .map_values(str)
        .to(counts, Produced(STRING, STRING))
    )
    config = {
        **counting.QUICK,
        "application.id": application_id,
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(folder / application_id),
        "processing.guarantee": "exactly_once_v2",
    }
    return KafkaStreams(builder.build(), config)


def topics_of(broker: BrokerProcess) -> set[str]:
    """The existing topics."""
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=TIMEOUT_S).topics)


def test_stocks(broker: BrokerProcess, tmp_path: Path) -> None:
    with Running(broker, tmp_path, "stocks", "--rate", "200") as example:
        example.says("trades  least")
        example.end()
    keys = [
        stocks.WINDOW_KEYS.deserialize(key) for key, _ in counting.read_all(broker.bootstrap, stocks.STATISTICS) if key
    ]
    assert keys
    assert len(set(keys)) == len(keys)


def test_clicks(broker: BrokerProcess, tmp_path: Path) -> None:
    with Running(broker, tmp_path, "clicks", "--rate", "100") as example:
        example.says("(Prague) looked at /castle after searching for")
        example.end()


def test_transfers_over_a_kill(broker: BrokerProcess, tmp_path: Path) -> None:
    with Running(broker, tmp_path, "transfer", "--rate", "100") as example:
        entries = lambda: transfer.committed_entries(broker.bootstrap)  # noqa: E731
        eventually(entries, lambda found: len(found) > 50)
        example.kill()
        before = len(entries())
        eventually(entries, lambda found: len(found) > before + 50)
        printed = example.end()
    assert printed[-1].startswith("audit: 5 accounts, 1000 deposited")
    assert transfer.audit(entries()).deposited == 1000


def test_a_snapshot_over_a_kill(broker: BrokerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    options = ["--rate", "0", "--snapshots", str(folder), "--partitions", "1", "--property", "commit.interval.ms=100"]

    def readings(values: range) -> list[Written]:
        return [Written(snapshot.READINGS, b"sensor", json.dumps(value).encode()) for value in values]

    with Running(broker, tmp_path, "snapshot", *options) as example:
        example.says("no snapshot, begins with nothing")
        write(broker, readings(range(100)))
        example.says("100 readings")
        eventually(lambda: sorted(folder.glob("*.json")), bool)
        example.kill()
        write(broker, readings(range(100, 200)))
        example.says("recovered 1 sensors after")
        example.says("200 readings  from   0.00 to 199.00  mean  99.50")
        example.end()


def test_dead_letters(broker: BrokerProcess, tmp_path: Path) -> None:
    with Running(broker, tmp_path, "dead_letters", "--rate", "0") as example:
        example.says("RUNNING")
        values = [b'{"pieces": 1, "total": 100}', b"poison", b'{"pieces": 0, "total": 1}']
        values += [b'{"pieces": 1, "total": %d}' % 10**20, b'{"pieces": 2, "total": 300}']
        write(broker, [Written(dead_letters.ORDERS, b"k", value) for value in values])
        for kind in ("deserialization at orders", "processing at price", "production at totals"):
            example.says(kind)
        example.says("2 at 1.50 each, in all 3.00")
        example.end()
    totals = counting.read_all(broker.bootstrap, dead_letters.TOTALS)
    assert [int.from_bytes(value or b"", "big") for _, value in totals] == [100, 300]
    dead = counting.read_all(broker.bootstrap, dead_letters.DEAD)
    assert [value for _, value in dead] == [b"poison", b'{"pieces": 0, "total": 1}', str(10**20).encode()]


def test_queries_over_http(broker: BrokerProcess, tmp_path: Path) -> None:
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]

    def ask(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://{places[0]}/{path}", timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.HTTPError, urllib.error.URLError):  # it moves, or has not started yet
            return None

    with (
        Running(broker, tmp_path / "1", "queries_http", "--http", places[0], "--rate", "50") as one,
        Running(broker, tmp_path / "2", "queries_http", "--http", places[1], "--rate", "0") as other,
    ):
        words = ["flat", "star", "spool", "thread", "old", "broken"]
        found = eventually(
            lambda: [ask(f"counts/{word}") for word in words],
            lambda found: (
                all(each and each["count"] for each in found) and {each["instance"] for each in found} == set(places)
            ),
        )
        assert [each["word"] for each in found] == words
        assert ask("instances") == sorted(places)
        assert ask("counts")["instance"] == places[0]
        one.end()
        other.end()
