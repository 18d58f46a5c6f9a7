"""Stores equal the contents of their changelogs, over moves, crashes, damage and truncation."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.broker_process import BrokerProcess
from odradek.pytest_plugin import ClusterFactory
from odradek.streams.errors import StreamsError, TaskCorruptedError
from odradek.streams.records import TaskId
from odradek.streams.running import checkpoints
from odradek.streams.running.leadership import end_offsets
from odradek.streams.running.restoration import RestoreListener
from odradek.streams.running.standby_listener import StandbyUpdateListener, SuspendReason
from odradek.streams.running.state_directory import StateDirectory
from tests.jvm.kafka import Kafka
from tests.jvm.process import BackgroundProcess
from tests.streams import restoring
from tests.streams.restoring import contents, make_state, make_topic, restore, restorer, step_until, write

pytestmark = pytest.mark.slow

BROKER = {"transaction.state.log.num.partitions": "1", "auto.create.topics.enable": "false"}


@pytest.fixture
def broker(streams_broker: BrokerProcess) -> BrokerProcess:
    return streams_broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    with restoring.directory(tmp_path / "state") as made:
        yield made


def rows(count: int, seed: int = 1) -> list[tuple[str | None, str | None]]:
    """Puts, deletions, and records without a key, which count as nothing."""
    chance = random.Random(seed)
    return [
        (
            None if chance.random() < 0.02 else f"key{chance.randrange(count // 5 + 1)}",
            None if chance.random() < 0.2 else f"value{number}",
        )
        for number in range(count)
    ]


def outcome(rows: list[tuple[str | None, str | None]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in rows:
        if key is None:
            continue
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def keyed(rows: list[tuple[str | None, str | None]]) -> int:
    return sum(key is not None for key, _ in rows)


@pytest.mark.parametrize("persistent", [False, True])
def test_many_stores_equal_a_dictionary(
    broker: BrokerProcess, topic: str, directory: StateDirectory, persistent: bool
) -> None:
    make_topic(broker.bootstrap, topic, 4)
    wanted = [rows(count, seed) for seed, count in enumerate((2_000, 1, 0, 7_000))]
    for partition, each in enumerate(wanted):
        write(broker.bootstrap, topic, each, partition)
    states = [make_state(directory, topic, partition, persistent=persistent) for partition in range(4)]
    with restorer(broker.bootstrap) as one:
        for state in states:
            state.open()
            one.add(state)
        done = restore(one)
        assert sorted(state.task_id for state in done) == [state.task_id for state in states]
        assert [contents(state) for state in states] == [outcome(each) for each in wanted]
        assert one.restored == sum(map(keyed, wanted))
        assert one.remaining == 0
        for state in states:
            state.close(True)


class Notified(RestoreListener):
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def on_restore_start(self, changelog: tuple[str, int], store: str, start: int, end: int) -> None:
        self.calls.append(("start", store, start, end))

    def on_batch_restored(self, changelog: tuple[str, int], store: str, batch_end: int, count: int) -> None:
        self.calls.append(("batch", batch_end, count))

    def on_restore_end(self, changelog: tuple[str, int], store: str, total: int) -> None:
        self.calls.append(("end", total))

    def on_restore_suspended(self, changelog: tuple[str, int], store: str, total: int) -> None:
        self.calls.append(("suspended", total))


def test_a_task_that_moves_away_and_back_resumes_at_its_checkpoint(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    wanted = [rows(40_000, 1), rows(3_000, 2)]
    for partition, each in enumerate(wanted):
        write(broker.bootstrap, topic, each, partition)
    notified = Notified()
    with restorer(broker.bootstrap, listener=notified) as one:
        states = [make_state(directory, topic, partition) for partition in range(2)]
        for state in states:
            state.open()
            one.add(state)
        away = 0
        while not notified.calls or notified.calls[-1][0] != "end" or one.active:
            one.step(0.0)
            if one.active and states[0].positions.get((topic, 0), -1) > (away + 1) * 10_000:
                away += 1
                one.drop(TaskId(0, 0))
                assert notified.calls[-1][0] == "suspended"
                states[0].close(True)
                states[0] = make_state(directory, topic)
                states[0].open()
                one.add(states[0])
        assert away >= 2
        assert [contents(state) for state in states] == [outcome(each) for each in wanted]
        assert one.restored == sum(map(keyed, wanted)), "records were read twice or not at all"
        for state in states:
            state.close(True)


def test_a_standby_waits_for_active_tasks_and_is_promoted_without_reading_twice(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    first, second, third = rows(3_000, 1), rows(2_000, 2), rows(1_000, 3)
    write(broker.bootstrap, topic, first, 0)
    standby, active = make_state(directory, topic, 0), make_state(directory, topic, 1)
    with restorer(broker.bootstrap) as one:
        standby.open()
        one.add(standby, standby=True)
        assert not one.active
        step_until(one, lambda: standby.positions.get((topic, 0)) == len(first) - 1)
        write(broker.bootstrap, topic, second, 0)
        step_until(one, lambda: standby.positions.get((topic, 0)) == len(first) + len(second) - 1)
        assert one.lag(standby) == 0
        write(broker.bootstrap, topic, third, 0)
        write(broker.bootstrap, topic, rows(30_000, 4), 1)
        active.open()
        one.add(active)
        one.step(0.0)
        before = standby.positions[topic, 0]
        one.step(0.05)
        assert standby.positions[topic, 0] == before, "a standby has to wait"
        one.drop(standby.task_id)
        one.add(standby)
        done = restore(one)
        assert {state.task_id for state in done} == {standby.task_id, active.task_id}
        assert contents(standby) == outcome([*first, *second, *third])
        assert contents(active) == outcome(rows(30_000, 4))
        assert one.restored == sum(map(keyed, (first, second, third, rows(30_000, 4))))
        standby.close(True)
        active.close(True)


@pytest.mark.parametrize("reason", list(SuspendReason))
def test_a_listener_receives_the_progress_of_a_standby(
    broker: BrokerProcess, topic: str, directory: StateDirectory, reason: SuspendReason
) -> None:
    """The calls of KIP-988, with the offsets of Java's: the last of a batch, and the end of the changelog."""
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, [(f"k{number}", "v") for number in range(300)])
    calls: list[tuple[Any, ...]] = []

    class Noting(StandbyUpdateListener):
        def on_update_start(self, *arguments: Any) -> None:
            calls.append(("start", *arguments))

        def on_batch_loaded(self, *arguments: Any) -> None:
            calls.append(("batch", *arguments))

        def on_update_suspended(self, *arguments: Any) -> None:
            calls.append(("suspended", *arguments))

    state = make_state(directory, topic)
    state.open()
    with restorer(broker.bootstrap, standby_listener=Noting()) as one:
        one.add(state, standby=True)
        step_until(one, lambda: state.positions.get((topic, 0)) == 299)
        write(broker.bootstrap, topic, [("more", "v")] * 20)
        step_until(one, lambda: state.positions.get((topic, 0)) == 319)
        one.drop(state.task_id, reason)
    state.close(True)
    start, *batches, suspended = calls
    assert start == ("start", (topic, 0), restoring.STORE, 0)
    assert {batch[:4] for batch in batches} == {("batch", (topic, 0), restoring.STORE, state.task_id)}
    assert sum(count for *_, count, _ in batches) == 320
    ends = [end for *_, end, _, _ in batches]
    assert ends == sorted(ends)
    assert ends[-1] == 319
    assert all(end < current <= 320 for *_, end, _, current in batches)
    assert suspended == ("suspended", (topic, 0), restoring.STORE, 319, 320, reason)


