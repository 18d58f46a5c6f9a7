"""Authorization of requests that wait, in a broker of this process: fetches, sessions, and changes of ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.security.state.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.broker.server import Broker
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from tests.broker.wire import Client, batch, produce_request, running_broker

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "auto.create.topics.enable": "false",
}
HERE, THERE = "127.0.0.1", "127.0.0.2"
"""The address of the administrator, and that of the user."""
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
LONG_MS = 15_000
Wanted = m.FetchRequest.FetchTopic
NO_RIGHTS = {"allow.everyone.if.no.acl.found": "true"}
"""Until the administrator has created the first ACLs."""
EVERYTHING = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.CLUSTER, "kafka-cluster"),
)


def creation(resource_type: ResourceType, name: str, operation: AclOperation, host: str) -> Any:
    """An ACL that allows an operation to the clients of a host."""
    return m.CreateAclsRequest.AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:ANONYMOUS",
        host=host,
        operation=operation,
        permission_type=AclPermissionType.ALLOW,
    )


async def allow(admin: Client, *creations: Any) -> None:
    """Create ACLs."""
    answer = await admin.ask(m.CreateAclsRequest(creations=list(creations)))
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE] * len(creations)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", {**AUTHORIZER, **NO_RIGHTS}) as running:
        yield running


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Client]:
    connected = await Client.connect(broker.port)
    await allow(connected, *(creation(kind, name, AclOperation.ALL, HERE) for kind, name in EVERYTHING))
    yield connected
    connected.close()


@pytest.fixture
async def user(broker: Broker, admin: Client) -> AsyncIterator[Client]:
    streams = await asyncio.open_connection(HERE, broker.port, limit=1 << 20, local_addr=(THERE, 0))
    connected = Client(*streams)
    yield connected
    connected.close()


def fetch(topics: dict[str, bytes], max_wait_ms: int, **fields: Any) -> m.FetchRequest:
    """A fetch of partition 0 of each topic, by id."""
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = [Wanted(topic_id=topic_id, partitions=[partition]) for topic_id in topics.values()]
    return m.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=wanted, **fields)


def codes(answer: m.FetchResponse, topics: dict[str, bytes]) -> dict[str, ErrorCode]:
    """The error of each topic in a response."""
    names = {topic_id: name for name, topic_id in topics.items()}
    return {names[each.topic_id]: ErrorCode(each.partitions[0].error_code) for each in answer.responses}


async def test_a_fetch_waits_for_the_topics_that_the_client_may_read(admin: Client, user: Client) -> None:
    topics = {name: (await admin.create_topic(name, 1)).topic_id for name in ("open", "closed")}
    await allow(admin, creation(ResourceType.TOPIC, "open", AclOperation.READ, THERE))
    await user.send(fetch(topics, LONG_MS), 13)
    await admin.ask(produce_request("open", batch(b"value")), 9)
    answer = await user.receive()
    assert codes(answer, topics) == {"open": ErrorCode.NONE, "closed": DENIED}
    assert [bool(each.partitions[0].records) for each in answer.responses] == [True, False]


async def test_a_fetch_of_topics_that_the_client_may_not_read_does_not_wait(admin: Client, user: Client) -> None:
    topics = {"closed": (await admin.create_topic("closed", 1)).topic_id}
    answer = await asyncio.wait_for(user.ask(fetch(topics, LONG_MS), 13), LONG_MS / 2000)
    assert codes(answer, topics) == {"closed": DENIED}


async def test_a_session_checks_each_request(admin: Client, user: Client) -> None:
    topics = {"closed": (await admin.create_topic("closed", 1)).topic_id}
    await admin.ask(produce_request("closed", batch(b"value")), 9)
    answer = await user.ask(fetch(topics, 0, session_epoch=0), 13)
    assert codes(answer, topics) == {"closed": DENIED}
    session = {"session_id": answer.session_id}
    answer = await user.ask(fetch({}, 0, session_epoch=1, **session), 13)
    assert codes(answer, topics) == {"closed": DENIED}
    await allow(admin, creation(ResourceType.TOPIC, "closed", AclOperation.READ, THERE))
    answer = await user.ask(fetch({}, 0, session_epoch=2, **session), 13)
    assert codes(answer, topics) == {"closed": ErrorCode.NONE}


async def test_a_write_without_acknowledgement_and_without_authorization_closes_the_connection(
    admin: Client, user: Client
) -> None:
    await admin.create_topic("closed", 1)
    await user.send(produce_request("closed", batch(b"value"), acks=0), 9)
    assert await user.is_closed()


async def test_a_follower_needs_the_right_of_brokers(admin: Client, user: Client) -> None:
    topics = {"open": (await admin.create_topic("open", 1)).topic_id}
    await allow(admin, creation(ResourceType.TOPIC, "open", AclOperation.READ, THERE))
    request = fetch(topics, 0, replica_state=m.FetchRequest.ReplicaState(replica_id=0, replica_epoch=-1))
    assert codes(await user.ask(request, 15), topics) == {"open": DENIED}
    old = m.FetchRequest(
        replica_id=0,
        max_wait_ms=0,
        min_bytes=1,
        topics=[Wanted(topic="open", partitions=[m.FetchRequest.FetchPartition(partition=0)])],
    )
    answer = await user.ask(old, 4)
    assert answer.responses[0].partitions[0].error_code == DENIED


async def test_topics_without_authorization_are_not_created(admin: Client, user: Client) -> None:
    names = [m.MetadataRequest.MetadataRequestTopic(name="hidden")]
    answer = await user.ask(m.MetadataRequest(topics=names), 9)
    assert [each.error_code for each in answer.topics] == [DENIED]
    await admin.create_topic("hidden", 1)
    assert (await user.ask(m.MetadataRequest(topics=names), 9)).topics[0] == answer.topics[0]
