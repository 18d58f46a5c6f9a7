"""Costly requests for what exists: thousands of partitions, groups with as many offsets, a transaction in all of them.

The requests of the generator (`requests.py`) name topics and groups that hardly exist, so that a broker rejects most of
their elements. Here each element is handled: offsets are stored, markers written, records deleted. Every scenario
prepares what its request needs and gives the steps to measure.

    python -m tests hostile --existing                   every scenario, with 5,000 partitions
    python -m tests hostile --existing offset-commit,fetch --partitions 2000
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.broker.group.state.offsets import OffsetAndMetadata
from odradek.broker.group.state.records import offset_record
from odradek.broker.metadata.state.coordinator_partition import partition_for
from odradek.broker.metadata.state.topics import GROUP_OFFSETS
from odradek.broker_process import DEFAULT_OVERRIDES, BrokerProcess
from odradek.protocol import messages as m
from odradek.protocol.batch import Record, build
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame, request_header
from odradek.ready_process import OWN_COMMAND
from odradek.wire import Wire
from tests.hostile.attack import QUIET_TOPIC, prepare
from tests.hostile.bystander import Bystander, Latencies
from tests.hostile.clients import JOINERS, JOINS, SUBSCRIPTION
from tests.hostile.stretches import MEASURED, Stretch, Stretches
from tests.hostile.survey import CROWD, becomes_idle

TOPIC: Final = "many"
TRANSACTIONAL_ID: Final = "producer"
TIME_MS: Final = 1_700_000_000_000
TIMEOUT_MS: Final = 120_000
OVERRIDES: Final = {
    "group.consumer.max.size": "20000",
    "group.max.size": "20000",
    "message.max.bytes": "10000000",
    "offsets.retention.check.interval.ms": "1000",
    "queued.max.request.bytes": "1000000000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
GROUPS: Final = 2000
LARGE_GROUP: Final = "large"
CONSUMER_GROUP: Final = "consumers"


class Step(NamedTuple):
    """A part of a scenario: `run` sends requests, waits for the answers and checks them."""

    name: str
    run: Callable[[], Any]


class Place(NamedTuple):
    """A broker with the topic of a scenario, which has as many partitions."""

    wire: Wire
    partitions: int
    broker: BrokerProcess

    def connect(self) -> Pipeline:
        """Another connection. Raises OSError."""
        return Pipeline("127.0.0.1", self.broker.port, TIMEOUT_MS / 1000)

    def create(self, *names: str, partitions: int | None = None) -> None:
        """Create topics. Raises AssertionError where one is rejected."""
        count = self.partitions if partitions is None else partitions
        creatable = m.CreateTopicsRequest.CreatableTopic
        topics = [creatable(name=name, num_partitions=count, replication_factor=1) for name in names]
        answer = self.wire.ask(m.CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 5)
        _all_accepted(each.error_code for each in answer.topics)

    def delete(self, *names: str) -> None:
        """Delete topics. Raises AssertionError where one is not deleted."""
        answer = self.wire.ask(m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS), 5)
        _all_accepted(each.error_code for each in answer.responses)


class Pipeline(Wire):
    """A connection that sends several requests before it receives their responses."""

    def send(self, requests: Sequence[Any], version: int) -> None:
        """Send requests. Raises OSError."""
        heads = [request_header(each.API_KEY, version, 0, "hostile") for each in requests]
        bodies = [each.encode(version) for each in requests]
        self._socket.sendall(b"".join(map(frame, heads, bodies)))

    def receive(self, response: Any, version: int) -> Any:
        """The next response. Raises OSError."""
        (size,) = struct.unpack(">i", self._read(4))
        return response.decode(self._read(size), version, 5 if version >= response.FIRST_FLEXIBLE else 4)


class Measured(NamedTuple):
    """What a step cost."""

    name: str
    took_s: float
    latencies: Latencies
    stretch: Stretch


def measure(name: str, partitions: int, logs: Path | None = None) -> Iterator[Measured]:
    """Run a scenario on a broker of its own, beside a well-behaved client; its steps, one after the other.

    `logs` is a folder that gets what the broker logs during each step.
    """
    with contextlib.ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="odradek-existing-")))
        broker = BrokerProcess(folder, OVERRIDES, command=OWN_COMMAND, environment=MEASURED)
        broker.start()
        undo.callback(broker.kill)
        prepare(broker)
        stretches = Stretches(broker)
        wire = undo.enter_context(Wire("127.0.0.1", broker.port, TIMEOUT_MS / 1000))
        for number, step in enumerate(SCENARIOS[name](Place(wire, partitions, broker))):
            becomes_idle(broker.pid)
            stretches.longest()
            logged = broker.log_path.stat().st_size
            with Bystander(broker.port, broker.pid, QUIET_TOPIC, TIMEOUT_MS / 1000) as bystander:
                began_s = time.monotonic()
                step.run()
                took_s = time.monotonic() - began_s
            becomes_idle(broker.pid)
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
                (logs / f"{name}-{number}.log").write_bytes(broker.log_path.read_bytes()[logged:])
            yield Measured(step.name, took_s, bystander.latencies(), stretches.longest())


def scenario_offset_commit(place: Place) -> Iterator[Step]:
    """OffsetCommit of every partition: one topic, and every partition twice."""
    place.create(TOPIC)
    yield Step("OffsetCommit v8", lambda: commit(place, "plain"))
    yield Step("OffsetCommit v8 with metadata", lambda: commit(place, "metadata", metadata="m" * 20))
    yield Step("OffsetCommit v8, every partition twice", lambda: commit(place, "twice", times=2))
    yield Step("OffsetCommit v8 with an expiration", lambda: commit(place, "expiring", retention_ms=10**12))
    fetch = m.OffsetFetchRequest
    group = fetch.OffsetFetchRequestGroup(group_id="plain", topics=None)
    yield Step("OffsetFetch v8, all", lambda: place.wire.ask(fetch(groups=[group]), 8))
    indexes = [fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(place.partitions)))]
    group = fetch.OffsetFetchRequestGroup(group_id="plain", topics=indexes)
    yield Step("OffsetFetch v8", lambda: place.wire.ask(fetch(groups=[group], require_stable=True), 8))
    yield Step("OffsetDelete v0", lambda: _delete_offsets(place, "plain"))
    yield Step("DeleteGroups v2", lambda: _delete_group(place, "metadata"))


def commit(
    place: Place,
    group_id: str,
    partitions: Sequence[int] | None = None,
    *,
    topic: str = TOPIC,
    metadata: str | None = None,
    times: int = 1,
    retention_ms: int = -1,
) -> None:
    """Commit an offset of partitions. Raises AssertionError where one is rejected."""
    request = m.OffsetCommitRequest
    entries = [
        request.OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata=metadata)
        for index in (range(place.partitions) if partitions is None else partitions)
    ] * times
    topics = [request.OffsetCommitRequestTopic(name=topic, partitions=entries)]
    version = 8 if retention_ms < 0 else 4
    answer = place.wire.ask(
        request(group_id=group_id, topics=topics, generation_id_or_member_epoch=-1, retention_time_ms=retention_ms),
        version,
    )
    _all_accepted(each.error_code for each in answer.topics[0].partitions)


def _delete_offsets(place: Place, group_id: str) -> None:
    request = m.OffsetDeleteRequest
    partitions = [request.OffsetDeleteRequestPartition(partition_index=index) for index in range(place.partitions)]
    topics = [request.OffsetDeleteRequestTopic(name=TOPIC, partitions=partitions)]
    answer = place.wire.ask(request(group_id=group_id, topics=topics), 0)
    _all_accepted([answer.error_code, *(each.error_code for each in answer.topics[0].partitions)])


def _delete_group(place: Place, group_id: str) -> None:
    answer = place.wire.ask(m.DeleteGroupsRequest(groups_names=[group_id]), 2)
    _all_accepted(each.error_code for each in answer.results)


def scenario_fetch(place: Place) -> Iterator[Step]:
    """Fetch of every partition, by name and by id."""
    place.create(TOPIC)
    topic_id = place.wire.ask(
        m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=TOPIC)]), 12
    ).topics[0].topic_id  # fmt: skip
    request = m.FetchRequest
    partitions = [
        request.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(place.partitions)
    ]
    topics = [request.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=partitions)]
    for version in (4, 11, 13, 16):
        asked = request(max_wait_ms=100, max_bytes=1 << 20, session_epoch=-1, replica_id=-1, topics=topics)
        yield Step(f"Fetch v{version}", lambda asked=asked, version=version: place.wire.ask(asked, version))


def scenario_delete_records(place: Place) -> Iterator[Step]:
    """DeleteRecords of every partition, each with a record."""
    place.create(TOPIC)
    yield Step("Produce v9", lambda: produce(place))
    request = m.DeleteRecordsRequest
    partitions = [request.DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(place.partitions)]
    asked = request(
        topics=[request.DeleteRecordsTopic(name=TOPIC, partitions=partitions)], timeout_ms=TIMEOUT_MS
    )  # fmt: skip

    def delete() -> None:
        answer = place.wire.ask(asked, 2)
        _all_accepted(each.error_code for each in answer.topics[0].partitions)
        assert {each.low_watermark for each in answer.topics[0].partitions} == {1}

    yield Step("DeleteRecords v2", delete)


def produce(place: Place, producer: tuple[int, int] | None = None, sequence: int = 0) -> None:
    """Write a record to every partition. Raises AssertionError where one is rejected."""
    records = [Record(0, TIME_MS, None, b"value")]
    if producer is None:
        batch = build(records)
    else:
        batch = build(
            records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, transactional=True
        )
    request = m.ProduceRequest
    data = [request.PartitionProduceData(index=index, records=batch) for index in range(place.partitions)]
    asked = request(
        transactional_id=None if producer is None else TRANSACTIONAL_ID,
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[request.TopicProduceData(name=TOPIC, partition_data=data)],
    )
    answer = place.wire.ask(asked, 9)
    _all_accepted(each.error_code for each in answer.responses[0].partition_responses)


def scenario_transaction(place: Place) -> Iterator[Step]:
    """Two transactions in every partition, with offsets of every partition; one commits, the other aborts."""
    place.create(TOPIC)
    find = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTIONAL_ID])
    _repeat(lambda: place.wire.ask(find, 4).coordinators[0].error_code)
    init = m.InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
    answers: list[Any] = []

    def initialize() -> int:
        answers.append(place.wire.ask(init, 3))
        code: int = answers[-1].error_code
        return code

    _repeat(initialize)
    producer = answers[-1].producer_id, answers[-1].producer_epoch
    owner = {"producer_id": producer[0], "producer_epoch": producer[1]}
    for sequence, commits in enumerate((True, False)):
        name = "committed" if commits else "aborted"
        yield Step(f"AddPartitionsToTxn v3, {name}", lambda: _add_partitions(place, producer))
        yield Step(
            f"Produce v9 in the transaction, {name}",
            lambda sequence=sequence: produce(place, producer, sequence),
        )
        added = m.AddOffsetsToTxnRequest(transactional_id=TRANSACTIONAL_ID, group_id="plain", **owner)
        _all_accepted([place.wire.ask(added, 3).error_code])
        yield Step(f"TxnOffsetCommit v3, {name}", lambda: _commit_in_transaction(place, producer))
        end = m.EndTxnRequest(transactional_id=TRANSACTIONAL_ID, committed=commits, **owner)
        yield Step(f"EndTxn v3, {name}", lambda end=end: _end(place, end, producer))


def _end(place: Place, request: m.EndTxnRequest, producer: tuple[int, int]) -> None:
    """End the transaction, and wait for the markers: the next one can begin then."""
    _all_accepted([place.wire.ask(request, 3).error_code])
    added = m.AddPartitionsToTxnRequest
    topics = [added.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    asked = added(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=topics,
    )

    def again() -> int:
        answer = place.wire.ask(asked, 3)
        code: int = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return code

    _repeat(again)


def _add_partitions(place: Place, producer: tuple[int, int]) -> None:
    request = m.AddPartitionsToTxnRequest
    topics = [request.AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(place.partitions)))]
    answer = place.wire.ask(
        request(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        ),
        3,
    )
    results = answer.results_by_topic_v3_and_below[0].results_by_partition
    _all_accepted(each.partition_error_code for each in results)


def _commit_in_transaction(place: Place, producer: tuple[int, int]) -> None:
    request = m.TxnOffsetCommitRequest
    partitions = [
        request.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7)
        for index in range(place.partitions)
    ]
    answer = place.wire.ask(
        request(
            transactional_id=TRANSACTIONAL_ID,
            group_id="plain",
            producer_id=producer[0],
            producer_epoch=producer[1],
            generation_id=-1,
            topics=[request.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        ),
        3,
    )
    _all_accepted(each.error_code for each in answer.topics[0].partitions)


def scenario_groups(place: Place) -> Iterator[Step]:
    """2,000 groups, each with offsets of a tenth of the partitions: they expire, or their topic is deleted."""
    place.create(TOPIC, "expiring")
    some = range(place.partitions // 10)

    def fill(topic: str, retention_ms: int) -> None:
        for number in range(GROUPS):
            commit(place, f"group-{number}", some, topic=topic, retention_ms=retention_ms)

    def wait_until_expired() -> None:
        _repeat(lambda: len(place.wire.ask(m.ListGroupsRequest(), 4).groups))

    yield Step("2,000 OffsetCommit requests", lambda: fill(TOPIC, -1))
    yield Step("DeleteTopics of the topic of all groups", lambda: place.delete(TOPIC))
    yield Step("2,000 OffsetCommit requests that expire soon", lambda: fill("expiring", 15_000))
    yield Step("expiration of all offsets", wait_until_expired)


def scenario_topics(place: Place) -> Iterator[Step]:
    """CreateTopics, Metadata and DeleteTopics of so many partitions: of one topic, and of as many topics."""
    yield Step("CreateTopics of one topic", lambda: place.create(TOPIC))
    yield Step("Metadata v12 of it", lambda: place.wire.metadata([TOPIC]))
    yield Step("DeleteTopics of it", lambda: place.delete(TOPIC))
    names = [f"topic-{number}" for number in range(place.partitions)]
    yield Step("CreateTopics of as many topics", lambda: place.create(*names, partitions=1))
    yield Step("Metadata v12 of all topics", lambda: place.wire.metadata())
    yield Step("DeleteTopics of all of them", lambda: place.delete(*names))


def scenario_metadata(place: Place) -> Iterator[Step]:
    """Metadata of as many topics, from 50 connections at once."""
    place.create(*(f"topic-{number}" for number in range(place.partitions)), partitions=1)
    request = m.MetadataRequest(topics=None, allow_auto_topic_creation=False)

    def crowd() -> None:
        with contextlib.ExitStack() as undo:
            wires = [undo.enter_context(place.connect()) for _ in range(CROWD)]
            with ThreadPoolExecutor(CROWD) as pool:
                sizes = list(pool.map(lambda wire: len(wire.exchange(request, 12)), wires))
        assert len(set(sizes)) == 1, sizes

    yield Step("Metadata v12 of all topics", lambda: place.wire.exchange(request, 12))
    yield Step("Metadata v12 of all topics from 50 connections", crowd)


def scenario_large_group(place: Place) -> Iterator[Step]:
    """A group with a hundred times as many offsets: it is loaded, commits, is read and deleted."""
    place.create(TOPIC)
    commit(place, LARGE_GROUP, range(1))
    writer = Wire("127.0.0.1", place.broker.port, TIMEOUT_MS / 1000, "__admin_client")
    with writer:
        partition = partition_for(LARGE_GROUP, int(DEFAULT_OVERRIDES["offsets.topic.num.partitions"]))
        for number in range(100):
            _write_offsets(writer, partition, f"topic-{number}", place.partitions)
    place.broker.stop()
    place.broker.start()
    with place.connect() as wire:
        again = place._replace(wire=wire)
        fetch = m.OffsetFetchRequest
        asked = fetch(groups=[fetch.OffsetFetchRequestGroup(group_id=LARGE_GROUP, topics=None)])

        one = [fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        first = fetch(groups=[fetch.OffsetFetchRequestGroup(group_id=LARGE_GROUP, topics=one)], require_stable=True)

        def load() -> int:
            code: int = wire.ask(first, 8).groups[0].error_code
            assert code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), code
            return code

        yield Step("load of the group", lambda: _repeat(load))
        yield Step("OffsetCommit v8 by it", lambda: commit(again, LARGE_GROUP))
        yield Step("OffsetFetch v8, all", lambda: wire.exchange(asked, 8))
        yield Step("DeleteGroups v2", lambda: _delete_group(again, LARGE_GROUP))


def _write_offsets(wire: Wire, partition: int, topic: str, count: int) -> None:
    """Append the offsets of a topic that does not exist to the log of the group, as an administrator may."""
    committed = OffsetAndMetadata(7, -1, "", int(time.time() * 1000))  # an old one would expire
    entries = [offset_record(LARGE_GROUP, (topic, index), committed) for index in range(count)]
    batch = build([Record(number, TIME_MS, key, value) for number, (key, value) in enumerate(entries)])
    request = m.ProduceRequest
    data = request.TopicProduceData(
        name=GROUP_OFFSETS, partition_data=[request.PartitionProduceData(index=partition, records=batch)]
    )
    answer = wire.ask(request(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data]), 9)
    _all_accepted(each.error_code for each in answer.responses[0].partition_responses)


def scenario_sessions(place: Place) -> Iterator[Step]:
    """20,000 members of a classic group, and as many members of a group of the consumer protocol as the topic has
    partitions, which send no heartbeats.
    """
    place.create(TOPIC, partitions=10)
    yield Step("20,000 members join", lambda: _join_classic(place))
    yield Step("their sessions expire", lambda: _repeat(lambda: _is_in_use(place, LARGE_GROUP)))
    yield Step("members of the consumer protocol join", lambda: _join_consumer(place))
    yield Step("their sessions expire (consumer)", lambda: _repeat(lambda: _is_in_use(place, CONSUMER_GROUP)))


def _is_in_use(place: Place, group_id: str) -> int:
    groups = place.wire.ask(m.ListGroupsRequest(), 5).groups
    return int(any(each.group_id == group_id and each.group_state != "Empty" for each in groups))


def _join_classic(place: Place) -> None:
    request = m.JoinGroupRequest
    join = request(
        group_id=LARGE_GROUP,
        session_timeout_ms=20_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[request.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    with contextlib.ExitStack() as undo:
        wires = [undo.enter_context(place.connect()) for _ in range(JOINERS)]
        for wire in wires:
            wire.send([join] * (JOINS // JOINERS), 3)
        for wire in wires:
            joined = [wire.receive(m.JoinGroupResponse, 3) for _ in range(JOINS // JOINERS)]
            _all_accepted(each.error_code for each in joined)
            syncs = [
                m.SyncGroupRequest(group_id=LARGE_GROUP, generation_id=each.generation_id, member_id=each.member_id)
                for each in joined
            ]
            wire.send(syncs, 2)
        for wire in wires:
            _all_accepted(wire.receive(m.SyncGroupResponse, 2).error_code for _ in range(JOINS // JOINERS))


def _join_consumer(place: Place) -> None:
    request = m.ConsumerGroupHeartbeatRequest(
        group_id=CONSUMER_GROUP,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    with place.connect() as wire:
        for _ in range(place.partitions // 50):
            wire.send([request] * 50, 0)
            _all_accepted(wire.receive(m.ConsumerGroupHeartbeatResponse, 0).error_code for _ in range(50))


SCENARIOS: Final[dict[str, Callable[[Place], Iterator[Step]]]] = {
    "offset-commit": scenario_offset_commit,
    "fetch": scenario_fetch,
    "delete-records": scenario_delete_records,
    "transaction": scenario_transaction,
    "groups": scenario_groups,
    "topics": scenario_topics,
    "metadata": scenario_metadata,
    "large-group": scenario_large_group,
    "sessions": scenario_sessions,
}


def _repeat(ask: Callable[[], int]) -> None:
    """Send a request until its answer is 0."""
    while ask():
        pass


def _all_accepted(codes: Any) -> None:
    found = set(codes)
    assert found == {0}, f"error codes {found}"
