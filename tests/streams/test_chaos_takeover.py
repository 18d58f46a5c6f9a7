"""Tasks that move at bad moments: in a restoration, before a transaction is decided, after max.poll.interval.ms."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.streams.dsl.builder import StreamsBuilder
from odradek.streams.dsl.options import Consumed
from odradek.streams.group.group_protocol import CommitFailed, MembershipConfig
from odradek.streams.group.membership import Assigned, GroupMember, RebalanceNeeded
from odradek.streams.processor import Processor, ProcessorContext
from odradek.streams.records import Record, TaskId
from odradek.streams.running import checkpoints
from odradek.streams.running.client import high_watermarks
from odradek.streams.running.restoration import CONSUMER, RestoreListener, Restorer
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.runtime import KafkaStreams, State
from odradek.streams.serdes import STRING
from odradek.streams.stores.builders import key_value_store
from odradek.streams.topology import Topology
from tests.streams import counting, restoring
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

DEADLINE_S: Final = 30.0
RECORDS: Final = 200_000
KEYS: Final = 50_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("handover"), counting.BROKER) as running:
        yield running


def settings(broker: BrokerProcess, application: str, folder: Path, **more: Any) -> dict[str, Any]:
    return {
        **counting.QUICK,
        "application.id": application,
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(folder),
        **more,
    }


# ---- in a restoration


class Begun(RestoreListener):
    """Notifies that records were restored, and is as slow as a store that is not in the page cache."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._never = threading.Event()

    def on_batch_restored(self, changelog: tuple[str, int], store: str, batch_end: int, count: int) -> None:
        self.event.set()
        self._never.wait(count / 50_000)


def stored(streams: KafkaStreams) -> dict[str, int]:
    """The contents of the application's open stores; a new task has none before its thread has opened them."""
    found: dict[str, int] = {}
    for thread in streams.stream_threads:
        assert thread.tasks is not None
        with thread.lock:
            for each in thread.tasks.tasks.values():
                for store in each.state.stores.values():
                    if store.is_open:
                        found.update((key, value[0]) for key, value in store.all())
    return found


def test_instances_come_and_go_while_a_store_is_restored(broker: BrokerProcess, tmp_path: Path) -> None:
    changelog = f"moving-{counting.STORE}-changelog"
    topics = {"m-words": 2, "m-counts": 2, changelog: 2, f"moving-{counting.STORE}-repartition": 2}
    counting.make_topics(broker.bootstrap, topics)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "queue.buffering.max.messages": RECORDS + 1,
        }
    )
    expected = {}
    for number in range(RECORDS):
        key = f"key{number % KEYS}"
        expected[key] = number
        producer.produce(changelog, number.to_bytes(8, "big"), key.encode())
    assert producer.flush(DEADLINE_S) == 0
    topology = counting.word_counts("m-words", "m-counts")
    begun = Begun()
    first = KafkaStreams(topology, settings(broker, "moving", tmp_path / "first"), restore_listener=begun)
    first.start()
    try:
        assert begun.event.wait(DEADLINE_S)
        for number in range(2):
            other = Begun()
            second = KafkaStreams(
                topology, settings(broker, "moving", tmp_path / f"second{number}"), restore_listener=other
            )
            second.start()
            try:
                eventually(lambda: other.event.is_set() or len(stored(first)) == KEYS, describe="it restores")  # noqa: B023
                assert number or other.event.is_set(), "the second instance restores its tasks"
                assert first.state is not State.ERROR
            finally:
                assert second.close(DEADLINE_S, leave_group=True)
        eventually(
            lambda: len(stored(first)) == KEYS and first.state is State.RUNNING,
            describe="the first instance has all tasks",
        )
        assert stored(first) == expected
    finally:
        assert first.close(DEADLINE_S, leave_group=True)


# ---- before a transaction is decided


