"""Quotas of one broker: what a client under a quota gets, and when changes take effect. `test_rates_oracle` compares
the arithmetic with Kafka's classes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.metrics.exposition.page import quotas as quota_page
from odradek.broker.metrics.exposition.snapshot import take_snapshot
from odradek.broker.quota.client_quota_manager import FEW_ENTITIES, ClientQuotaManager
from odradek.broker.quota.connection_rate_quotas import ConnectionRateQuotas
from odradek.broker.quota.quota_config_handler import QuotaConfigHandler
from odradek.broker.quota.quota_managers import QuotaManagers
from odradek.broker.quota.replication_quota_manager import ReplicationQuotas, throttled_partitions
from odradek.broker.quota.state.rates import QuotaConfig
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ensure_path
from odradek.broker.replication.conversions import QUICK_BYTES
from odradek.broker.security.session import Session
from odradek.broker.security.state.principals import KafkaPrincipal
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.batch import HEADER_SIZE
from odradek.protocol.compression import Codec, decompress
from odradek.protocol.errors import ErrorCode
from tests.broker.admin_scripts import alter_quotas
from tests.broker.wire import Client, batch, fetch_request, produce_request, running_broker
from tests.machines.group_harness import VirtualTime
from tests.support.eventually import eventually_async

KB = bytes(1000)
ANYBODY: dict[str, str | None] = {"client-id": None}


def call_of(client_id: str, user: str = "u") -> Any:
    """A request of a client."""
    session = Session(KafkaPrincipal("User", user))
    return SimpleNamespace(client_id=client_id, session=session)


async def set_quota(broker: Broker, client: Client, entity: dict[str, str | None], **quotas: float | None) -> None:
    """Change quotas, and wait until the broker applies them."""
    clients = broker.running.quotas.clients
    before = clients.is_active
    (entry,) = (await client.ask(alter_quotas((entity, quotas)))).entries
    assert entry.error_code == ErrorCode.NONE
    wanted = any(value is not None for value in quotas.values())
    if wanted != before:
        await eventually_async(lambda: asyncio.sleep(0, clients.is_active), lambda active: active == wanted)


@pytest.mark.slow
async def test_a_producer_over_its_quota_gets_its_answer_at_once_and_is_not_read_for_the_throttle_time(
    broker: Broker, client: Client
) -> None:
    await client.create_topic("t")
    await set_quota(broker, client, ANYBODY, producer_byte_rate=20_000)
    size = 0
    for _ in range(11):  # 10 full windows of 20,000 bytes are allowed at once
        answer = await client.ask(produce_request("t", batch(bytes(19_000))), 12)
        size += 19_000
        if answer.throttle_time_ms:
            break
    answer = await client.ask(produce_request("t", batch(bytes(40_000))), 12)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    throttle_ms = answer.throttle_time_ms
    assert 500 <= throttle_ms <= 4000
    started = time.monotonic()
    await client.ask(m.ApiVersionsRequest(), 0)
    assert throttle_ms / 1000 - 0.05 <= time.monotonic() - started <= throttle_ms / 1000 + 1


async def test_other_clients_are_served_while_one_is_throttled(broker: Broker, client: Client) -> None:
    await client.create_topic("t")
    await set_quota(broker, client, {"client-id": "greedy"}, producer_byte_rate=1000)
    greedy = await Client.connect(broker.port)
    for version in (3, 9):
        await greedy.send(produce_request("t", batch(bytes(20_000)), acks=1), version, client_id="greedy")
    first = await greedy.receive()
    assert first.throttle_time_ms > 5000
    answer = await client.ask(produce_request("t", batch(KB)), 12)
    assert answer.throttle_time_ms == 0
    log = broker.replicas.get("t", 0).log  # type: ignore[union-attr]
    assert log.end_offset == 2, "the second request of the throttled client was handled"
    greedy.close()


@pytest.mark.slow
async def test_a_producer_without_acknowledgements_is_throttled(broker: Broker, client: Client) -> None:
    await client.create_topic("t")
    await set_quota(broker, client, ANYBODY, producer_byte_rate=30_000)
    await client.send(produce_request("t", batch(bytes(360_000)), acks=0), 9)
    client.forget()
    started = time.monotonic()
    await client.ask(m.ApiVersionsRequest(), 0)
    assert time.monotonic() - started >= 1.5


async def test_a_consumer_over_its_quota_gets_no_records_and_the_bytes_do_not_count(
    broker: Broker, client: Client
) -> None:
    await client.create_topic("t")
    for _ in range(20):
        await client.produce("t", batch(bytes(10_000)))
    await set_quota(broker, client, ANYBODY, consumer_byte_rate=10_000)
    fetched, throttled = 0, None
    while throttled is None and fetched < 400_000:
        answer = await client.ask(fetch_request("t", fetched // 10_000 % 20, partition_max_bytes=10_000), 12)
        if answer.throttle_time_ms:
            throttled = answer
        else:
            fetched += len(answer.responses[0].partitions[0].records)
    assert throttled is not None
    assert throttled.responses == []
    assert throttled.error_code == ErrorCode.NONE
    assert 90_000 <= fetched <= 121_000
    assert throttled.throttle_time_ms <= 2200
    answer = await client.ask(fetch_request("t", 0, partition_max_bytes=10_000), 12)
    assert answer.throttle_time_ms == 0
    assert answer.responses[0].partitions[0].records


async def test_a_throttled_consumer_gets_no_session_and_a_response_no_larger_than_its_quota(
    broker: Broker, client: Client
) -> None:
    await client.create_topic("t")
    for _ in range(5):
        await client.produce("t", batch(bytes(10_000)))
    await set_quota(broker, client, ANYBODY, consumer_byte_rate=1500)
    answer = await client.ask(fetch_request("t", 0, session_epoch=0), 12)
    assert answer.session_id
    assert len(answer.responses[0].partitions[0].records) <= 15_000
    answer = await client.ask(fetch_request("t", 0, session_epoch=0), 12)
    assert answer.throttle_time_ms
    assert answer.session_id == 0
    assert not answer.responses
    assert len(broker.running.sources.sessions) == 1


@pytest.mark.slow
async def test_requests_are_throttled_by_the_time_that_they_take(broker: Broker, client: Client) -> None:
    await set_quota(broker, client, ANYBODY, request_percentage=0.0001)

    async def throttle_ms() -> int:
        answer = await client.ask(m.MetadataRequest(topics=None), 12)
        return int(answer.throttle_time_ms)

    found = await throttle_ms()
    assert 0 < found <= 1000, "a request quota throttles for a window at most"
    await set_quota(broker, client, ANYBODY, request_percentage=None)
    assert await throttle_ms() == 0


async def test_the_tasks_of_a_request_count(broker: Broker, client: Client) -> None:
    names = [f"t{number}" for number in range(40)]
    for name in names:
        await client.create_topic(name)
    await set_quota(broker, client, ANYBODY, request_percentage=1000)
    request = m.DescribeConfigsRequest
    resources = [request.DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
    answer = await client.ask(request(resources=resources))
    assert len(answer.results) == len(names)
    (row,) = broker.running.quotas.clients.request.metrics()
    described = next(each for each in broker.api_metrics if each.name == "DescribeConfigs")
    ((total_ns, local_ns),) = described.durations()
    busy_ns = row.value * 10 / 100 * 1e9  # the rate is measured over ten seconds
    assert local_ns < busy_ns
    assert 0.5 * total_ns <= busy_ns <= 1.1 * total_ns


async def test_the_threads_that_convert_records_for_a_request_count(broker: Broker, client: Client) -> None:
    await client.create_topic("t")
    await set_quota(broker, client, ANYBODY, request_percentage=1000)
    inflated = batch(bytes(QUICK_BYTES), codec=Codec.GZIP)
    assert len(inflated) < QUICK_BYTES / 500
    requests = (
        ("Produce", produce_request("t", inflated), 9),
        ("FetchConsumer", fetch_request("t", 0), 2),  # in a version without batches
    )
    recorded = 0.0
    began_ns = time.thread_time_ns()
    decompress(Codec.GZIP, memoryview(inflated)[HEADER_SIZE:], 2 * QUICK_BYTES)
    least_ns = time.thread_time_ns() - began_ns  # both need it
    for name, request, version in requests:
        await client.ask(request, version)
        (row,) = broker.running.quotas.clients.request.metrics()
        handled = next(each for each in broker.api_metrics if each.name == name)
        ((total_ns, local_ns),) = handled.durations()
        busy_ns = (row.value - recorded) * 10 / 100 * 1e9  # the rate is measured over ten seconds
        recorded = row.value
        assert local_ns < 0.5 * total_ns, "a thread converts it"
        assert 0.5 * least_ns <= busy_ns <= 1.1 * total_ns


async def test_the_most_exact_quota_counts_and_its_removal_reveals_the_next_one(broker: Broker, client: Client) -> None:
    quotas = broker.running.quotas.clients.produce

    def bound() -> float | None:
        sensor = quotas.sensor(call_of("test", "ANONYMOUS"))
        return None if sensor is None else sensor.bound

    steps: list[tuple[dict[str, str | None], float | None, float | None]] = [
        ({"client-id": None}, 1000, 1000),
        ({"client-id": "test"}, 2000, 2000),
        ({"user": None}, 3000, 3000),
        ({"user": "ANONYMOUS"}, 4000, 4000),
        ({"user": "ANONYMOUS", "client-id": "test"}, 5000, 5000),
        ({"user": "ANONYMOUS", "client-id": "test"}, None, 4000),
        ({"user": "ANONYMOUS"}, None, 3000),
        ({"user": None}, None, 2000),
        ({"client-id": "test"}, None, 1000),
        ({"client-id": None}, None, None),
    ]
    for entity, value, expected in steps:
        await client.ask(alter_quotas((entity, {"producer_byte_rate": value})))
        await eventually_async(lambda: asyncio.sleep(0, bound()), lambda found, wanted=expected: found == wanted)
    assert not broker.running.quotas.clients.is_active


def _topic(name: str, partitions: int) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(
        topics=[m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)],
        timeout_ms=10_000,
    )


async def test_partitions_over_the_quota_are_refused_in_new_versions_and_only_delayed_in_old_ones(
    broker: Broker, client: Client
) -> None:
    await set_quota(broker, client, ANYBODY, controller_mutation_rate=2)
    answer = await client.ask(_topic("a", 30), 7)  # the bucket has 22 tokens
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms == 0
    answer = await client.ask(_topic("b", 1), 7)
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 0 < answer.throttle_time_ms <= 4000
    old, other = await Client.connect(broker.port), await Client.connect(broker.port)
    answer = await old.ask(_topic("c", 6), 5)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert 2000 <= answer.throttle_time_ms <= 7000
    request = m.CreatePartitionsRequest
    more = request(topics=[request.CreatePartitionsTopic(name="a", count=31, assignments=None)], timeout_ms=10_000)
    refused = await other.ask(more, 3)
    assert refused.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms > 0
    another = await Client.connect(broker.port)
    delete = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name="a")], timeout_ms=10_000)
    refused = await another.ask(delete, 6)
    assert refused.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    last = await Client.connect(broker.port)
    validation = m.CreateTopicsRequest(topics=_topic("d", 1).topics, timeout_ms=1000, validate_only=True)
    assert (await last.ask(validation, 7)).topics[0].error_code == ErrorCode.NONE
    for each in (old, other, another, last):
        each.close()


@pytest.mark.slow
async def test_an_address_over_its_connection_quota_waits_and_is_closed(broker: Broker, client: Client) -> None:
    await client.ask(alter_quotas(({"ip": "127.0.0.1"}, {"connection_creation_rate": 1.0})))
    connections = broker.running.quotas.connections
    await eventually_async(lambda: asyncio.sleep(0, connections.addresses()), lambda found: found == ["127.0.0.1"])
    opened = [await Client.connect(broker.port) for _ in range(12)]
    answered = 0
    for each in opened[:10]:
        answered += bool((await each.ask(m.ApiVersionsRequest(), 0)).api_keys)
    assert answered == 10
    started = time.monotonic()
    assert await opened[-1].is_closed()
    assert 0.05 <= time.monotonic() - started <= 5
    for each in opened:
        each.close()


async def test_metrics_have_what_clients_use_and_how_long_they_are_throttled(broker: Broker, client: Client) -> None:
    await client.create_topic("t")
    await set_quota(broker, client, {"user": None}, producer_byte_rate=10_000)
    answer = await client.ask(produce_request("t", batch(bytes(120_000))), 12)
    assert answer.throttle_time_ms > 0
    families = {family.name: family.samples for family in quota_page(take_snapshot(broker.running.sources))}
    of_user = {"user": "ANONYMOUS", "client_id": ""}
    (rate,) = families["kafka_server_produce_byte_rate"]
    assert rate.labels == of_user
    assert rate.value == pytest.approx(12_000, rel=0.1)
    (throttle,) = families["kafka_server_produce_throttle_time"]
    assert (throttle.labels, throttle.value) == (of_user, answer.throttle_time_ms)
    counts = {sample.labels["quota"]: sample.value for sample in families["odradek_quota_throttles"]}
    assert counts == {"produce": 1, "fetch": 0, "request": 0, "controllermutation": 0, "connection": 0}
    documented = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    assert all(f"`{sample.name}`" in documented for samples in families.values() for sample in samples)


async def test_quotas_of_a_former_run_are_effective_from_the_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        await client.ask(
            alter_quotas(
                ({"user": "u", "client-id": None}, {"consumer_byte_rate": 7.0}),
                ({"ip": None}, {"connection_creation_rate": 9.0}),
            )
        )
        client.close()
    async with running_broker(tmp_path / "data") as broker:
        assert broker.running.quotas.clients.entities() == [{"user": "u", "client-id": None}]
        assert broker.running.quotas.connections.addresses() == [None]


async def test_a_topic_is_created_for_a_client_that_has_no_mutations_left(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await set_quota(broker, client, {"user": None}, controller_mutation_rate=1)
    await client.ask(_topic("many", 100), 5)
    other = await Client.connect(broker.port)
    request = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name="automatic")], allow_auto_topic_creation=True
    )
    await eventually_async(lambda: other.ask(request, 12), lambda answer: answer.topics[0].error_code == ErrorCode.NONE)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    other.close()


async def test_topics_that_are_created_automatically_are_charged_to_the_client(broker: Broker, client: Client) -> None:
    """Kafka's quota for them is permissive: it rejects none of them, but the next CreateTopics request."""
    await set_quota(broker, client, ANYBODY, controller_mutation_rate=1)
    names = [f"automatic-{number}" for number in range(15)]  # the bucket has 11 tokens
    request = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True
    )
    answer = await client.ask(request, 12)
    assert ([each.error_code for each in answer.topics], answer.throttle_time_ms) == ([ErrorCode.NONE] * 15, 0)
    refused = await client.ask(_topic("b", 1), 7)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 0 < refused.throttle_time_ms <= 4000


