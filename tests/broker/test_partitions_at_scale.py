"""Requests for thousands of partitions that exist: the work grows with their number, not with its square, and it is
done in turns with the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

import pytest

from odradek.broker.config import topic_overrides
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.controller.auto_topic_creation import CHECKED_AT_ONCE, TopicsKnown
from odradek.broker.metadata.cache import MetadataCache, PartitionMetadata, TopicMetadata
from odradek.broker.metadata.state import coordinator_partition
from odradek.broker.network.dispatcher import Dispatcher
from odradek.broker.replication import alter_log_dirs, replica_manager
from odradek.broker.replication.delayed_append import DelayedAppend
from odradek.broker.replication.delayed_delete_records import DelayedDeleteRecords
from odradek.broker.replication.delayed_produce import NOT_YET, DelayedProduce, HeldProduce
from odradek.broker.replication.transactional_produce import Written
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory, Watchers, check_and_complete
from odradek.broker.runtime.turns import SLICE_NS, each
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from tests.machines.group_harness import VirtualTime
from tests.support.eventually import eventually_async

COUNT = 500
APPENDED = Written(0, 0, -1, 0, 0, False)
UpdateMetadata = m.UpdateMetadataRequest
Answer = m.ProduceResponse.PartitionProduceResponse


class CountingReplica:
    """A partition whose batches get their outcome together; it counts how often a request checks that."""

    checks = 0

    def __init__(self) -> None:
        self.watchers: Watchers = {}
        self.outcome: ErrorCode | None = None

    def settled(self, end_offset: int, acks: int) -> ErrorCode | None:
        CountingReplica.checks += 1
        return None if end_offset == NOT_YET and self.outcome is ErrorCode.NONE else self.outcome

    def low_watermark(self, runs: Any) -> int:
        CountingReplica.checks += 1
        return -1 if self.outcome is None else 1

    machine = mock.Mock()


class Held:
    """A batch that is not appended yet."""

    def __init__(self, replica: CountingReplica) -> None:
        self.replica = replica
        self.is_abandoned = False

    def abandon(self) -> None:
        self.is_abandoned = True


@pytest.fixture
def replicas() -> Iterator[Any]:
    CountingReplica.checks = 0
    yield [CountingReplica() for _ in range(COUNT)]
    assert CountingReplica.checks <= 6 * COUNT, "each change of a partition checks all of them"


def settle(replicas: list[Any]) -> None:
    for replica in replicas:
        replica.outcome = ErrorCode.NONE
        check_and_complete(replica)


def purgatory() -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory(VirtualTime())


def response_of(answers: list[Answer]) -> m.ProduceResponse:
    return m.ProduceResponse(responses=[m.ProduceResponse.TopicProduceResponse(partition_responses=answers)])


def test_an_appended_request_checks_the_partition_that_has_changed(replicas: list[Any]) -> None:
    call, answers = mock.Mock(), [Answer(index=index, error_code=-1) for index in range(COUNT)]
    waiting = {replica: [(answer, 1), (answer, 2)] for replica, answer in zip(replicas, answers, strict=True)}
    operation = DelayedProduce(call, response_of(answers), waiting, -1, mock.Mock())
    purgatory().try_complete_else_watch(operation, tuple(waiting), 1000)
    settle(replicas)
    assert {each.error_code for each in answers} == {0}
    assert call.reply.call_count == 1


@pytest.mark.parametrize("lost", [False, True])
def test_a_held_request_checks_the_partition_that_has_changed(replicas: list[Any], lost: bool) -> None:
    """With `lost`, the broker stops to lead the partitions before the verification of the transaction ends."""
    call, answers = mock.Mock(closed=False), [Answer(index=index, error_code=-1) for index in range(COUNT)]
    held: list[Any] = [(Held(replica), answer) for replica, answer in zip(replicas, answers, strict=True)]
    timers = purgatory()
    operation = HeldProduce(call, response_of(answers), {}, -1, mock.Mock(), held, mock.Mock(), timers, 1000)
    timers.try_complete_else_watch(operation, tuple(replicas), 1000)
    for write, _ in [] if lost else held:
        operation.written(write, APPENDED)
    assert not call.reply.called
    for replica in replicas:
        replica.outcome = ErrorCode.NOT_LEADER_OR_FOLLOWER if lost else ErrorCode.NONE
        check_and_complete(replica)
    assert {each.error_code for each in answers} == {ErrorCode.NOT_LEADER_OR_FOLLOWER if lost else 0}
    assert {write.is_abandoned for write, _ in held} == {lost}
    assert call.reply.call_count == 1
    assert not any(replica.watchers for replica in replicas)


def test_markers_check_the_partition_that_has_changed(replicas: list[Any]) -> None:
    outcomes: list[ErrorCode] = []
    done: list[bool] = []
    operation = DelayedAppend(lambda: done.append(True))
    for replica in replicas:
        operation.add(replica, 1, outcomes.append)
    operation.start(purgatory(), 1000)
    settle(replicas)
    assert (outcomes, done) == ([ErrorCode.NONE] * COUNT, [True])


def test_a_deletion_of_records_checks_the_partition_that_has_changed(replicas: list[Any]) -> None:
    result = m.DeleteRecordsResponse.DeleteRecordsPartitionResult
    results = [result(partition_index=index) for index in range(COUNT)]
    call = mock.Mock()
    waiting = {replica: (1, each) for replica, each in zip(replicas, results, strict=True)}
    operation = DelayedDeleteRecords(call, m.DeleteRecordsResponse(), waiting, lambda _: True)
    purgatory().try_complete_else_watch(operation, tuple(waiting), 1000)
    settle(replicas)
    assert {each.low_watermark for each in results} == {1}
    assert call.reply.call_count == 1


class Unread(tuple[PartitionMetadata, ...]):
    """Partitions that no caller goes through."""

    __slots__ = ()

    def __iter__(self) -> Iterator[PartitionMetadata]:
        raise AssertionError("one partition is looked for in all of them")


def test_a_partition_of_the_metadata_is_found_at_its_place() -> None:
    cache = MetadataCache("cluster")
    partitions = [mock.Mock(index=index, leader=index % 3, leader_epoch=index) for index in range(COUNT)]
    for topic, found in (("t", Unread(partitions)), ("gap", tuple(partitions[1:]))):
        cache.topics[topic] = TopicMetadata(topic, bytes(16), False, found)
    assert [cache.leader("t", index) for index in (0, 7, COUNT - 1)] == [(0, 0), (1, 7), ((COUNT - 1) % 3, COUNT - 1)]
    assert [cache.has("t", index) for index in (-1, 0, COUNT - 1, COUNT)] == [False, True, True, False]
    assert [cache.has("gap", index) for index in (0, 1, COUNT - 1)] == [False, True, True], "as during an election"


class Local:
    """An API that goes through the partitions of its request, and answers during the call or later."""

    def __init__(self, key: int) -> None:
        self.KEY, self.VERSIONS = key, (0, 5)
        self.calls: list[Any] = []
        self.seen = 0

    def handle(self, call: Any, request: Any) -> None:
        self.calls.append(call)
        for _ in each(range(COUNT)):
            self.seen += 1


LOCAL = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 24: "AddPartitionsToTxn", 27: "WriteTxnMarkers"}


@pytest.mark.parametrize("key", LOCAL, ids=LOCAL.get)
async def test_a_large_request_of_the_broker_to_itself_is_handled_in_turns(key: int) -> None:
    """Also its response, though the broker gives it later: it has as many partitions."""
    clock = itertools.count(step=SLICE_NS // 50)
    metrics = mock.Mock(now_ns=lambda: next(clock))
    handler = Local(key)
    dispatcher = Dispatcher([handler], metrics)
    answered = 0

    def answer(response: Any) -> None:
        nonlocal answered
        for _ in each(range(COUNT)):
            answered += 1

    dispatcher.local(_request(key), 4, "test", answer, lambda: None)
    assert handler.seen == 0
    await eventually_async(lambda: handler.seen, lambda seen: seen == COUNT, "it is handled")
    interruptions = dispatcher.large.interruptions
    assert interruptions > COUNT / 100
    handler.calls[0].reply(m.StopReplicaResponse())
    assert answered == 0
    await eventually_async(lambda: answered, lambda seen: seen == COUNT, "it is answered")
    assert dispatcher.large.interruptions - interruptions > COUNT / 100
    dispatcher.large.close()


def _request(key: int) -> Any:
    indexes = list(range(COUNT))
    if key == m.WriteTxnMarkersRequest.API_KEY:
        marker = m.WriteTxnMarkersRequest
        topic = marker.WritableTxnMarkerTopic(name="t", partition_indexes=indexes)
        return marker(markers=[marker.WritableTxnMarker(topics=[topic])])
    if key != m.AddPartitionsToTxnRequest.API_KEY:
        request = {each.API_KEY: each for each in (m.LeaderAndIsrRequest, m.StopReplicaRequest, UpdateMetadata)}[key]
        (topic_class,) = (getattr(request, name) for name in dir(request) if name.endswith("TopicState"))
        return request(topic_states=[topic_class(partition_states=[0]) for _ in range(COUNT)])
    added = m.AddPartitionsToTxnRequest
    added_topic = added.AddPartitionsToTxnTopic(name="t", partitions=indexes)
    return added(transactions=[added.AddPartitionsToTxnTransaction(topics=[added_topic])])


def test_the_partitions_of_long_names_are_not_kept() -> None:
    """4,096 names of 32 KB each took 134 MB for as long as the broker ran."""
    remembered = coordinator_partition._remembered
    before = remembered.cache_info().currsize
    name = "g" * coordinator_partition.LONGEST_CACHED
    assert [coordinator_partition.partition_for(name + end, 50) for end in ("", "x")] == [
        coordinator_partition._partition(name + end, 50) for end in ("", "x")
    ]
    assert remembered.cache_info().currsize == before + 1


def test_requested_directories_of_partitions_that_do_not_exist_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_log_dirs, "MOST_PREFERRED", 3)
    directory = mock.Mock(logs={}, futures={}, failure=None)
    directories = mock.Mock()
    directories.at.return_value = directory
    replicas = mock.Mock()
    replicas.get.return_value = None
    moves = alter_log_dirs.ReplicaMoves(directories, replicas, VirtualTime(), mock.Mock())
    for index in range(5):
        with pytest.raises(KafkaError):
            moves.alter_log_dir(("t", index), "/data")
    assert [moves.preferred(("t", index)) for index in range(5)] == [None, None, directory, directory, directory]


async def iterations_during(work: Coroutine[Any, Any, Any]) -> int:
    """How many iterations the event loop makes during a work."""
    count, task = 0, asyncio.ensure_future(work)
    while not task.done():
        count += 1
        await asyncio.sleep(0)
    task.result()
    return count


async def test_the_properties_of_many_new_topics_are_read_in_parts() -> None:
    """The embedded metadata store answers at once: 10,000 reads were one stretch of 0.2 s."""
    registry = mock.Mock(get=mock.AsyncMock(return_value=(b'{"version":1,"config":{"a":"1"}}', None)))
    names = [f"t{number}" for number in range(COUNT)]
    configs = TopicConfigs(lambda: registry)
    assert await iterations_during(configs.load(names)) > COUNT / topic_overrides.READ_AT_ONCE
    assert all(configs.get(name) == {"a": "1"} for name in names)


async def test_many_deleted_topics_leave_the_metadata_in_parts() -> None:
    cache, deleted = MetadataCache("cluster"), mock.Mock()
    partition = UpdateMetadata.UpdateMetadataPartitionState(
        partition_index=0, leader=replica_manager.LEADER_DURING_DELETE
    )
    names = [f"t{number}" for number in range(COUNT)]
    for name in names:
        cache.topics[name] = TopicMetadata(name, bytes(16), False, (mock.Mock(index=0),))
    topics = [UpdateMetadata.UpdateMetadataTopicState(topic_name=name, partition_states=[partition]) for name in names]
    manager = mock.Mock(
        _refusal=mock.Mock(return_value=ErrorCode.NONE), _dependencies=mock.Mock(metadata_cache=cache, events=deleted)
    )
    update = replica_manager.ReplicaManager._update_metadata(manager, UpdateMetadata(topic_states=topics))
    assert await iterations_during(update) > COUNT / replica_manager.REMOVED_AT_ONCE
    assert not cache.topics
    assert [each.args[0].name for each in deleted.deleted.call_args_list] == names


class Counted:
    """Timers without an effect, and topics that are known when `count` allows it."""

    def __init__(self) -> None:
        self.checks = 0
        self.are_known = False

    def monotonic_ms(self) -> int:
        return 0

    def at(self, deadline_ms: int, callback: Callable[[], None]) -> mock.Mock:
        return mock.Mock()

    def holds(self, _: int) -> bool:
        self.checks += 1
        return self.are_known


async def test_a_wait_for_many_topics_checks_some_of_them_in_an_iteration_of_the_loop() -> None:
    """CreateTopics with 10,000 topics checked all of them after each change, and the last one took 20 ms."""
    cache, counted, ended = MetadataCache("cluster"), Counted(), mock.Mock()
    known = TopicsKnown(cache, counted, counted)  # type: ignore[arg-type]
    known.wait_for_each(list(range(3 * COUNT)), counted.holds, 1000, ended)
    for _ in range(10):
        cache.partition_states_changed()
    assert counted.checks == 11
    counted.are_known = True
    cache.partition_states_changed()
    while not ended.called:
        before = counted.checks
        await asyncio.sleep(0)
        assert counted.checks - before <= CHECKED_AT_ONCE
        cache.partition_states_changed()
    assert counted.checks == 11 + 3 * COUNT
    ended.assert_called_once_with()


async def test_the_end_of_a_wait_ends_its_checks() -> None:
    cache, counted, ended = MetadataCache("cluster"), Counted(), mock.Mock()
    due: list[Callable[[], None]] = []
    timers = mock.Mock(at=lambda _, callback: (due.append(callback), mock.Mock())[1])
    counted.are_known = True
    known = TopicsKnown(cache, counted, timers)  # type: ignore[arg-type]
    known.wait_for_each(list(range(3 * COUNT)), counted.holds, 1000, ended)
    due[0]()
    ended.assert_called_once_with()
    await asyncio.sleep(0)
    assert counted.checks == CHECKED_AT_ONCE
    ended.assert_called_once_with()


async def test_a_control_request_creates_few_logs_in_an_iteration_of_the_loop() -> None:
    """A log takes up to 3 ms where files are slow: the first 16 logs of a request were one stretch of 50 ms."""
    manager, names = mock.Mock(unmade={}), [f"t{number}" for number in range(10)]
    manager._refusal.return_value = manager._take.return_value = ErrorCode.NONE
    manager._configs_of = mock.AsyncMock(return_value={name: {} for name in names})
    request = m.LeaderAndIsrRequest
    topics = [
        request.LeaderAndIsrTopicState(
            topic_name=name, partition_states=[request.LeaderAndIsrPartitionState(partition_index=0)]
        )
        for name in names
    ]
    take = replica_manager.ReplicaManager._leader_and_isr(manager, request(topic_states=topics, type=1))
    assert await iterations_during(take) >= len(names) - replica_manager.AT_ONCE
    assert manager._take.call_count == len(names)
    assert replica_manager.AT_ONCE <= 4
