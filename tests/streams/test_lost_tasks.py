"""At least once, tasks that are lost, or closed after a failure: the records that they had processed and not
yet sent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from odradek.broker_process import BrokerProcess
from odradek.streams.group.membership import GroupMember, RebalanceNeeded
from odradek.streams.processor import Processor, ProcessorContext
from odradek.streams.records import Record
from odradek.streams.running.collector import RecordCollector
from odradek.streams.runtime import KafkaStreams
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import key_value_store
from odradek.streams.topology import Topology
from tests.streams import counting
from tests.streams.counting import read_all
from tests.streams.keeping import Keeping
from tests.streams.stage import DEADLINE_S, Stage
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("lost"), counting.BROKER) as running:
        yield running


def values(stage: Stage) -> list[bytes | None]:
    return [value for _, value in read_all(stage.bootstrap, stage.counts)]


def lose_all(streams: KafkaStreams, patch: pytest.MonkeyPatch) -> None:
    """The group has gone on without the only thread, which is now notified. Returns when the thread has its
    tasks back.
    """
    run_loop = streams.stream_threads[0].run_loop
    assert run_loop is not None
    member, received = run_loop.member, []
    poll = GroupMember.poll

    def hear(self: GroupMember, timeout_s: float) -> Any:
        if self is member and not received:
            received.append(self.generation)
            return RebalanceNeeded("its session has expired", lost=True)
        return poll(self, timeout_s)

    patch.setattr(GroupMember, "poll", hear)
    eventually(lambda: received and streams.stream_threads[0].generation > received[0] and is_running(streams))


def is_running(streams: KafkaStreams) -> bool:
    return all(thread.tasks is not None and thread.tasks.running for thread in streams.stream_threads)


def has_begun(streams: KafkaStreams) -> bool:
    """The commit of the first poll is over; the next is a minute away."""
    loop = streams.stream_threads[0].run_loop
    return loop is not None and loop.executor.last_commit > 0


def test_unsent_records_of_lost_tasks_are_sent_and_not_committed(
    shared: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kafka Streams does (TaskManager.closeTaskDirty): records that were read are read again, and
    forwarded again.
    """
    stage = Stage(shared, tmp_path)
    stage.make_topics(1)
    topology = Topology().add_source("words", stage.words, key=STRING, value=STRING)
    topology.add_processor("keep", Keeping, "words")
    topology.add_state_store(key_value_store("kept", STRING, STRING).with_caching(), "keep")
    topology.add_sink("out", stage.counts, "keep", key=STRING, value=STRING)
    lasting: dict[str, Any] = {
        "statestore.cache.max.bytes": 100_000,
        "commit.interval.ms": 60_000,
        "producer.linger.ms": 30_000,
    }
    with stage.running(topology, **lasting) as streams:
        eventually(lambda: has_begun(streams))
        stage.write(["1"])
        eventually(lambda: streams.stream_threads[0].processed == 1)
        assert values(stage) == []
        lose_all(streams, monkeypatch)
        assert values(stage) == [b"1"]
        consumer = Consumer({"bootstrap.servers": stage.bootstrap, "group.id": stage.application_id})
        try:
            assert consumer.committed([Position(stage.words, 0)], DEADLINE_S)[0].offset < 0
        finally:
            consumer.close()
        eventually(lambda: streams.stream_threads[0].processed == 2)
    assert values(stage) == [b"1", b"1"]


@pytest.mark.parametrize("all_sent", [True, False])
def test_stores_are_removed_with_records_that_could_not_be_sent(
    shared: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_sent: bool
) -> None:
    stage = Stage(shared, tmp_path)
    stage.make_topics(1)
    with stage.running(remembering(stage, lambda: None), commit_interval_ms=60_000) as streams:
        eventually(lambda: has_begun(streams))
        stage.write(["1"])
        eventually(lambda: streams.stream_threads[0].processed == 1)
        marker = tmp_path / "a" / stage.application_id / "0_0" / "marker"
        marker.touch()
        if not all_sent:
            monkeypatch.setattr(RecordCollector, "settle", lambda collector: False)
        lose_all(streams, monkeypatch)
        assert marker.exists() is all_sent


class Remembering(Processor):
    """Forwards the records that it has not seen yet."""

    def __init__(self, broken: Any) -> None:
        self._broken = broken

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._seen = context.state_store("seen")

    def process(self, record: Record) -> None:
        if self._seen.get(record.value) is None:
            self._seen.put(record.value, "yes")
            if record.value == "2":
                self._broken()
            self.context.forward(record)


def remembering(stage: Stage, broken: Any) -> Topology:
    topology = Topology().add_source("words", stage.words, key=STRING, value=STRING)
    topology.add_processor("remember", lambda: Remembering(broken), "words")
    topology.add_state_store(key_value_store("seen", STRING, STRING, persistent=True), "remember")
    return topology.add_sink("out", stage.counts, "remember", key=STRING, value=STRING)


def test_a_store_on_disk_does_not_keep_rows_that_were_never_written(tmp_path: Path) -> None:
    """The broker dies before it has the second record; the store, which has a checkpoint, must not keep it as done."""
    with BrokerProcess(tmp_path / "broker", counting.BROKER) as broker:
        stage = Stage(broker, tmp_path)
        stage.make_topics(1)
        killed: list[bool] = []
        acknowledged = threading.Event()  # otherwise its writer would retry when the broker is back

        def kill() -> None:
            assert acknowledged.wait(DEADLINE_S)
            if not killed:
                killed.append(True)
                broker.kill()

        more: dict[str, Any] = {"producer.linger.ms": 500, "producer.message.timeout.ms": 2_000}
        stage.write(["1"])
        with stage.running(remembering(stage, kill), **more):
            eventually(lambda: b"1" in values(stage))
        with stage.running(remembering(stage, kill), **more) as streams:
            stage.write(["2"])
            acknowledged.set()
            thread = streams.stream_threads[0]
            eventually(lambda: killed and thread.tasks is not None and not thread.tasks.running)
            broker.start()
            eventually(lambda: b"2" in values(stage))
        assert streams.failure is None