@pytest.mark.parametrize("key_type", [0, 1])
async def test_the_partitions_of_a_coordinators_topic_are_charged_to_the_client_that_finds_it_first(
    broker: Broker, client: Client, key_type: int
) -> None:
    await set_quota(broker, client, ANYBODY, controller_mutation_rate=0.1)  # the bucket has 1.1 tokens
    for _ in range(2):  # the second request creates nothing
        found = await client.ask(m.FindCoordinatorRequest(key="g", key_type=key_type), 3)
        assert (found.error_code, found.throttle_time_ms) == (ErrorCode.NONE, 0)
    refused = await client.ask(_topic("b", 1), 7)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    partitions = sum(len(topic.partitions) for topic in broker.running.metadata_cache.topics.values())
    assert refused.throttle_time_ms == pytest.approx((partitions - 1.1) / 0.1 * 1000, rel=0.05)


async def test_a_quota_of_0_throttles_as_in_kafka(broker: Broker, client: Client) -> None:
    """Kafka accepts it. Its infinite throttle time becomes -1, so producers and consumers are not throttled at all, and
    mutations are rejected without a throttle time.
    """
    await client.create_topic("t")
    await set_quota(broker, client, ANYBODY, producer_byte_rate=0, consumer_byte_rate=0, controller_mutation_rate=0)
    for _ in range(2):
        written = await client.ask(produce_request("t", batch(KB)), 9)
        assert (written.throttle_time_ms, written.responses[0].partition_responses[0].error_code) == (0, ErrorCode.NONE)
        found = await client.ask(fetch_request("t", 0), 4)
        assert (found.throttle_time_ms, len(found.responses[0].partitions[0].records) > 1000) == (0, True)
    old = await client.ask(_topic("old", 1), 5)
    assert (old.throttle_time_ms, old.topics[0].error_code) == (0, ErrorCode.NONE)
    new = await client.ask(_topic("new", 1), 7)
    assert (new.throttle_time_ms, new.topics[0].error_code) == (0, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


async def test_a_new_session_reads_the_changes_that_were_missed() -> None:
    clock = VirtualTime()
    clients, connections = (
        QuotaManagers(QuotaConfig(), QuotaConfig(), clock),
        ConnectionRateQuotas(QuotaConfig(), clock),
    )
    handler = QuotaConfigHandler(clients, connections)
    ensemble = EmbeddedEnsemble(None, "", now_ms=clock.now_ms)
    registry = await ensemble.connect()
    await ensure_path(registry, znodes.CONFIG_CHANGES)
    store = ClientConfigs(lambda: registry)
    entities: list[dict[str, str | None]] = [{"user": "u"}, {"user": None, "client-id": "c"}, {"ip": "10.0.0.1"}]
    rates = [{"producer_byte_rate": 5.0}, {"request_percentage": 50.0}, {"connection_creation_rate": 1.0}]
    for entity, rate in zip(entities, rates, strict=True):
        await store.alter_quotas(entity, rate, validate_only=False)
    await handler.replace(registry)
    assert clients.entities() == entities[:2]
    assert connections.addresses() == ["10.0.0.1"]
    for entity, rate in zip(entities[1:], rates[1:], strict=True):
        await store.alter_quotas(entity, dict.fromkeys(rate), validate_only=False)
    await handler.replace(registry)
    assert clients.entities() == entities[:1]
    assert connections.addresses() == []
    await ensemble.close()


async def test_a_change_of_an_unknown_entity_is_ignored(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    handler = broker.running.quotas.handler
    for path in ("users", "users/u/groups/g", "users/u/clients", "ips/a/b"):
        await handler.update(path, {"producer_byte_rate": "5"})
    await handler.update("users/u", {"producer_byte_rate": "many", "consumer_byte_rate": "7"})
    assert caplog.text.count("ignoring config change of unknown entity") == 4
    assert broker.running.quotas.clients.entities() == [{"user": "u"}]


def test_invented_client_ids_cost_no_lasting_memory() -> None:
    clock = VirtualTime()
    manager = ClientQuotaManager(QuotaConfig(), clock)
    manager.update({"client-id": None}, 1000.0)
    for number in range(20 * FEW_ENTITIES):
        assert manager.record(call_of(f"c{number}"), 5, clock.monotonic_ms()) == 0
        clock.advance(15)
    assert len(list(manager.metrics())) <= 2 * FEW_ENTITIES


def test_a_negative_quota_or_one_that_is_no_number_is_none() -> None:
    clock: Any = VirtualTime()
    for bound in (float("nan"), -1.0):
        manager = ClientQuotaManager(QuotaConfig(), clock)
        manager.update({"client-id": None}, bound)
        assert manager.record(call_of("c"), 1e9, 0) == 0


def test_an_address_may_open_connections_again_after_the_throttle_time() -> None:
    clock = VirtualTime()
    quotas = ConnectionRateQuotas(QuotaConfig(), clock)
    quotas.update(None, 5)
    allowed = 0
    for _ in range(60_000 // 20):
        clock.advance(20)
        allowed += quotas.throttle_ms("10.0.0.1") == 0
    assert allowed == pytest.approx(5 * 60, rel=0.2)
    quotas.update("10.0.0.1", 100_000)
    assert quotas.throttle_ms("10.0.0.1") == 0


def test_throttled_replicas_are_those_of_this_broker() -> None:
    assert throttled_partitions("*", 1) is None
    assert throttled_partitions("0:1,1:2, 5:1", 1) == {0, 5}
    clock = VirtualTime()
    quotas = ReplicationQuotas(1, QuotaConfig(), QuotaConfig(), clock)
    quotas.topic_config_changed("t", {"leader.replication.throttled.replicas": "0:1,3:2"})
    assert quotas.leader.is_throttled("t", 0)
    assert not quotas.leader.is_throttled("t", 3)
    assert not quotas.follower.is_active
    quotas.leader.update_quota(1000)
    quotas.leader.record(1001)
    assert quotas.leader.is_exceeded()
    clock.advance(2000)
    assert not quotas.leader.is_exceeded()
    quotas.topic_config_changed("t", {})
    assert not quotas.leader.is_active
