"""Large requests: handled in turns with the loop, in order, in bounded memory."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from odradek.broker.apis import describe_configs
from odradek.broker.controller.topics import NewTopic, TopicMaker, TopicOutcome
from odradek.broker.coordinator.lookup import Coordinators
from odradek.broker.group.group_metadata_manager import GroupMetadataManager
from odradek.broker.metadata.cache import PartitionMetadata, TopicMetadata
from odradek.broker.metadata.topic_responses import TopicAnswers
from odradek.broker.network import large_requests
from odradek.broker.replication.delayed_fetch import DelayedFetch
from odradek.broker.replication.fetch_reader import FetchReading
from odradek.broker.replication.partition import Replica
from odradek.broker.runtime import turns
from odradek.broker.runtime.freeing import freeing
from odradek.broker.runtime.turns import each, in_turn
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, read_request_header, request_header
from tests.broker.wire import Client, batch, produce_request
from tests.hostile.requests import requests
from tests.support.eventually import eventually_async

TOPIC = "there"


def large(broker: Broker) -> large_requests.LargeRequests:
    found = broker.running.sources.large_requests
    assert isinstance(found, large_requests.LargeRequests)
    return found


def list_offsets(count: int) -> m.ListOffsetsRequest:
    wanted = [m.ListOffsetsRequest.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(count)]
    return m.ListOffsetsRequest(
        replica_id=-1, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=wanted)]
    )


async def test_a_large_request_has_the_response_of_a_small_one(broker: Broker, client: Client) -> None:
    await client.create_topic(TOPIC)
    answer = await client.ask(list_offsets(5000), 7)
    assert large(broker).sliced == 1
    found = answer.topics[0].partitions
    assert [each.partition_index for each in found] == list(range(5000))
    assert [each.error_code for each in found[:2]] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await client.ask(list_offsets(1), 7)).topics[0].partitions == found[:1]
    assert large(broker).sliced == 1


async def test_a_long_request_is_interrupted_and_others_are_answered_meanwhile(broker: Broker, client: Client) -> None:
    await client.create_topic(TOPIC)
    other = await Client.connect(broker.port)
    await client.send(list_offsets(20_000), 7)
    while not large(broker).interruptions:
        await other.ask(m.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    before = large(broker).interruptions
    await other.ask(m.ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    assert len((await client.receive()).topics[0].partitions) == 20_000
    assert large(broker).interruptions > before, "the other client was answered only after the large request"
    other.close()


async def test_requests_behind_a_large_one_are_handled_after_it(broker: Broker, client: Client) -> None:
    await client.create_topic(TOPIC)
    empty = m.ProduceRequest.PartitionProduceData(index=7, records=None)
    written = m.ProduceRequest.PartitionProduceData(index=0, records=batch(b"first"))
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[empty] * 20_000 + [written])
    await client.send(m.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
    for number in range(3):
        await client.send(produce_request(TOPIC, batch(b"%d" % number)), 9)
    assert (await client.receive()).responses[0].partition_responses[-1].base_offset == 0
    for number in range(3):
        assert (await client.receive()).responses[0].partition_responses[0].base_offset == number + 1


async def test_acks_0_in_a_large_request_has_no_response(broker: Broker, client: Client) -> None:
    await client.create_topic(TOPIC, partitions=2)
    data = [m.ProduceRequest.PartitionProduceData(index=n % 2, records=batch(b"v")) for n in range(1500)]
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=data)
    await client.send(m.ProduceRequest(acks=0, timeout_ms=1000, topic_data=[topic]), 9)
    client.forget()
    written = await client.produce(TOPIC, batch(b"last"))
    assert (large(broker).sliced, written.base_offset) == (1, 750)


async def test_a_request_that_takes_too_much_memory_is_rejected(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_requests, "DECODED_BYTES", 200_000)
    other = await Client.connect(broker.port)
    await client.send(list_offsets(5000), 7)
    assert await client.is_closed()
    assert large(broker).rejected == 1
    assert (await other.ask(list_offsets(500), 7)).topics
    await eventually_async(lambda: broker.running.held_bytes, lambda held: not held, "the memory is released")
    other.close()


async def test_the_objects_of_a_rejected_request_are_freed_in_parts(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[object] = []

    def recorded(objects: list[Any]) -> Iterator[None]:
        freed.extend(map(type, objects))
        return freeing(objects)

    monkeypatch.setattr(turns, "freeing", recorded)
    monkeypatch.setattr(large_requests, "DECODED_BYTES", 200_000)
    await client.send(list_offsets(5000), 7)
    assert await client.is_closed()
    await eventually_async(lambda: m.ListOffsetsRequest in freed, bool, "the request is freed")


async def test_a_request_that_is_copied_is_not_small(broker: Broker, client: Client) -> None:
    """The copy of 20 MB would take as long as a slice."""
    users = [m.DescribeUserScramCredentialsRequest.UserName(name="u" * 30_000) for _ in range(3)]
    before = large(broker).sliced
    assert len((await client.ask(m.DescribeUserScramCredentialsRequest(users=users), 0)).results) == 1
    assert large(broker).sliced == before + 1


async def test_a_malformed_large_request_closes_the_connection(broker: Broker, client: Client) -> None:
    body = list_offsets(5000).encode(7)[:-4]
    await client.send_bytes(frame(request_header(2, 7, 1, "test"), body))
    assert await client.is_closed()
    await eventually_async(lambda: broker.running.held_bytes, lambda held: not held, "the memory is released")


async def test_the_decoded_size_counts_while_the_request_is_handled(broker: Broker, client: Client) -> None:
    await client.create_topic(TOPIC)
    most = 0
    await client.send(list_offsets(20_000), 7)
    answer = asyncio.ensure_future(client.receive())
    while not answer.done():
        most = max(most, broker.running.held_bytes)
        await asyncio.sleep(0)
    assert most > 20_000 * 100
    await eventually_async(lambda: broker.running.held_bytes, lambda held: not held, "the memory is released")


async def test_a_client_that_leaves_takes_its_memory_along(broker: Broker, client: Client) -> None:
    await client.send(list_offsets(20_000), 7)
    await eventually_async(lambda: large(broker).sliced, lambda count: count == 1, "the request is being handled")
    client.close()
    await eventually_async(lambda: broker.running.held_bytes, lambda held: not held, "the memory is released")


@pytest.mark.slow
@pytest.mark.parametrize("key", [2, 3, 8, 9, 10, 15, 20, 21, 23, 32, 33, 37, 42, 44])
async def test_the_tasks_and_handlers_of_large_requests_answer(broker: Broker, client: Client, key: int) -> None:
    topic = await client.create_topic("orders")
    version = m.APIS[key].max
    for request in requests(key, version, 20_000, topic.topic_id, ("repeated",)):
        await client.send_bytes(request.frame)
        client._owed.append((key, version, 1))
        await client.receive()


INTERRUPTED = {
    ("AlterClientQuotas", "distinct", "entries.entity"): 5,
    ("AlterPartitionReassignments", "numbers", "topics.partitions"): 7,
    ("AlterReplicaLogDirs", "numbers", "dirs.topics.partitions"): 4,
    ("AlterUserScramCredentials", "distinct", "deletions"): 8,
    ("DeleteRecords", "numbers", "topics.partitions"): 4,
    ("DescribeLogDirs", "numbers", "topics.partitions"): 2,
    ("DescribeTopicPartitions", "distinct", "topics"): 7,
    ("DescribeUserScramCredentials", "distinct", "users"): 5,
    ("ElectLeaders", "numbers", "topic_partitions.partitions"): 7,
    ("Fetch", "numbers", "topics.partitions"): 8,
    ("IncrementalAlterConfigs", "distinct", "resources.configs"): 5,
    ("ListPartitionReassignments", "numbers", "topics.partition_indexes"): 3,
    ("UpdateFeatures", "distinct", "feature_updates"): 4,
}
"""How many loops over the elements of an array interrupt a request: decoding, handling, encoding, counting errors."""


@pytest.mark.parametrize(("api", "shape", "array"), INTERRUPTED)
async def test_every_loop_over_the_elements_of_a_large_request_is_interrupted(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, api: str, shape: str, array: str
) -> None:
    await client.create_topic("orders")
    (key,) = (key for key, each_api in m.APIS.items() if each_api.name == api)
    version = m.APIS[key].max
    monkeypatch.setattr(large_requests, "AT_ONCE_BYTES", 1000)  # some hundred numbers would be handled at once
    size = 2_000 if shape == "numbers" else 6_000
    (request,) = requests(key, version, size, shapes=(shape,), array=array)
    monkeypatch.setattr(turns, "SLICE_NS", 0)
    before = large(broker).interruptions
    await client.send_bytes(request.frame)
    client._owed.append((key, version, 1))
    await client.receive()
    assert (large(broker).interruptions - before) / request.elements >= INTERRUPTED[api, shape, array]


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[object]:
    """The calls of a function or method, which works as before."""
    calls: list[object] = []
    original: Callable[..., object] = getattr(owner, name)

    def count(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, count)
    return calls


async def test_names_that_a_request_repeats_are_answered_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.create_topic(TOPIC)
    described = counted(monkeypatch, describe_configs, "describe_topic")
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=None
    )
    one = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=["retention.ms"]
    )
    results = (await client.ask(m.DescribeConfigsRequest(resources=[resource, one] * 200), 4)).results
    assert len(described) == 2
    assert results == results[:2] * 200
    assert [len(each.configs) > 1 for each in results[:2]] == [True, False]

    looked_up = counted(monkeypatch, Coordinators, "coordinator")
    coordinators = (await client.ask(m.FindCoordinatorRequest(coordinator_keys=["a", "b"] * 200), 4)).coordinators
    assert [each.key for each in coordinators] == ["a", "b"] * 200
    assert {each.error_code for each in coordinators} == {ErrorCode.NONE}
    assert len(looked_up) < 40

    groups = counted(monkeypatch, GroupMetadataManager, "describe")
    answers = (await client.ask(m.DescribeGroupsRequest(groups=["a", "b"] * 200), 5)).groups
    assert [each.group_id for each in answers] == ["a", "b"] * 200
    assert len(groups) == 2


async def test_a_fetch_of_many_partitions_waits_for_records_and_is_read_again_in_turns(
    broker: Broker, client: Client
) -> None:
    await client.create_topic(TOPIC)
    other = await Client.connect(broker.port)
    wanted = [m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000) for _ in range(2000)]
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=wanted)
    request = m.FetchRequest(max_wait_ms=15_000, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    await client.send(request, 4)
    await eventually_async(lambda: large(broker).sliced, lambda count: count == 1, "the fetch is being handled")
    assert (await other.produce(TOPIC, batch(b"value"))).error_code == 0
    found = (await client.receive()).responses[0].partitions
    assert len(found) == 2000
    assert any(each.records for each in found)

    loops: list[bool] = []
    original = FetchReading.try_read

    def try_read(reading: FetchReading) -> object:
        loops.append(in_turn())
        return original(reading)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FetchReading, "try_read", try_read)
        for each in wanted:
            each.fetch_offset = 1
        request.max_wait_ms = 50
        assert len((await client.ask(request, 4)).responses[0].partitions) == 2000
    assert loops == [True, True]
    other.close()


async def test_a_record_that_comes_while_a_fetch_is_read_ends_its_wait(broker: Broker, client: Client) -> None:
    """Others are served between the partitions of the read, and the fetch waits for no partition yet."""
    await client.create_topic(TOPIC)
    other = await Client.connect(broker.port)
    wanted = [m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000) for _ in range(2000)]
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=wanted)
    request = m.FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    original, read, written = FetchReading.try_read, asyncio.Event(), asyncio.Event()

    def try_read(reading: FetchReading) -> object:
        found = original(reading)
        assert in_turn()
        read.set()
        for _ in each(iter(written.is_set, True)):
            pass  # at the end of its slice the turn passes to the loop, which serves the producer
        return found

    async def write() -> None:
        await read.wait()
        assert (await other.produce(TOPIC, batch(b"value"))).error_code == 0
        written.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FetchReading, "try_read", try_read)
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(write())
            found = (await client.ask(request, 4)).responses[0].partitions
    assert any(each.records for each in found)
    other.close()


async def test_the_automatic_creation_of_many_topics_runs_in_turns(broker: Broker, client: Client) -> None:
    names = [f"missing-{number}" for number in range(3000)]
    ran: list[bool] = []

    async def create(maker: TopicMaker, registry: object, context: object, wanted: NewTopic, **_: object) -> object:
        ran.append(in_turn())
        return TopicOutcome(wanted.name, ErrorCode.POLICY_VIOLATION, "no topic")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicMaker, "create", create)
        wanted = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = await client.ask(m.MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)
    assert {each.error_code for each in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    assert ran == [True] * 3000


async def test_the_metadata_of_thousands_of_partitions_is_encoded_in_turns(broker: Broker, client: Client) -> None:
    cache = broker.running.metadata_cache
    partitions = tuple(PartitionMetadata(index, 0, 0, (0,), (0,)) for index in range(2500))
    cache.put_topics([TopicMetadata("wide", bytes(range(16)), internal=False, partitions=partitions)])
    ran: list[bool] = []
    original = TopicAnswers.of

    def of(answers: TopicAnswers, *arguments: Any) -> Any:
        ran.append(in_turn())
        return original(answers, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicAnswers, "of", of)
        found = [await client.ask(m.MetadataRequest(topics=None), 9) for _ in range(2)]
    assert found[0] == found[1]
    assert [each.partition_index for each in found[0].topics[0].partitions] == list(range(2500))
    assert ran == [True, False], "cached bytes are sent at once"
    named = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in ("wide", "missing")]
    request = m.MetadataRequest(topics=named, allow_auto_topic_creation=False)
    topics = (await client.ask(request, 11)).topics  # its bytes have another form
    assert [(each.name, each.error_code, len(each.partitions)) for each in topics] == [
        ("wide", ErrorCode.NONE, 2500),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]


async def test_the_cached_metadata_of_thousands_of_topics_is_joined_in_turns(broker: Broker, client: Client) -> None:
    """From 50 connections at once it held the event loop for 111 ms: 2 ms for each."""
    partitions = (PartitionMetadata(0, 0, 0, (0,), (0,)),)
    topics = [TopicMetadata(f"t{n}", n.to_bytes(16, "big"), internal=False, partitions=partitions) for n in range(1001)]
    broker.running.metadata_cache.put_topics(topics)
    ran: list[bool] = []
    original = TopicAnswers.of

    def of(answers: TopicAnswers, *arguments: Any) -> Any:
        ran.append(in_turn())
        return original(answers, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicAnswers, "of", of)
        found = [await client.ask(m.MetadataRequest(topics=None), 9) for _ in range(2)]
    assert found[0] == found[1]
    assert len(found[0].topics) == len(topics)
    assert ran
    assert all(ran)


async def test_requests_for_everything_that_a_broker_has_are_handled_in_turns(broker: Broker, client: Client) -> None:
    """Their responses may be large, however small the request is."""
    await client.create_topic(TOPIC)
    before = large(broker).sliced
    (found,) = (await client.ask(m.DescribeLogDirsRequest(topics=None))).results
    assert TOPIC in [each.name for each in found.topics]
    assert (await client.ask(m.ListGroupsRequest(states_filter=["no such state" * 200]))).groups == []
    assert (await client.ask(m.ListTransactionsRequest())).transaction_states == []
    wanted = m.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])
    (topic,) = (await client.ask(m.DescribeProducersRequest(topics=[wanted]))).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE
    assert large(broker).sliced == before + 4


async def test_many_requests_that_are_not_small_wait_for_small_ones_of_others(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one iteration of the loop does for requests of more than 1 KiB is limited."""
    await client.create_topic(TOPIC)
    monkeypatch.setattr(large_requests, "BUSY_NS", 0)
    crowd = [await Client.connect(broker.port) for _ in range(20)]
    for each_client in crowd:
        await each_client.send(list_offsets(100), 7)
    answers = [await each_client.receive() for each_client in crowd]
    assert all(answer == answers[0] for answer in answers)
    assert len(answers[0].topics[0].partitions) == 100
    assert large(broker).sliced > 0
    sliced = large(broker).sliced
    await client.ask(list_offsets(100), 7)
    assert large(broker).sliced == sliced, "a request that is alone is handled at once"
    for each_client in crowd:
        each_client._writer.close()


