"""Verification of transactional batches by leaders (KIP-890) can be switched while the broker runs.

`transaction.partition.verification.enable` is one of Kafka's dynamic properties, for one broker or for all of them
(KIP-226). It does not affect producers of transactions version 2: for them the request adds the partition.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.transaction_requests import producer
from tests.broker.wire import DEADLINE_S, Client, batch, running_broker
from tests.jvm.kafka import running_kafka
from tests.support.eventually import eventually_async

NAME = "transaction.partition.verification.enable"
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
THIS_BROKER, ALL_BROKERS = "0", ""
BROKER, SET, DELETE = 4, 0, 1
PARTITIONS = 24


class Script:
    """One run against one broker; `printed` has its responses."""

    def __init__(self, client: Client, first: int = 0) -> None:
        """The partitions from `first` on have no records."""
        self._client = client
        self._fresh = iter(range(first, PARTITIONS))
        self.printed: list[tuple[object, ...]] = []

    async def begin(self) -> None:
        metadata = m.MetadataRequest(topics=[])
        # Kafka accepts connections before its own metadata lists it.
        await eventually_async(lambda: self._client.ask(metadata, 9), lambda answer: answer.brokers)
        await self._client.create_topic("t", PARTITIONS)
        find = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])
        await eventually_async(lambda: self._client.ask(find, 4), lambda answer: not answer.coordinators[0].error_code)

    async def alter(
        self, resource: str, value: str | None, operation: int = SET, *, validate_only: bool = False
    ) -> None:
        request = m.IncrementalAlterConfigsRequest
        change = request.AlterableConfig(name=NAME, config_operation=operation, value=value)
        wanted = request.AlterConfigsResource(resource_type=BROKER, resource_name=resource, configs=[change])
        answer = await self._client.ask(request(resources=[wanted], validate_only=validate_only), 1)
        (notified,) = answer.responses
        self.printed.append(
            ("alter", resource, value, operation, ErrorCode(notified.error_code).name, notified.error_message)
        )

    async def becomes(self, value: str) -> None:
        """Wait until the broker applies a value, and record the source that it reports."""
        request = m.DescribeConfigsRequest
        wanted = request.DescribeConfigsResource(
            resource_type=BROKER, resource_name=THIS_BROKER, configuration_keys=[NAME]
        )
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self._client.ask(request(resources=[wanted], include_synonyms=True), 4)
                (found,) = answer.results[0].configs
                if found.value == value:
                    break
        synonyms = [(each.name, each.value, each.source) for each in found.synonyms]
        self.printed.append(("value", found.value, found.config_source, found.read_only, synonyms))

    async def write(self, version: int) -> ErrorCode:
        """The first batch of a transaction that its coordinator does not have, in a partition of its own."""
        partition = next(self._fresh)
        init = m.InitProducerIdRequest(transactional_id=f"id-{partition}", transaction_timeout_ms=60_000)
        while (who := await self._client.ask(init, 4)).error_code:
            pass
        data = batch(b"value", **producer(who.producer_id, who.producer_epoch))
        part = m.ProduceRequest.PartitionProduceData(index=partition, records=data)
        request = m.ProduceRequest(
            transactional_id=init.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[m.ProduceRequest.TopicProduceData(name="t", partition_data=[part])],
        )
        answer = await self._client.ask(request, version)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        self.printed.append(("write", version, code.name))
        return code

    async def verifies(self) -> bool:
        """Whether unverified batches are refused; records the errors of each version."""
        notified = [await self.write(version) for version in (3, 10, 11)]
        refused = [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE]
        assert notified in ([ErrorCode.NONE] * 3, refused)
        return notified == refused


async def play(port: int) -> list[tuple[object, ...]]:
    client = await Client.connect(port)
    script = Script(client)
    await script.begin()
    assert await script.verifies(), "the default"
    for resource in (THIS_BROKER, ALL_BROKERS):
        for value in ("false", "maybe", "", None):
            await script.alter(resource, value, validate_only=True)
        await script.alter(resource, "maybe")
    assert await script.verifies(), "none of these values applies"
    for resource in (THIS_BROKER, ALL_BROKERS):
        await script.alter(resource, "false")
        await script.becomes("false")
        assert not await script.verifies()
        await script.alter(resource, None, DELETE)
        await script.becomes("true")
        assert await script.verifies()
    await script.alter(ALL_BROKERS, "false")
    await script.becomes("false")
    await script.alter(THIS_BROKER, "true")
    await script.becomes("true")
    assert await script.verifies(), "the value of one broker overrides that of all"
    client.close()
    return script.printed


async def test_a_change_at_run_time_takes_effect_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", PROPERTIES) as broker:
        printed = await play(broker.port)
    refused: list[Any] = [each for each in printed if each[0] == "alter" and each[4] != "NONE"]
    assert len(refused) == 8, refused


async def test_it_survives_a_restart_and_does_not_affect_version_2(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data", PROPERTIES) as broker:
        client = await Client.connect(broker.port)
        script = Script(client)
        await script.begin()
        await script.alter(THIS_BROKER, "false")
        await script.becomes("false")
        assert await script.write(12) is ErrorCode.NONE
        client.close()
    async with running_broker(tmp_path / "data", PROPERTIES) as broker:
        client = await Client.connect(broker.port)
        script = Script(client, 1)
        await script.becomes("false")
        assert not await script.verifies()
        found = await client.ask(m.ListTransactionsRequest(state_filters=["Ongoing"]), 1)
        assert len(found.transaction_states) == 1, "the leader has added the partition, and no request the others"
        client.close()


@pytest.mark.jvm
@pytest.mark.slow
async def test_kafka_does_the_same(tmp_path: Path) -> None:
    with running_kafka(tmp_path / "kafka", PROPERTIES) as kafka:
        theirs = await play(kafka.port)
    async with running_broker(tmp_path / "ours", PROPERTIES) as broker:
        ours = await play(broker.port)
    assert ours == theirs
