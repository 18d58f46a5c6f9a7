"""The application reset: Odradek's and the stock tool do the same to applications on odradek.streams, which then start
over.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.cli import main
from odradek.streams.reset import before_ms, clipped, internal_topics, moment_ms, of_administrator, read_plan
from odradek.streams.runtime import KafkaStreams, State
from tests.jvm.kafka import Kafka, running_kafka
from tests.jvm.tools import run_tool
from tests.streams import counting
from tests.streams.counting import QUICK, all_of, await_counts, word_counts

RELEASE = "3.9.2"
WORDS = "reset-words"
VOCABULARY = [f"word{number % 7}" for number in range(60)]
Broker = BrokerProcess | Kafka
NOTIFIED = re.compile(r"Topic: (\S+)\s+Partition: (\d+)\s+Offset: (\d+)")


def test_offsets_stay_within_a_partition() -> None:
    printed: list[str] = []
    assert [clipped(offset, 5, 9, printed.append) for offset in (4, 5, 6, 9, 10)] == [5, 5, 6, 9, 9]
    assert len(printed) == 2


def test_internal_topics_are_found_by_their_names() -> None:
    own = [
        "app-a-changelog",
        "app-b-repartition",
        "app-x-subscription-registration-topic",
        "app-x-subscription-response-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000007-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000009-topic",
    ]
    others = ["app-a", "app2-a-changelog", "a-changelog", "app-a-changelog-2", "app-KTABLE-FK-JOIN-topic"]
    assert internal_topics("app", [*others, *own]) == own


def test_the_properties_of_an_application_are_those_of_its_administrator() -> None:
    application = {
        "application.id": "app",
        "state.dir": "/var/lib/app",
        "num.stream.threads": "2",
        "metrics.recording.level": "DEBUG",
        "consumer.fetch.wait.max.ms": "5",
        "topic.min.insync.replicas": "1",
        "client.tag.zone": "a",
        "client.id": "app-1",
        "security.protocol": "SASL_SSL",
        "sasl.username": "alice",
        "admin.client.sasl.username": "root",
        "no.such.property": "1",
    }
    assert of_administrator(application) == {
        "client.id": "app-1",
        "security.protocol": "SASL_SSL",
        "sasl.username": "root",
        "no.such.property": "1",  # an error, as before
    }


@pytest.mark.parametrize("option", [False, True])
def test_a_function_of_the_properties_may_be_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: bool
) -> None:
    """The error is that of the next property: the function was found."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = f"own_tokens_{option}"
    (tmp_path / f"{module}.py").write_text("def token(argument): ...")
    (tmp_path / "app.properties").write_text(f"oauth_cb={module}.token\nno.such.property=1\n")
    arguments = ["--application-id=a", f"--config-file={tmp_path / 'app.properties'}"]
    if option:
        arguments.append(f"--app-dir={tmp_path}")
    else:
        monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["streams", "reset", *arguments])
    assert result.exit_code == 1
    assert 'No such configuration property: "no.such.property"' in result.output


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01.500", 1_500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("2020-02-29T12:00:00.000Z", 1_582_977_600_000),
    ],
)
def test_moments(text: str, ms: int) -> None:
    assert moment_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "ms"), [("PT4H", 14_400_000), ("P1DT1M", 86_460_000), ("PT0.5S", 500), ("-PT1S", -1_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert before_ms(text, 10**9) == 10**9 - ms


@pytest.mark.parametrize("text", ["4H", "P", "PT", "PT4", "P4H", "four hours"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="PnDTnHnMnS"):
        before_ms(text)


def test_plans(tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("a,0,5\na,1,7\n")
    assert read_plan(plan) == {("a", 0): 5, ("a", 1): 7}
    for text, problem in (("", "empty"), ("a,0\n", "TOPIC,PARTITION,OFFSET")):
        plan.write_text(text)
        with pytest.raises(ValueError, match=problem):
            read_plan(plan)


class Application:
    """One of two like applications, each reset by a tool of its own."""

    def __init__(self, broker: Broker, folder: Path, name: str) -> None:
        self.broker, self.folder, self.name = broker, folder, name
        self.counts = f"{name}-counts-out"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        counting.make_topics(broker.bootstrap, {self.counts: 1})

    @contextmanager
    def running(self, session_ms: int = 1_000) -> Iterator[KafkaStreams]:
        config = {
            **QUICK,
            "application.id": self.name,
            "bootstrap.servers": self.broker.bootstrap,
            "state.dir": str(self.folder / self.name),
            "session.timeout.ms": session_ms,
            "internal.leave.group.on.close": False,
        }
        with KafkaStreams(word_counts(WORDS, self.counts), config) as streams:
            streams.wait_until(State.RUNNING, 30)
            yield streams

    def run(self, times: int, session_ms: int = 1_000) -> None:
        """Count all words, so that the output has each count this often."""
        with self.running(session_ms) as streams:
            expected = Counter(VOCABULARY)
            found = await_counts(
                self.broker.bootstrap,
                lambda found: all(len(found.get(word, ())) >= times * count for word, count in expected.items()),
                self.counts,
            )
            assert {word: sorted(counts) for word, counts in found.items()} == {
                word: sorted([*range(1, count + 1)] * times) for word, count in expected.items()
            }
        streams.clean_up()

    def members(self) -> int:
        return len(self.admin.describe_consumer_groups([self.name])[self.name].result(30).members)

    def state(self) -> tuple[dict[int, int], list[str]]:
        """The offsets in the input topic, and the application's own topics."""
        asked = ConsumerGroupTopicPartitions(self.name, [Place(WORDS, 0), Place(WORDS, 1)])
        found = self.admin.list_consumer_group_offsets([asked])[self.name].result(30).topic_partitions
        topics = internal_topics(self.name, sorted(self.admin.list_topics(timeout=30).topics))
        return {each.partition: each.offset for each in found}, [topic.removeprefix(self.name) for topic in topics]

    def reset(self, *how: str, tool: str) -> tuple[int, str]:
        """Exit status, and output."""
        arguments = ["--application-id", self.name, "--bootstrap-server", self.broker.bootstrap, *how]
        if tool == "stock":
            result = run_tool(RELEASE, "kafka-streams-application-reset", arguments, check=False)
            return result.status, result.stdout + result.stderr
        ours = CliRunner().invoke(main, ["streams", "reset", *arguments])
        return ours.exit_code, ours.output


def prepare(broker: Broker) -> None:
    counting.make_topics(broker.bootstrap, {WORDS: 2})
    counting.write_words(broker.bootstrap, VOCABULARY, WORDS)


@pytest.mark.jvm
@pytest.mark.slow
def test_the_stock_tool_and_odradeks_do_the_same(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        prepare(broker)
        both = {tool: Application(broker, tmp_path, f"{tool}-app") for tool in ("stock", "our")}
        for each in both.values():
            each.run(1, session_ms=30_000)
            assert each.members() == 1, "it has not left: its session is still open"
        plan = tmp_path / "plan.csv"
        plan.write_text(f"{WORDS},0,4\n{WORDS},1,5\n")
        topics = ("--input-topics", WORDS)
        untouched = both["our"].state()

        def same(*how: str, status: int = 0) -> tuple[dict[int, int], list[str]]:
            notified = {}
            for tool, each in both.items():
                code, output = each.reset(*how, tool=tool)
                assert code == status, f"{tool}: {output}"
                notified[tool] = sorted(NOTIFIED.findall(output)), each.state()
            assert notified["stock"] == notified["our"]
            return notified["our"][1]

        assert same(*topics, status=1) == untouched, "a member that has not left"
        assert same(*topics, "--dry-run", "--force") == untouched
        for each in both.values():
            assert each.members() == 0
        assert same(*topics, "--internal-topics", "nobody-s-changelog", status=1)[1] == untouched[1]
        assert same(*topics, "--from-file", str(plan)) == ({0: 4, 1: 5}, [])
        assert same(*topics, "--shift-by", "-2")[0] == {0: 2, 1: 3}
        assert same(*topics, "--to-offset", "1000")[0] == untouched[0]
        assert same("--input-topics", f"{WORDS},nowhere", "--by-duration", "PT4H", status=1)[0] == {0: 0, 1: 0}
        assert same(*topics, "--to-datetime", "2100-01-01T00:00:00.000")[0] == untouched[0]
        moved = ("--input-topics", "nowhere", "--intermediate-topics", WORDS)
        assert same(*topics)[0] == {0: 0, 1: 0}
        assert same(*moved, status=1)[0] == untouched[0]
        assert same(*topics, "--to-earliest")[0] == {0: 0, 1: 0}
        for each in both.values():
            each.run(2)


@pytest.mark.jvm
@pytest.mark.slow
def test_an_application_on_apache_kafka_begins_anew(tmp_path: Path) -> None:
    with running_kafka(tmp_path / "kafka", dict(counting.BROKER)) as kafka:
        prepare(kafka)
        application = Application(kafka, tmp_path, "ours")
        with application.running() as streams:
            await_counts(kafka.bootstrap, all_of(Counter(VOCABULARY)), application.counts)
            status, output = application.reset("--input-topics", WORDS, tool="our")
            assert (status, "still has members" in output) == (1, True)
        streams.clean_up()
        status, output = application.reset("--input-topics", WORDS, "--force", tool="our")
        assert status == 0, output
        assert application.state() == ({0: 0, 1: 0}, [])
        application.run(2)


def test_failures_are_reported() -> None:
    runner = CliRunner()
    lost = ["streams", "reset", "--application-id", "a", "--bootstrap-server", "localhost:1"]
    result = runner.invoke(main, [*lost, "--config-file", "/dev/null", "--to-offset", "1", "--shift-by", "2"])
    assert result.exit_code == 2
    assert "--to-offset cannot be used with --shift-by" in result.output
    result = runner.invoke(main, [*lost, "--by-duration", "4H"])
    assert result.exit_code == 2
    assert "--by-duration: '4H'" in result.output
