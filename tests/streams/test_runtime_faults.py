"""Brokers that restart and leaders that die: the application waits for them and goes on, exactly once if configured."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.pytest_plugin import ClusterFactory
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Materialized, Produced
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import versioned_key_value_store
from odradek.streams.topology import Topology
from tests.streams import counting
from tests.streams.counting import COUNTS, QUICK, WORDS, all_of, assert_exactly_once, await_counts, counted, word_counts
from tests.support.eventually import eventually

DEADLINE_S = 60.0


def config(bootstrap: str, folder: Path, **more: Any) -> dict[str, Any]:
    return {
        **QUICK,
        "application.id": "once",
        "bootstrap.servers": bootstrap,
        "state.dir": str(folder / "state"),
        "internal.leave.group.on.close": True,
        "session.timeout.ms": 5_000,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def some_words(count: int) -> list[str]:
    return [f"word{number * 7919 % 13}" for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_broker_restarts(tmp_path: Path, how: str) -> None:
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        counting.make_topics(broker.bootstrap, {WORDS: 2, COUNTS: 2})
        streams = KafkaStreams(
            word_counts(), config(broker.bootstrap, tmp_path, **{"processing.guarantee": "exactly_once_v2"})
        )
        words: list[str] = []
        with streams:
            streams.wait_until(State.RUNNING, DEADLINE_S)
            for _ in range(2):
                fresh = some_words(3_000)
                words += fresh
                before = len(words) - 3_000
                counting.write_words(broker.bootstrap, fresh)
                await_counts(broker.bootstrap, lambda found: sum(map(len, found.values())) > before + 300)  # noqa: B023
                if how == "restart":
                    broker.restart()
                else:
                    broker.kill()
                    broker.start()
            await_counts(broker.bootstrap, all_of(Counter(words)))
            assert_exactly_once(broker.bootstrap, words, "once")
            assert streams.state is State.RUNNING
        assert streams.failure is None


@pytest.mark.slow
def test_a_leader_is_killed(odradek_cluster: ClusterFactory, tmp_path: Path) -> None:
    cluster = odradek_cluster(
        3, counting.BROKER, min_insync_replicas=2, default_replication_factor=3, zookeeper_session_timeout_ms=2_000
    )
    bootstrap = cluster.bootstrap_servers
    counting.make_topics(bootstrap, {WORDS: 2, COUNTS: 2})
    options = {"processing.guarantee": "exactly_once_v2", "replication.factor": 3}
    streams = KafkaStreams(word_counts(), config(bootstrap, tmp_path, **options))
    with streams:
        streams.wait_until(State.RUNNING, DEADLINE_S)
        words = some_words(6_000)
        counting.write_words(bootstrap, words)
        await_counts(bootstrap, lambda found: sum(map(len, found.values())) > 300)
        cluster.kill(cluster.leader_of(COUNTS, 0))
        await_counts(bootstrap, all_of(Counter(words)))
        assert_exactly_once(bootstrap, words, "once")
    assert streams.failure is None


@pytest.mark.slow
def test_at_least_once_loses_no_record(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        counting.make_topics(broker.bootstrap, {WORDS: 2, COUNTS: 2})
        settings = config(broker.bootstrap, tmp_path, **{"session.timeout.ms": 1_000})
        words: list[str] = []
        for _ in range(2):
            fresh = some_words(2_000)
            words += fresh
            process = counting.start_process(settings)
            before = sum(map(len, counted(broker.bootstrap).values()))
            counting.write_words(broker.bootstrap, fresh)
            await_counts(broker.bootstrap, lambda found: sum(map(len, found.values())) > before + 200)  # noqa: B023
            process.kill()
        with KafkaStreams(word_counts(), settings):
            await_counts(broker.bootstrap, all_of(Counter(words)))


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_caches_lose_no_record_in_kills(tmp_path: Path, guarantee: str) -> None:
    """Rows that wait in caches die with the process, and the offsets of their records were not committed."""
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        counting.make_topics(broker.bootstrap, {WORDS: 2, COUNTS: 2})
        cached = {"statestore.cache.max.bytes": 1_000_000, "processing.guarantee": guarantee}
        settings = config(broker.bootstrap, tmp_path, **{"session.timeout.ms": 1_000}, **cached)
        words: list[str] = []
        for _ in range(3):
            process = counting.start_process(settings)
            before = sum(map(len, counted(broker.bootstrap).values()))
            fresh = some_words(3_000)
            for start in range(0, len(fresh), 300):  # so that commits come in between
                words += fresh[start : start + 300]
                counting.write_words(broker.bootstrap, fresh[start : start + 300])
            await_counts(broker.bootstrap, lambda found: sum(map(len, found.values())) > before)  # noqa: B023
            process.kill()
        expected = Counter(words)
        with KafkaStreams(word_counts(), settings):
            found = await_counts(broker.bootstrap, all_of(expected))
        if guarantee == "exactly_once_v2":
            found = counted(broker.bootstrap)
            assert {word: max(counts) for word, counts in found.items()} == expected
            assert all(counts == sorted(set(counts)) for counts in found.values()), "a count was repeated, or decreased"
            changelog = dict(counting.read_all(broker.bootstrap, f"once-{counting.STORE}-changelog"))
            assert {key.decode(): int.from_bytes(value or b"", "big") for key, value in changelog.items() if key} == (
                expected
            )


# ---- versions of rows


def prices(topics: Mapping[str, str]) -> Topology:
    """Each question is answered with the price of its time."""
    builder = StreamsBuilder()
    kept: Materialized[Any, Any] = Materialized(store=versioned_key_value_store("versions", 3_600_000, STRING, STRING))
    table = builder.table(topics["prices"], Consumed(STRING, STRING), materialized=kept)
    questions = builder.stream(topics["questions"], Consumed(STRING, STRING))
    answers = questions.join(table, lambda question, price: f"{question}={price}")
    answers.to(topics["answers"], Produced(STRING, STRING))
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["restart", "kill"])
def test_versions_outlive_the_broker_and_the_state_directory(tmp_path: Path, how: str) -> None:
    topics = {name: name for name in ("prices", "questions", "answers")}
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        counting.make_topics(broker.bootstrap, dict.fromkeys(topics, 1))
        lasting = {"session.timeout.ms": 30_000, "processing.guarantee": "exactly_once_v2"}  # no answer comes twice
        settings = config(broker.bootstrap, tmp_path, **lasting)

        def put(topic: str, value: str, at: int) -> None:
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce(topic, value.encode(), b"spool", timestamp=at)
            assert producer.flush(DEADLINE_S) == 0

        def set_price(price: str, at: int) -> None:
            """A price, and that the table has it."""
            put("prices", price, at)
            eventually(
                lambda: (b"spool", price.encode()) in counting.read_all(broker.bootstrap, "once-versions-changelog")
            )

        def ask(*asked: tuple[str, int]) -> list[str]:
            """The answers, one for each question."""
            known = len(counting.read_all(broker.bootstrap, "answers"))
            for question, at in asked:
                put("questions", question, at)
            eventually(lambda: len(counting.read_all(broker.bootstrap, "answers")) >= known + len(asked))
            return [(value or b"").decode() for _, value in counting.read_all(broker.bootstrap, "answers")][known:]

        with KafkaStreams(prices(topics), settings) as streams:
            streams.wait_until(State.RUNNING, DEADLINE_S)
            set_price("1", 1_000)
            set_price("2", 2_000)
            assert ask(("a", 1_500), ("b", 2_500)) == ["a=1", "b=2"]
            if how == "restart":
                broker.restart()
            else:
                broker.kill()
                broker.start()
            set_price("3", 3_000)
            set_price("1.7", 1_700)  # late, between two existing ones
            before = ask(("c", 1_500), ("d", 1_900), ("e", 2_500), ("f", 3_500))
            assert before == ["c=1", "d=1.7", "e=2", "f=3"]
        shutil.rmtree(tmp_path / "state")
        with KafkaStreams(prices(topics), settings) as streams:
            streams.wait_until(State.RUNNING, DEADLINE_S)
            assert ask(("c", 1_500), ("d", 1_900), ("e", 2_500), ("f", 3_500)) == before
        assert streams.failure is None
