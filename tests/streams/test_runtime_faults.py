"""Brokers that restart and leaders that fall: the application waits for them and goes on, exactly once if it has to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from odradek.broker_process import BrokerProcess
from odradek.pytest_plugin import ClusterFactory
from odradek.streams.runtime import KafkaStreams, State
from tests.streams import counting
from tests.streams.counting import COUNTS, QUICK, WORDS, all_of, assert_exactly_once, await_counts, counted, word_counts

PATIENCE_S = 60.0


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
def test_a_broker_goes_away_and_comes_back(tmp_path: Path, how: str) -> None:
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        counting.make_topics(broker.bootstrap, {WORDS: 2, COUNTS: 2})
        streams = KafkaStreams(
            word_counts(), config(broker.bootstrap, tmp_path, **{"processing.guarantee": "exactly_once_v2"})
        )
        words: list[str] = []
        with streams:
            streams.wait_until(State.RUNNING, PATIENCE_S)
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
        streams.wait_until(State.RUNNING, PATIENCE_S)
        words = some_words(6_000)
        counting.write_words(bootstrap, words)
        await_counts(bootstrap, lambda found: sum(map(len, found.values())) > 300)
        cluster.kill(cluster.leader_of(COUNTS, 0))
        await_counts(bootstrap, all_of(Counter(words)))
        assert_exactly_once(bootstrap, words, "once")
    assert streams.failure is None


@pytest.mark.slow
def test_at_least_once_loses_nothing(tmp_path: Path) -> None:
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