def test_an_unreadable_checkpoint_causes_a_restoration(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, rows(500))
    for damage in ("", "0\n1\n", "0\n1\na b c\n", "7\n0\n", "\0\xff", f"0\n2\n{topic} 0 3\n"):
        with restorer(broker.bootstrap) as one:
            state = make_state(directory, topic)
            state.open()
            state.stores[restoring.STORE].restore([(b"stale", b"stale", 0, None)])
            one.add(state)
            restore(one)
            state.close(True)
            path = directory.task(state.task_id) / checkpoints.FILE
            assert path.read_text() == f"0\n1\n{topic} 0 499\n"
            path.write_text(damage, encoding="latin-1")
            state = make_state(directory, topic)
            state.open()
            one.add(state)
            restore(one)
            assert contents(state) == outcome(rows(500))
            state.wipe()


def test_a_changelog_that_is_shorter_than_the_store_restores_it_anew(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    for partition in range(2):
        write(broker.bootstrap, topic, rows(300, partition), partition)
    broken, sound = make_state(directory, topic, 0), make_state(directory, topic, 1)
    checkpoints.write(directory.task(TaskId(0, 0)), {(topic, 0): 300})
    with restorer(broker.bootstrap) as one:
        for state in (broken, sound):
            state.open()
            one.add(state)
        with pytest.raises(TaskCorruptedError, match="contains 0 to 299") as caught:
            restore(one)
        assert caught.value.tasks == {TaskId(0, 0)}
        broken.wipe()
        broken.open()
        one.add(broken)
        restore(one)
        assert contents(broken) == outcome(rows(300, 0))
        assert contents(sound) == outcome(rows(300, 1))
        broken.close(True)
        sound.close(True)


def test_a_store_whose_records_were_deleted_is_restored_from_the_rest(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, rows(1_000))
    with restorer(broker.bootstrap) as one:
        state = make_state(directory, topic)
        state.open()
        one.add(state)
        restore(one)
        state.close(True)
        write(broker.bootstrap, topic, rows(1_000, 2))
        delete_records(broker, topic, 1_500)
        state = make_state(directory, topic)
        state.open()
        one.add(state)
        with pytest.raises(TaskCorruptedError, match="contains 1500 to 1999"):
            restore(one)
        state.wipe()
        state.open()
        one.add(state)
        restore(one)
        assert contents(state) == outcome(rows(1_000, 2)[500:])
        state.close(True)


def test_records_that_are_deleted_under_a_standby_are_detected(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic, 2)
    write(broker.bootstrap, topic, rows(100), 0)
    other_rows = rows(5_000, 5)
    standby, other = make_state(directory, topic, 0), make_state(directory, topic, 1)
    with restorer(broker.bootstrap) as one:
        standby.open()
        one.add(standby, standby=True)
        step_until(one, lambda: standby.positions.get((topic, 0)) == 99)
        write(broker.bootstrap, topic, other_rows, 1)
        other.open()
        one.add(other)  # the standby waits meanwhile, and misses the deleted records
        one.step(0.0)
        write(broker.bootstrap, topic, rows(100, 2), 0)
        delete_records(broker, topic, 150)
        with pytest.raises(TaskCorruptedError) as caught:
            step_until(one, lambda: False)
        assert caught.value.tasks == {TaskId(0, 0)}
        restore(one)
        assert contents(other) == outcome(other_rows), "the records returned with the error were lost"
        standby.wipe()
        standby.open()
        one.add(standby, standby=True)
        step_until(one, lambda: standby.positions.get((topic, 0)) == 199)
        assert contents(standby) == outcome(rows(100, 2)[50:])
        standby.close(True)
        other.close(True)


def delete_records(broker: BrokerProcess, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(restoring.TIMEOUT_S)


def test_exactly_once_restores_committed_records(broker: BrokerProcess, topic: str, directory: StateDirectory) -> None:
    make_topic(broker.bootstrap, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(restoring.TIMEOUT_S)
    for end, value in ((producer.commit_transaction, b"old"), (producer.abort_transaction, b"never")):
        producer.begin_transaction()
        producer.produce(topic, value, b"key")
        producer.flush(restoring.TIMEOUT_S)
        end(restoring.TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", b"key")
    producer.flush(restoring.TIMEOUT_S)
    path = directory.task(TaskId(0, 0)) / checkpoints.FILE
    with restorer(broker.bootstrap, committed_only=True) as one:
        state = make_state(directory, topic, exactly_once=True)
        state.open()
        one.add(state)
        restore(one)
        assert contents(state) == {"key": "old"}
        assert state.positions == {(topic, 0): 3}, "two records, a marker behind each"
        state.close(True)
        assert path.exists()
        state = make_state(directory, topic, exactly_once=True)
        state.open()
        one.add(state)
        assert restore(one) == [state]
        assert one.restored == 1
        state.begin()
        assert not path.exists(), "records of a running task may never be committed"
        state.stores[restoring.STORE].restore([(b"stray", b"stray", 0, None)])
        state.close(False)
        producer.commit_transaction(restoring.TIMEOUT_S)
        step_until(one, lambda: one.ends([(topic, 0)]) == {(topic, 0): 6})  # markers may come after the response
        state = make_state(directory, topic, exactly_once=True)
        state.open()
        one.add(state)
        restore(one)
        assert contents(state) == {"key": "open"}
        assert one.ends([(topic, 0)]) == {(topic, 0): 6}
        state.close(True)


def test_a_store_on_a_source_topic_is_restored_up_to_the_group_s_offset(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic)
    wanted = rows(1_000)
    write(broker.bootstrap, topic, wanted)
    read = {(topic, 0): 250}
    with restorer(broker.bootstrap, committed=lambda places: read) as one:
        active = make_state(directory, topic, from_source=True)
        active.open()
        active.limits = {(topic, 0): 400}
        one.add(active)
        restore(one)
        assert active.positions == {(topic, 0): 399}
        assert contents(active) == outcome(wanted[:400])
        active.wipe()
        standby = make_state(directory, topic, from_source=True, persistent=False)
        standby.open()
        one.add(standby, standby=True)
        step_until(one, lambda: standby.positions.get((topic, 0)) == 249)
        one.step(0.1)
        assert contents(standby) == outcome(wanted[:250])
        read[topic, 0] = 600
        one._next_group = 0.0  # it is requested every ten seconds
        step_until(one, lambda: standby.positions.get((topic, 0)) == 599)
        assert contents(standby) == outcome(wanted[:600])
        standby.close(True)


def test_a_store_that_was_never_read_by_the_group_is_empty(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, rows(10))
    with restorer(broker.bootstrap) as one:
        state = make_state(directory, topic, from_source=True)
        state.open()
        one.add(state)
        assert restore(one) == [state]
        assert contents(state) == {}
        state.close(True)


def test_a_missing_changelog_is_awaited_and_then_an_error(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    with restorer(broker.bootstrap, give_up_s=1.0) as one:
        state = make_state(directory, topic)
        state.open()
        one.add(state)
        with pytest.raises(StreamsError, match=r"did not return the offsets of .* within 1 s \(task.timeout.ms\)"):
            restore(one)
        make_topic(broker.bootstrap, topic)
        write(broker.bootstrap, topic, [("key", "value")])
        restore(one)
        assert contents(state) == {"key": "value"}
        state.close(True)


def test_a_failing_store_is_reported_with_its_place(
    broker: BrokerProcess, topic: str, directory: StateDirectory
) -> None:
    make_topic(broker.bootstrap, topic)
    write(broker.bootstrap, topic, [("key", "value")])
    with restorer(broker.bootstrap) as one:
        state = make_state(directory, topic)
        state.open()
        one.add(state)
        state.stores[restoring.STORE].close()
        with pytest.raises(StreamsError, match=f"task 0_0: things cannot be restored from {topic}-0, offsets 0 to 0"):
            restore(one)
        state.close(False)


def test_a_restoration_resumes_at_the_last_checkpoint_after_a_crash(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, topic)
    wanted = rows(60_000)
    write(broker.bootstrap, topic, wanted)
    arguments = [broker.bootstrap, topic, str(tmp_path / "state")]
    process = BackgroundProcess([sys.executable, "-m", "tests.streams.restoring_process", *arguments])
    process.stdout.wait_for("checkpoint", restoring.TIMEOUT_S)
    process.kill()
    notified = Notified()
    with restoring.directory(tmp_path / "state") as directory, restorer(broker.bootstrap, listener=notified) as one:
        state = make_state(directory, topic)
        state.open()
        one.add(state)
        restore(one)
        kind, _, start, end = notified.calls[0]
        assert kind == "start"
        assert isinstance(start, int)
        assert start > 10_000, "the restoration started over"
        assert end == len(wanted)
        assert contents(state) == outcome(wanted)
        state.close(True)


def test_a_restarted_broker_is_awaited(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker", BROKER) as own, restoring.directory(tmp_path / "state") as directory:
        make_topic(own.bootstrap, "log", 2)
        wanted = rows(20_000)
        write(own.bootstrap, "log", wanted)
        write(own.bootstrap, "log", rows(100, 2), 1)
        state, late = make_state(directory, "log"), make_state(directory, "log", 1)
        with restorer(own.bootstrap) as one:
            state.open()
            one.add(state)
            step_until(one, lambda: one.restored > 0)
            own.kill()
            late.open()
            one.add(late)
            one.step(0.1)
            own.start()
            restore(one)
            assert contents(state) == outcome(wanted)
            assert contents(late) == outcome(rows(100, 2))
            state.close(True)
            late.close(True)


@pytest.mark.jvm
@pytest.mark.parametrize(
    "case",
    [
        test_a_task_that_moves_away_and_back_resumes_at_its_checkpoint,
        test_a_store_whose_records_were_deleted_is_restored_from_the_rest,
        test_exactly_once_restores_committed_records,
        test_a_store_on_a_source_topic_is_restored_up_to_the_group_s_offset,
    ],
)
def test_apache_kafka_restores_the_same(
    kafka: Kafka, topic: str, directory: StateDirectory, case: Callable[[Any, str, StateDirectory], None]
) -> None:
    case(kafka, topic, directory)


def test_a_dead_leader_is_replaced_by_another(odradek_cluster: ClusterFactory, tmp_path: Path) -> None:
    cluster = odradek_cluster(brokers=3, min_insync_replicas=2, zookeeper_session_timeout_ms=2_000)
    bootstrap = cluster.bootstrap_servers
    make_topic(bootstrap, "log", replicas=3)
    wanted = rows(60_000)
    write(bootstrap, "log", wanted)
    with restoring.directory(tmp_path) as directory, restorer(bootstrap) as one:
        state = make_state(directory, "log")
        state.open()
        one.add(state)
        step_until(one, lambda: one.restored > 0)
        assert one.active, "there is nothing left to be read from the next leader"
        cluster.kill(cluster.leader_of("log", 0))
        restore(one)
        assert contents(state) == outcome(wanted)
        assert one.restored == keyed(wanted), "records were read twice or not at all"
        state.close(True)


def test_a_dead_leader_is_not_polled_for_ever(odradek_cluster: ClusterFactory, tmp_path: Path) -> None:
    """A consumer that has read nothing lately has the old leader in its metadata, and waits for it; all tasks wait with
    it.
    """
    cluster = odradek_cluster(brokers=3, min_insync_replicas=2, zookeeper_session_timeout_ms=2_000)
    bootstrap = cluster.bootstrap_servers
    make_topic(bootstrap, "log", replicas=3)
    wanted = rows(100)
    write(bootstrap, "log", wanted)
    with restoring.directory(tmp_path) as directory, restorer(bootstrap) as one:
        admin, ends = AdminClient({"bootstrap.servers": bootstrap}), {("log", 0): len(wanted)}
        assert one.ends([*ends]) == end_offsets(admin, {*ends}, 10.0) == ends
        old = cluster.leader_of("log", 0)
        cluster.kill(old)
        cluster.await_leader("log", 0, other_than=old)
        state = make_state(directory, "log")
        state.open()
        one.add(state)
        step_until(one, lambda: not one.active, timeout_s=15)
        assert contents(state) == outcome(wanted)
        assert end_offsets(admin, {*ends}, 10.0) == ends
        state.close(True)