async def test_the_waits_of_many_fetches_end_in_turns(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create_topic(TOPIC, partitions=20)
    crowd = [await Client.connect(broker.port) for _ in range(10)]
    waiting: list[DelayedFetch] = []
    seen: list[bool] = []
    respond, watch = FetchReading.finish, DelayedFetch.watch

    def recorded(self: FetchReading) -> m.FetchResponse | None:
        seen.append(in_turn())
        return respond(self)

    def watched(self: DelayedFetch, keys: Collection[Replica]) -> None:
        waiting.append(self)
        watch(self, keys)

    monkeypatch.setattr(FetchReading, "finish", recorded)
    monkeypatch.setattr(DelayedFetch, "watch", watched)
    monkeypatch.setattr(large_requests, "BUSY_NS", -1)
    topic = m.FetchRequest.FetchTopic(
        topic=TOPIC,
        partitions=[m.FetchRequest.FetchPartition(partition=n, partition_max_bytes=1000) for n in range(20)],
    )
    request = m.FetchRequest(replica_id=-1, max_wait_ms=10_000, min_bytes=1 << 20, max_bytes=1 << 20, topics=[topic])
    for each_client in crowd:
        await each_client.send(request, 11)
    await eventually_async(lambda: len(waiting), lambda count: count == 10, "the fetches wait")
    for operation in waiting:
        operation.expire()
    assert [len((await each_client.receive()).responses[0].partitions) for each_client in crowd] == [20] * 10
    assert seen.count(False) == 1
    for each_client in crowd:
        each_client._writer.close()


async def test_a_response_with_the_configuration_of_one_topic_again_and_again_is_limited(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create_topic(TOPIC)
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=None
    )
    request = m.DescribeConfigsRequest(resources=[resource] * 20, include_synonyms=True, include_documentation=True)
    size = len((await client.ask(request, 4)).encode(4))
    monkeypatch.setattr(describe_configs, "RESPONSE_BYTES", 2 * size)
    assert len((await client.ask(request, 4)).results) == 20
    request.resources *= 5
    await client.send(request, 4)
    assert await client.is_closed()
    other = await Client.connect(broker.port)
    assert (await other.ask(m.DescribeConfigsRequest(resources=[resource]), 4)).results[0].configs
    other.close()


async def test_a_small_fetch_of_a_session_with_many_partitions_is_read_in_turns(broker: Broker, client: Client) -> None:
    """Followers of thousands of partitions send such requests all the time."""
    topic = await client.create_topic(TOPIC)
    other = await Client.connect(broker.port)
    wanted = [
        m.FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in range(600)
    ]
    whole = m.FetchRequest.FetchTopic(topic_id=topic.topic_id, partitions=wanted)
    request = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=0, topics=[whole])
    session_id = (await client.ask(request, 16)).session_id
    assert session_id
    turns: list[bool] = []
    original = FetchReading.try_read

    def try_read(reading: FetchReading) -> object:
        turns.append(in_turn())
        return original(reading)

    def again(epoch: int, max_wait_ms: int) -> m.FetchRequest:
        return m.FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FetchReading, "try_read", try_read)
        for epoch in range(1, 4):  # one behind the other: they are handled in this order
            await client.send(again(epoch, 0), 16)
        answers = [await client.receive() for _ in range(3)]
        await client.send(again(4, 20_000), 16)
        assert (await other.produce(TOPIC, batch(b"value"))).error_code == 0
        last = await client.receive()
    assert [(each.error_code, each.session_id) for each in (*answers, last)] == [(0, session_id)] * 4
    errors = {each.error_code for topic in last.responses for each in topic.partitions}
    assert any(each.records for topic in last.responses for each in topic.partitions)
    assert errors <= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert turns
    assert all(turns)
    other.close()


