"""Global stores are complete before the client runs, follow their topics, and use a checkpoint only where it
is valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.streams.context import TaskContext
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed, Materialized
from odradek.streams.errors import StreamsError
from odradek.streams.processor import Processor, ProcessorContext
from odradek.streams.records import Record, TaskId
from odradek.streams.running import checkpoints
from odradek.streams.running.global_state import GLOBAL_TASK, GlobalState
from odradek.streams.running.restoration import CONSUMER
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import key_value_store
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.topology import Topology
from tests.streams import restoring
from tests.streams.restoring import NoCollector, make_topic, write
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

STORE = "table"


@pytest.fixture
def broker(streams_broker: BrokerProcess) -> BrokerProcess:
    return streams_broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


def global_table(topic: str, in_memory: bool = False) -> Topology:
    builder = StreamsBuilder()
    kind: Literal["in_memory", "rocksDB"] = "in_memory" if in_memory else "rocksDB"
    builder.global_table(topic, Consumed(STRING, STRING), Materialized(STORE, store_type=kind))
    return builder.build()


class Counting(Processor):
    """Counts the values of each key: its store differs from the topic."""

    def init(self, context: ProcessorContext) -> None:
        self._store = context.state_store(STORE)

    def process(self, record: Record) -> None:
        self._store.put(record.key, str(int(self._store.get(record.key) or 0) + 1))


class Failing(Processor):
    def process(self, record: Record) -> None:
        raise ValueError(record.value)


def counting_store(topic: str, processor: type[Processor] = Counting) -> Topology:
    builder = key_value_store(STORE, STRING, STRING).without_logging()
    return Topology().add_global_store(builder, "source", topic, "p", processor, key=STRING, value=STRING)


@contextmanager
def started(
    broker: BrokerProcess, topology: Topology, path: Path, failures: list[Exception] | None = None, **more: Any
) -> Iterator[GlobalState]:
    directory = StateDirectory(path, restoring.APPLICATION)
    config = {"application.id": restoring.APPLICATION, "commit.interval.ms": 100}
    context = TaskContext(TaskId(GLOBAL_TASK, GLOBAL_TASK), NoCollector(), lambda: 0, config, ThreadCache(0))
    consumer = Consumer({**CONSUMER, "bootstrap.servers": broker.bootstrap, "group.id": "global"})
    noted = [] if failures is None else failures
    state = GlobalState(topology, context, consumer, directory, timeout_s=10, on_failure=noted.append, **more)
    try:
        state.start()
        yield state
    finally:
        state.close()
        directory.close()


def contents(state: GlobalState) -> dict[str, Any]:
    with state.lock:
        return {key: value[0] if isinstance(value, tuple) else value for key, value in state.stores[STORE].all()}


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_global_store_is_complete_at_the_start_and_follows(
    broker: BrokerProcess, topic: str, tmp_path: Path, in_memory: bool
) -> None:
    make_topic(broker.bootstrap, topic, 3)
    expected = {f"{partition}-{number % 50}": str(number) for partition in range(3) for number in range(500)}
    for partition in range(2):
        write(
            broker.bootstrap,
            topic,
            [(None, "without a key"), *((f"{partition}-{number % 50}", str(number)) for number in range(500))],
            partition,
        )
    expected = {key: value for key, value in expected.items() if not key.startswith("2")}
    with started(broker, global_table(topic, in_memory), tmp_path) as state:
        assert contents(state) == expected
        write(broker.bootstrap, topic, [("2-0", "late"), ("0-0", "changed")], 2)
        write(broker.bootstrap, topic, [("1-1", None)], 1)
        expected |= {"2-0": "late", "0-0": "changed"}
        del expected["1-1"]
        eventually(lambda: contents(state) == expected)
    written = checkpoints.read(tmp_path / restoring.APPLICATION / "global")
    assert written == ({} if in_memory else {(topic, 0): 500, (topic, 1): 501, (topic, 2): 1})
    write(broker.bootstrap, topic, [("0-0", "while away")], 2)
    with started(broker, global_table(topic, in_memory), tmp_path) as state:
        assert contents(state) == {**expected, "0-0": "while away"}


def test_a_processor_s_store_is_restored_through_it(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, [("a", "x"), ("b", "x"), ("a", "y")])
    with started(broker, counting_store(topic), tmp_path) as state:
        assert contents(state) == {"a": "2", "b": "1"}
        write(broker.bootstrap, topic, [("a", "z")])
        eventually(lambda: contents(state) == {"a": "3", "b": "1"})
    with started(broker, counting_store(topic), tmp_path) as state:
        assert contents(state) == {"a": "3", "b": "1"}, "records below the checkpoint are not processed again"


def test_a_store_whose_records_are_deleted_is_built_anew(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, [("a", "1"), ("b", "2")])
    with started(broker, global_table(topic), tmp_path) as state:
        assert contents(state) == {"a": "1", "b": "2"}
    write(broker.bootstrap, topic, [("a", None), ("c", "3"), ("d", "4")])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        future.result(30)
    with started(broker, global_table(topic), tmp_path) as state:
        assert contents(state) == {"c": "3", "d": "4"}, "a tombstone was missed"


def test_a_store_without_a_checkpoint_is_built_anew(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, [("a", "1")])
    with started(broker, counting_store(topic), tmp_path) as state:
        assert contents(state) == {"a": "1"}
    checkpoints.remove(tmp_path / restoring.APPLICATION / "global")
    with started(broker, counting_store(topic), tmp_path) as state:
        assert contents(state) == {"a": "1"}


def test_a_topic_that_is_missing_is_an_error(broker: BrokerProcess, tmp_path: Path) -> None:
    with (
        pytest.raises(StreamsError, match="the topic nowhere of a global table cannot be read"),
        started(broker, global_table("nowhere"), tmp_path),
    ):
        pass


def test_a_failure_is_reported(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    make_topic(broker.bootstrap, topic)
    failures: list[Exception] = []
    with started(broker, counting_store(topic, Failing), tmp_path, failures):
        write(broker.bootstrap, topic, [("a", "poison")])
        eventually(lambda: bool(failures))
    assert f"node=p, topic={topic}, partition=0, offset=0" in str(failures[0])
    assert "poison" in str(failures[0])
    assert checkpoints.read(tmp_path / restoring.APPLICATION / "global") == {}
