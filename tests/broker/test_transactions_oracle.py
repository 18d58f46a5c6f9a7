"""The same raw requests to Apache Kafka 3.9.2 and to Odradek: the transaction coordinator returns the same codes.

Valid and invalid ones, in every version that Kafka 3.9 supports: epochs that have ended, ids of other producers, ids
that are empty or 32 KB long, partitions and groups that do not exist, ends without a beginning. A request that Kafka
answers with CONCURRENT_TRANSACTIONS while markers are under way is repeated until the response is another one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.transactions_play import ID, Script, a_transaction, ids, writes
from tests.broker.wire import Client, running_broker
from tests.jvm.kafka import running_kafka
from tests.support.eventually import eventually_async

pytestmark = pytest.mark.jvm

PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


async def run(port: int) -> list[tuple[object, ...]]:
    client = await Client.connect(port)
    # Kafka accepts connections before its own metadata lists it.
    await eventually_async(lambda: client.ask(m.MetadataRequest(topics=[]), 9), lambda answer: answer.brokers)
    await client.create_topic("t", 2)
    script = Script(client)
    for kind, key in ((1, ID), (0, "g")):
        find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        await eventually_async(
            lambda find=find: client.ask(find, 4), lambda answer: not answer.coordinators[0].error_code
        )
    for kind in (0, 1):
        find = m.FindCoordinatorRequest(key_type=kind, key="")
        script.printed.append((ErrorCode((await client.ask(find, 3)).error_code).name,))
    parts: list[Callable[[], Awaitable[None]]] = [
        lambda: ids(script),
        lambda: a_transaction(script),
        lambda: writes(script),
    ]
    for part in parts:
        await part()
    client.close()
    return script.printed


async def test_the_responses_match_those_of_kafka(tmp_path: Path) -> None:
    with running_kafka(tmp_path / "kafka", PROPERTIES) as kafka:
        theirs = await run(kafka.port)
    async with running_broker(tmp_path / "ours", PROPERTIES) as broker:
        ours = await run(broker.port)
    assert ours == theirs
    assert len(ours) > 200