def test_a_request_in_memory_of_its_own_is_decoded_without_a_copy() -> None:
    """A copy of 20 MB took 12 to 17 milliseconds, and closed connections only after it."""
    request = list_offsets(20)
    data = frame(b"header", request.encode(7))
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    meter = large_requests.Metered(lambda size: None)
    view = memoryview(memory)[4:]
    assert meter.source(view, 6) == (memory, 10)
    assert m.ListOffsetsRequest.METERED_DECODERS[7](view, 6, meter)[0] == request
    copy, position = meter.source(memoryview(data)[4:], 6)
    assert (type(copy), position) == (bytes, 6)


def test_large_requests_have_few_enough_items_for_the_sets_of_their_handlers() -> None:
    """A set grows by copying all of its elements at once: 19 milliseconds for 314,573."""
    charged: list[int] = []
    request = m.DeleteTopicsRequest(topic_names=["ab"] * 1000)
    m.DeleteTopicsRequest.METERED_DECODERS[3](request.encode(3), 0, large_requests.Metered(charged.append))
    assert large_requests.DECODED_BYTES / (sum(charged) / 1000) < 314_573


@pytest.mark.parametrize("key", m.APIS)
def test_large_requests_have_few_enough_partitions_too(key: int) -> None:
    """2,500,000 partitions of an OffsetFetch request held the loop for 1.2 s, and took 1.5 GB."""
    version = m.APIS[key].max
    for request in requests(key, version, 4_000, shapes=("numbers",)):
        charged: list[int] = []
        data = request.frame[4:]
        body = read_request_header(data).body
        m.request_class(key).METERED_DECODERS[version](data, body, large_requests.Metered(charged.append))
        assert large_requests.DECODED_BYTES / (sum(charged) / request.elements) < 314_573, request.name
