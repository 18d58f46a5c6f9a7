"""Scripts of admin requests, for Apache Kafka and Odradek alike, and the transcripts of the responses.

Error messages are compared only for presence. Random values and times are replaced, and where the order in a response
is that of a hash table it is sorted.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from odradek.protocol import messages as m
from tests.broker.wire import Client
from tests.support.eventually import eventually_async

Play = Callable[["Script"], Awaitable[None]]

NEWEST_OF_ZOOKEEPER = {2: 9, 3: 12, 15: 5, 45: 0, 57: 1, 60: 1}
"""The newest version of Kafka 3.9 with ZooKeeper, of APIs that have a newer one since."""
UNORDERED = ("topics", "partitions", "results", "entries", "values", "credential_infos", "groups", "configs")
UUID = re.compile(r"(?<=topic_id=)b(['\"]).{16,64}?\1(?=[,)])")
SECRET = (b"s" * 20, b"p" * 64)


class Script:
    """One run of a script against one broker, and the transcript of the responses."""

    def __init__(self, port: int, name: str) -> None:
        """`name` begins the names of all topics, users and the like, so that no two runs share one."""
        self.name = name
        self.transcript: list[str] = []
        self._port = port
        self._client: Client | None = None

    async def client(self) -> Client:
        """The current connection."""
        if self._client is None:
            self._client = await Client.connect(self._port)
        return self._client

    async def ask(self, request: Any, *versions: int) -> Any:
        """Send in each of these versions (by default all that Kafka 3.9 has) and record the responses, or that the
        broker closed the connection; returns the last response.
        """
        answer: Any = None
        for version in versions or spoken(type(request)):
            what = f"{type(request).__name__} v{version} {request!r}"
            try:
                answer = await (await self.client()).ask(request, version)
            except (asyncio.IncompleteReadError, ConnectionError):
                self._client, answer = None, None
                self.note(what, "the connection is ended")
            else:
                self.note(what, answer)
        return answer

    async def quietly(self, request: Any, version: int) -> Any:
        """Send and return the response, None when the broker closes the connection; records nothing."""
        try:
            return await (await self.client()).ask(request, version)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._client = None
            return None

    def note(self, what: str, answer: Any) -> None:
        """Record."""
        tidy(answer)
        self.transcript.append(f"{UUID.sub('ID', what)}\n    {answer!r}".replace(self.name, "NAME"))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def spoken(request: Any) -> range:
    """The versions of an API that Kafka 3.9 supports."""
    newest: int = NEWEST_OF_ZOOKEEPER.get(request.API_KEY, request.MAX_VERSION)
    return range(request.MIN_VERSION, newest + 1)


def tidy(part: Any) -> None:
    """Sort unordered fields, replace values that differ between brokers, and replace messages by their presence."""
    if not hasattr(type(part), "__slots__"):
        return
    if getattr(part, "error_message", None):
        part.error_message = "said"
    if getattr(part, "topic_id", None) and part.topic_id != bytes(16):
        part.topic_id = b"id"
    for field in type(part).__slots__:
        value = getattr(part, field)
        if isinstance(value, list):
            for item in value:
                tidy(item)
            if field in UNORDERED:
                value.sort(key=repr)


# ---- requests


def describe_quotas(*components: tuple[str, int, str | None], strict: bool = False) -> m.DescribeClientQuotasRequest:
    request = m.DescribeClientQuotasRequest
    return request(
        components=[
            request.ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components
        ],
        strict=strict,
    )


Entity = Mapping[str, str | None]
Ops = Mapping[str, float | None]


def alter_quotas(*entries: tuple[Entity, Ops], validate_only: bool = False) -> m.AlterClientQuotasRequest:
    request = m.AlterClientQuotasRequest
    return request(
        entries=[
            request.EntryData(
                entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[
                    request.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                    for key, value in ops.items()
                ],
            )
            for entity, ops in entries
        ],
        validate_only=validate_only,
    )


def alter_scram(
    *users: tuple[str, int, int] | tuple[str, int, int, bytes, bytes], deletions: tuple[tuple[str, int], ...] = ()
) -> m.AlterUserScramCredentialsRequest:
    """`users`: name, mechanism, iterations, and, for some cases, salt and salted password."""
    request = m.AlterUserScramCredentialsRequest
    return request(
        deletions=[request.ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in deletions],
        upsertions=[
            request.ScramCredentialUpsertion(
                name=user[0],
                mechanism=user[1],
                iterations=user[2],
                salt=(user[3:] or SECRET)[0],
                salted_password=(user[3:] or SECRET)[1],
            )
            for user in users
        ],
    )


def describe_scram(*users: str | None) -> m.DescribeUserScramCredentialsRequest:
    """No user: all of them; None as the only one: an empty list."""
    request = m.DescribeUserScramCredentialsRequest
    if not users:
        return request(users=None)
    return request(users=[request.UserName(name=user) for user in users if user is not None])


def update_features(
    *updates: tuple[str, int] | tuple[str, int, int], validate_only: bool = False
) -> m.UpdateFeaturesRequest:
    """`updates`: name, level, kind of upgrade (1: up)."""
    request = m.UpdateFeaturesRequest
    return request(
        feature_updates=[
            request.FeatureUpdateKey(
                feature=each[0],
                max_version_level=each[1],
                upgrade_type=(each[2:] or (1,))[0],
            )
            for each in updates
        ],
        validate_only=validate_only,
        timeout_ms=10_000,
    )


def new(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    assigned: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> Any:
    request = m.CreateTopicsRequest
    return request.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            request.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assigned or {}).items()
        ],
        configs=[request.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def create(*topics: Any, validate_only: bool = False, timeout_ms: int = 10_000) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


async def transcript(play: Play, port: int, name: str) -> list[str]:
    """The responses of a broker to a script."""
    script = Script(port, name)
    try:
        client = await script.client()
        await eventually_async(lambda: client.ask(m.MetadataRequest(topics=[]), 7), lambda answer: answer.brokers)
        await play(script)
    finally:
        script.close()
    return script.transcript