def test_a_store_is_not_restored_before_the_transactions_in_its_changelog_are_decided(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    changelog = "undecided"
    restoring.make_topic(broker.bootstrap, changelog)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "undecided"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(changelog, b"new", b"key")
    assert producer.flush(DEADLINE_S) == 0

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = {**CONSUMER, "bootstrap.servers": broker.bootstrap, "group.id": "u", "isolation.level": "read_committed"}
    restorer = Restorer(
        Consumer(made), 10.0, written=lambda places, timeout_s: high_watermarks(admin, places, timeout_s)
    )
    directory = StateDirectory(tmp_path, restoring.APPLICATION)
    try:
        state = restoring.make_state(directory, changelog, exactly_once=True)
        state.open()
        restorer.add(state)
        eventually(lambda: not restorer.step(0.05) and restorer.remaining == 1, describe="the end offset is known")
        for _ in range(10):
            assert restorer.step(0.05) == [], "the group may have the offsets of this transaction already"
        producer.commit_transaction(DEADLINE_S)
        done: list[Any] = []
        eventually(lambda: bool(done.extend(restorer.step(0.05)) or done), describe="the transaction is decided")
        assert restoring.contents(state) == {"key": "new"}
        state.close(True)
    finally:
        restorer.close()
        directory.close()


# ---- after the member has left the group


class Writing(Processor):
    """Collects records; when it is closed, the next owner of the task has written to the changelog already."""

    bootstrap = ""

    def init(self, context: ProcessorContext) -> None:
        self._context = context
        self._store = context.state_store("kept")

    def process(self, record: Record) -> None:
        self._store.put(record.key, record.value)

    def close(self) -> None:
        partition = self._context.task_id.partition
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce("late-kept-changelog", b"of the next owner", b"foreign", partition)
        assert producer.flush(DEADLINE_S) == 0


def keeping() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("kept", STRING, STRING))
    builder.stream("late-in", Consumed(STRING, STRING)).process(Writing, "kept")
    return builder.build()


def test_a_checkpoint_has_no_offset_of_the_next_owner(broker: BrokerProcess, tmp_path: Path) -> None:
    Writing.bootstrap = broker.bootstrap
    counting.make_topics(broker.bootstrap, {"late-in": 2})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce("late-in", b"row", f"key{number}".encode(), number % 2)
    assert producer.flush(DEADLINE_S) == 0
    first = KafkaStreams(keeping(), settings(broker, "late", tmp_path / "first"))
    second = KafkaStreams(keeping(), settings(broker, "late", tmp_path / "second"))
    first.start()
    try:
        eventually(
            lambda: len(counting.read_all(broker.bootstrap, "late-kept-changelog")) == 20,
            describe="all records are collected",
        )
        second.start()
        second.wait_until(State.RUNNING, DEADLINE_S)
        first.wait_until(State.RUNNING, DEADLINE_S)
        tasks = {TaskId(0, 0), TaskId(0, 1)}
        held = {task for thread in first.stream_threads if thread.tasks for task in thread.tasks.tasks}
        (gone,) = tasks - held
        offsets = checkpoints.read(tmp_path / "first" / "late" / str(gone))
        assert offsets == {("late-kept-changelog", gone.partition): 9}, "ten records of its own, and no more"
    finally:
        assert first.close(DEADLINE_S, leave_group=True)
        assert second.close(DEADLINE_S, leave_group=True)


def test_a_removed_member_commits_with_its_old_identity(broker: BrokerProcess) -> None:
    counting.make_topics(broker.bootstrap, {"zombies": 1})
    config = MembershipConfig.of(
        {
            "application.id": "zombies",
            "bootstrap.servers": broker.bootstrap,
            "session.timeout.ms": 1_000,
            "heartbeat.interval.ms": 100,
            "max.poll.interval.ms": 1_000,
        }
    )
    member = GroupMember(
        config,
        lambda: (["zombies"], b""),
        lambda members: {name: ([("zombies", 0)], b"") for name in members},
    )
    try:
        member.rejoin()
        eventually(lambda: isinstance(member.poll(0.1), Assigned), describe="it is a member")
        member.commit({("zombies", 0): (1, None, "")})
        assert member.is_counted_in()
        as_member = member.group_metadata
        # It does not call poll for max.poll.interval.ms, and so its own background thread leaves the group.
        eventually(lambda: member.generation == -1, describe="it is no member")
        assert member.group_metadata == as_member
        eventually(
            lambda: not member.is_counted_in(), describe="its session is over, as it could not send its LeaveGroup"
        )
        with pytest.raises(CommitFailed):
            member.commit({("zombies", 0): (2, None, "")})
        event = member.poll(1.0)
        assert isinstance(event, RebalanceNeeded)
        assert event.lost
        assert member.fetch_committed([("zombies", 0)])["zombies", 0].offset == 1
    finally:
        member.leave()
        member.close()
