"""Queries of running applications: word counts on two instances, locations of keys, standbys, rebalances."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.broker_process import BrokerProcess
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Grouped, Materialized
from odradek.streams.errors import InvalidStateStoreError, StreamsError, UnknownStateStoreError
from odradek.streams.murmur2 import partition_of
from odradek.streams.running.locations import NOT_AVAILABLE, HostInfo, KeyQueryMetadata
from odradek.streams.runtime import KafkaStreams, State, StateListener
from odradek.streams.serdes import LONG, STRING
from odradek.streams.state_query import FailureReason, Position, PositionBound, RangeQuery, StateQueryRequest
from odradek.streams.topology import Topology
from odradek.streams.windows import TimeWindows
from tests.streams import counting
from tests.streams.counting import QUICK, STORE, word_counts
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

DEADLINE_S = 30.0
WORDS = [f"word{number % 23}" for number in range(400)]
PARTITIONS = 4
Topologies = Callable[[str, str], Topology]
"""Of the names of two topics."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("queries"), counting.BROKER) as running:
        yield running


class Instances:
    """Some instances of one application, in this process."""

    def __init__(
        self, broker: BrokerProcess, folder: Path, name: str, topology: Callable[[str, str], Topology]
    ) -> None:
        self.bootstrap, self.folder, self.name = broker.bootstrap, folder, name
        self.words, self.counts = f"{name}-words", f"{name}-counts"
        self.topology = topology
        counting.make_topics(self.bootstrap, {self.words: PARTITIONS, self.counts: PARTITIONS})

    def make(self, port: int, listener: StateListener | None = None, **more: Any) -> KafkaStreams:
        config = {
            **QUICK,
            "session.timeout.ms": 30_000,
            "application.id": self.name,
            "bootstrap.servers": self.bootstrap,
            "state.dir": str(self.folder / str(port)),
            "application.server": f"localhost:{port}",
            "internal.leave.group.on.close": True,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return KafkaStreams(self.topology(self.words, self.counts), config, state_listener=listener)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_a_key_is_found_on_its_instance_only(broker: BrokerProcess, tmp_path: Path, stack: ExitStack) -> None:
    instances = Instances(broker, tmp_path, "found", word_counts)
    first, second = instances.make(7001, statestore_cache_max_bytes=1_000_000), instances.make(7002)
    with pytest.raises(InvalidStateStoreError, match="not started"):
        first.store(STORE)
    by_port = {7001: stack.enter_context(first), 7002: stack.enter_context(second)}
    counting.write_words(broker.bootstrap, WORDS, instances.words)
    expected = Counter(WORDS)

    def all_counted() -> bool:
        both = [dict(streams.store(STORE).all()) for streams in by_port.values()]
        return all(both) and both[0] | both[1] == expected and not both[0].keys() & both[1].keys()

    eventually(all_counted, describe="each word on one instance", retry_on=(InvalidStateStoreError,))
    for word, count in expected.items():
        for streams in by_port.values():
            found = eventually(
                lambda streams=streams, word=word: streams.query_metadata_for_key(STORE, word, STRING),
                describe="a place",
                retry_on=(InvalidStateStoreError,),
            )
            assert found.partition == partition_of(word.encode(), PARTITIONS)
            here = by_port[found.active_host.port]
            assert here.store(STORE).get(word) == count
            assert here.store(STORE, partition=found.partition).get(word) == count
            (other,) = (each for each in by_port.values() if each is not here)
            assert other.store(STORE).get(word) is None
    everyone = first.metadata_for_all_streams_clients()
    assert [each.host_info for each in everyone] == [HostInfo("localhost", 7001), HostInfo("localhost", 7002)]
    assert everyone == second.streams_metadata_for_store(STORE)
    parts = [{p for topic, p in each.topic_partitions if topic.endswith("-repartition")} for each in everyone]
    assert parts[0] | parts[1] == set(range(PARTITIONS))
    assert not parts[0] & parts[1]
    assert all(each.state_store_names == {STORE} and not each.standby_topic_partitions for each in everyone)
    assert first.streams_metadata_for_store("nowhere") == []
    assert first.query_metadata_for_key("nowhere", "a", STRING) is None
    placed = first.query_metadata_for_key(STORE, "a", STRING, lambda topic, key, value, count: count - 1)
    assert placed is not None
    assert placed.partition == PARTITIONS - 1
    with pytest.raises(InvalidStateStoreError, match="has no partition 9"):
        first.store(STORE, partition=9).get("a")
    with pytest.raises(UnknownStateStoreError):
        first.store("nowhere")


def test_a_query_has_a_result_or_a_reason_for_each_partition(
    broker: BrokerProcess, tmp_path: Path, stack: ExitStack
) -> None:
    """KIP-796 on two instances, of which each has a standby of what the other has."""
    instances = Instances(broker, tmp_path, "asked", word_counts)
    more: dict[str, Any] = {"num_standby_replicas": 1}
    first, second = instances.make(7021, **more), instances.make(7022, **more)
    with pytest.raises(InvalidStateStoreError, match="not started"):
        first.query(StateQueryRequest(STORE, RangeQuery()))
    for streams in (first, second):
        stack.enter_context(streams)
    counting.write_words(broker.bootstrap, WORDS, instances.words)
    expected = Counter(WORDS)

    def rows(streams: KafkaStreams, require_active: bool) -> dict[str, int]:
        request = StateQueryRequest(STORE, RangeQuery(), require_active=require_active, execution_info=True)
        found = streams.query(request).partition_results.values()
        return dict(row for each in found if each.is_success and each.execution_info for row in each.result)

    for streams in (first, second):
        eventually(
            lambda streams=streams: rows(streams, False) == expected and 0 < len(rows(streams, True)) < len(expected),
            describe="everything, half of it by standbys",
        )
    assert rows(first, True) | rows(second, True) == expected
    results = first.query(StateQueryRequest(STORE, RangeQuery(), range(PARTITIONS + 1), require_active=True))
    reasons = {each.failure_reason for each in results.partition_results.values()}
    assert reasons == {None, FailureReason.NOT_ACTIVE, FailureReason.NOT_PRESENT}
    assert results.partition_results[PARTITIONS].failure_reason is FailureReason.NOT_PRESENT
    (partition, active), *_ = ((number, each) for number, each in results.partition_results.items() if each.is_success)
    (topic,) = active.position.topics
    reached = active.position.partition_positions(topic)[partition]
    for offset, reason in ((reached, None), (reached + 1, FailureReason.NOT_UP_TO_BOUND)):
        bound = PositionBound.at(Position().with_component(topic, partition, offset))
        found = first.query(StateQueryRequest(STORE, RangeQuery(), {partition}, position_bound=bound))
        assert found.partition_results[partition].failure_reason is reason
    with pytest.raises(UnknownStateStoreError, match="no such store is registered"):
        first.query(StateQueryRequest("nowhere", RangeQuery()))


def test_a_rebalance_rejects_queries_and_standbys_answer_on_request(
    broker: BrokerProcess, tmp_path: Path, stack: ExitStack
) -> None:
    instances = Instances(broker, tmp_path, "standby", word_counts)
    more: dict[str, Any] = {"num_standby_replicas": 1}
    first = stack.enter_context(instances.make(7011, **more))
    second = stack.enter_context(instances.make(7012, **more))
    counting.write_words(broker.bootstrap, WORDS, instances.words)
    expected = Counter(WORDS)
    for streams in (first, second):
        eventually(
            lambda streams=streams: dict(streams.store(STORE, stale=True).all()) == expected,
            describe="all words, by standbys",
            retry_on=(InvalidStateStoreError,),
        )
        assert dict(streams.store(STORE).all()) != expected

    def located() -> KeyQueryMetadata | None:
        found = first.query_metadata_for_key(STORE, "word1", STRING)
        return found if found is not None and found.standby_hosts else None

    found = eventually(located, describe="a standby's place", retry_on=(InvalidStateStoreError,))
    assert found is not None
    assert {found.active_host, *found.standby_hosts} == {HostInfo("localhost", 7011), HostInfo("localhost", 7012)}
    lags = first.all_local_store_partition_lags()
    assert set(lags) == {STORE}
    assert set(lags[STORE]) == set(range(PARTITIONS))
    assert {each.offset_lag for each in lags[STORE].values()} == {0}
    assert sum(each.end_offset_position for each in lags[STORE].values()) >= len(expected)
    view = first.store(STORE)
    second.close(DEADLINE_S)
    eventually(
        lambda: dict(view.all()) == expected,
        describe="all words on the one that is left",
        retry_on=(InvalidStateStoreError,),
    )
    with pytest.raises(StreamsError, match="not running"):
        second.store(STORE)
    first.close(DEADLINE_S)
    with pytest.raises(InvalidStateStoreError):
        view.get("word1")


def windowed(words: str, counts: str) -> Topology:
    """Counts of windows, and a global table of the words."""
    builder = StreamsBuilder()
    builder.global_table(counts, Consumed(STRING, LONG), Materialized("everywhere"))
    stream = builder.stream(words, Consumed(STRING, STRING)).select_key(lambda key, value: value)
    (
        stream.group_by_key(Grouped(STRING, STRING))
        .windowed_by(TimeWindows.of_size_with_no_grace(3_600_000))
        .count(Materialized(STORE, STRING, LONG))
    )
    return builder.build()


def test_windows_and_global_stores_while_records_come(broker: BrokerProcess, tmp_path: Path, stack: ExitStack) -> None:
    instances = Instances(broker, tmp_path, "windowed", windowed)
    streams = instances.make(7021, num_stream_threads=2, statestore_cache_max_bytes=100_000)
    stack.enter_context(streams)
    streams.wait_until(State.RUNNING, DEADLINE_S)
    assert streams.store("everywhere").get("a") is None
    assert streams.query_metadata_for_key("everywhere", "a", STRING) == KeyQueryMetadata(
        HostInfo("localhost", 7021), frozenset(), -1
    )
    store = streams.store(STORE, "window")
    stop, seen, failed = threading.Event(), list[int](), list[Exception]()

    def ask() -> None:
        try:
            while not stop.is_set():
                seen.append(sum(count for _, count in store.all()))
                stop.wait(0.001)
        except Exception as error:
            failed.append(error)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for each in asking:
        each.start()
    try:
        for _ in range(5):
            counting.write_words(broker.bootstrap, WORDS, instances.words)
        total = 5 * len(WORDS)
        eventually(
            lambda: failed or sum(count for _, count in store.all()) == total,
            describe="all counts",
            retry_on=(InvalidStateStoreError,),
        )
    finally:
        stop.set()
        for each in asking:
            each.join()
    assert failed == []
    assert max(seen) <= total
    assert {windowed.key for windowed, _ in store.all()} == set(WORDS)


def test_no_location_is_known_before_the_first_rebalance(
    broker: BrokerProcess, tmp_path: Path, stack: ExitStack
) -> None:
    instances = Instances(broker, tmp_path, "early", word_counts)
    notified: list[KeyQueryMetadata | None] = []
    made: list[KafkaStreams] = []

    def listen(state: State, before: State) -> None:
        if state is State.REBALANCING:
            notified.append(made[0].query_metadata_for_key(STORE, "a", STRING))

    streams = instances.make(7031, listen)
    made.append(streams)
    stack.enter_context(streams)
    streams.wait_until(State.RUNNING, DEADLINE_S)
    assert notified[0] == NOT_AVAILABLE, "while it starts"
