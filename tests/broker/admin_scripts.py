"""Scripts of admin requests, for Apache Kafka and Odradek alike, and the transcripts of the responses.

Error messages are compared only for presence. Random values and times are replaced, and where the order in a response
is that of a hash table it is sorted.
"""

from __future__ import annotations

import asyncio
import math
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


def acl(word: str, number: int = 2) -> dict[str, Any]:
    """The fields that ACL filters have in common."""
    return {"resource_type_filter": number, "resource_name_filter": word, "operation": 3, "permission_type": 3}


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


# ---- scripts


async def without_security(script: Script) -> None:
    """Requests that need SASL, ACLs or tokens, on a plaintext listener without an authorizer."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256", ""):
        await script.ask(m.SaslHandshakeRequest(mechanism=mechanism))
    await script.ask(m.SaslAuthenticateRequest(auth_bytes=b"\0user\0secret"))
    for number, pattern, operation in ((2, 3, 3), (1, 1, 1), (0, 3, 3), (2, 0, 3), (2, 3, 0), (99, 3, 3), (2, 4, 3)):
        rule = m.DescribeAclsRequest(
            resource_type_filter=number,
            resource_name_filter="topic",
            pattern_type_filter=pattern,
            operation=operation,
            permission_type=3,
        )
        await script.ask(rule, *(version for version in range(4) if version or pattern == 3))
        deletion = m.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=number, pattern_type_filter=pattern, operation=operation, permission_type=3
        )
        await script.ask(m.DeleteAclsRequest(filters=[deletion, deletion]), *(v for v in range(4) if v or pattern == 3))
        creation = m.CreateAclsRequest.AclCreation(
            resource_type=number,
            resource_name="topic",
            resource_pattern_type=pattern,
            principal="User:x",
            host="*",
            operation=operation,
            permission_type=3,
        )
        await script.ask(
            m.CreateAclsRequest(creations=[creation, creation]), *(v for v in range(4) if v or pattern == 3)
        )
    await script.ask(m.CreateAclsRequest())
    await script.ask(m.DeleteAclsRequest())
    renewer = m.CreateDelegationTokenRequest.CreatableRenewers
    for renewers in ([], [renewer(principal_type="User", principal_name="x")], [renewer(principal_type="Group")]):
        await script.ask(m.CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1))
    await script.ask(
        m.CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="y", max_lifetime_ms=5), 3
    )
    await script.ask(m.RenewDelegationTokenRequest(hmac=b"none", renew_period_ms=1))
    await script.ask(m.ExpireDelegationTokenRequest(hmac=b"none", expiry_time_period_ms=-1))
    owner = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    for owners in (None, [], [owner(principal_type="User", principal_name="x")]):
        await script.ask(m.DescribeDelegationTokenRequest(owners=owners))
    await script.ask(m.EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=b"\x7f\0\0\1"))


async def quotas(script: Script) -> None:
    """Quotas set, described, and refused."""
    user, client, address = f"{script.name}-user &%", f"{script.name}-client", "192.0.2.17"
    rate = "producer_byte_rate"
    for entries in (
        [({"user": user}, {rate: 1000.0, "request_percentage": 12.5})],
        [({"client-id": client}, {"consumer_byte_rate": 1e9})],
        [({"user": user, "client-id": client}, {"controller_mutation_rate": 0.25})],
        [({"client-id": client, "user": None}, {rate: 5.0})],
        [({"user": user, "client-id": None}, {rate: 6.0})],
        [({"ip": address}, {"connection_creation_rate": 7.0})],
        [({"ip": None}, {"connection_creation_rate": 8.0})],
        [({"user": None}, {rate: 9.0}), ({"client-id": None}, {rate: 10.0})],
        [({"user": user}, {rate: 11.0}), ({"user": user}, {rate: 12.0})],
        [({"user": user}, {"connection_creation_rate": 1.0})],
        [({"ip": address}, {rate: 1.0})],
        [({"ip": address, "user": user}, {rate: 1.0})],
        [({"ip": "no address"}, {"connection_creation_rate": 1.0})],
        [({"ip": address}, {"connection_creation_rate": 1.5})],
        [({"group": user}, {rate: 1.0})],
        [({}, {rate: 1.0})],
        [({"user": ""}, {rate: 1.0})],
        [({"user": user}, {"no_such_rate": 1.0})],
        [({"user": user}, {"no_such_rate": None})],
        [({"user": user}, {rate: -1.0})],
        [({"user": user}, {rate: 0.0})],
        [({"user": user}, {rate: 0.5})],
        [({"user": user}, {rate: math.nan})],
        [({"user": user}, {rate: math.inf})],
        [({"user": user}, {"request_percentage": -2.5})],
        [({"user": user}, {"request_percentage": 1e-3})],
        [({"user": user}, {"controller_mutation_rate": 12345678.9})],
        [({"user": user}, {})],
        [],
        [({"client-id": client, "user": user}, {"controller_mutation_rate": None, rate: None})],
        [({"client-id": f"{client}-absent"}, {rate: None})],
    ):
        await script.ask(alter_quotas(*entries, validate_only=True), 1)
        await script.ask(alter_quotas(*entries))
    exact, default, any_ = 0, 1, 2
    for components in (
        [],
        [("user", exact, user)],
        [("user", default, None)],
        [("user", any_, None)],
        [("user", any_, None), ("client-id", any_, None)],
        [("user", exact, user), ("client-id", exact, client)],
        [("user", exact, user), ("client-id", default, None)],
        [("client-id", exact, client)],
        [("client-id", any_, None)],
        [("ip", exact, address)],
        [("ip", default, None)],
        [("ip", any_, None)],
        [("ip", any_, None), ("user", any_, None)],
        [("user", exact, f"{user}-absent")],
        [("user", any_, None), ("user", any_, None)],
        [("group", any_, None)],
        [("", any_, None)],
        [("user", exact, None)],
        [("user", default, "x")],
        [("user", any_, "x")],
        [("user", 3, None)],
        [("user", -1, None)],
    ):
        for strict in (False, True):
            await script.ask(describe_quotas(*components, strict=strict))
    for entity in (
        {"user": user},
        {"client-id": client},
        {"client-id": client, "user": None},
        {"user": user, "client-id": None},
        {"ip": address},
        {"ip": None},
        {"user": None},
        {"client-id": None},
    ):
        names = ("request_percentage", "consumer_byte_rate", rate, "controller_mutation_rate")
        gone = ("connection_creation_rate",) if "ip" in entity else names
        await script.ask(alter_quotas((entity, dict.fromkeys(gone))), 1)
    await script.ask(describe_quotas())


async def credentials(script: Script) -> None:
    """SCRAM credentials created, described, deleted, and refused."""
    one, two = f"{script.name}-one", f"{script.name}-two"
    sha256, sha512 = 1, 2
    await script.ask(describe_scram(one))
    for request in (
        alter_scram((one, sha256, 4096)),
        alter_scram((one, sha512, 8192), (two, sha256, 16384)),
        alter_scram((one, sha256, 5000), deletions=((two, sha256),)),
        alter_scram((one, sha256, 5000), deletions=((one, sha512),)),
        alter_scram((one, sha256, 4095)),
        alter_scram((one, sha256, 16385)),
        alter_scram((one, sha256, 4096, b"", b"x")),
        alter_scram((one, sha256, 4096, b"x", b"")),
        alter_scram((one, 0, 4096)),
        alter_scram((one, 3, 4096)),
        alter_scram(("", sha256, 4096)),
        alter_scram((one, sha256, 4096), (one, sha256, 4096)),
        alter_scram((one, sha256, 4096), (one, sha512, 1)),
        alter_scram((one, sha256, 4096), (two, sha512, 1)),
        alter_scram(deletions=((one, sha256), (one, sha256))),
        alter_scram((one, sha256, 4096), deletions=((one, sha256),)),
        alter_scram(deletions=((one, 7),)),
        alter_scram(deletions=(("", sha256),)),
        alter_scram(deletions=((f"{one}-absent", sha256),)),
        alter_scram((two, sha512, 4096), deletions=((f"{one}-absent", sha256), (one, 0), (one, 0))),
        alter_scram(),
    ):
        await script.ask(request)
        await script.ask(describe_scram(one, two))
    await script.ask(describe_scram())
    await script.ask(describe_scram(None))
    await script.ask(describe_scram(one, one, two))
    await script.ask(describe_scram(one, f"{one}-absent", ""))
    await script.ask(alter_scram(deletions=((one, sha256), (one, sha512), (two, sha512))))
    await script.ask(alter_scram(deletions=((one, sha256),)))
    await script.ask(alter_scram(deletions=((one, sha512),)))
    await script.ask(alter_scram(deletions=((two, sha512),)))
    await script.ask(describe_scram(one, two))
    await script.ask(describe_scram())


async def features(script: Script) -> None:
    """Feature levels that a client tries to change."""
    up, down, unsafe = 1, 2, 3
    removal = update_features(("no.such.feature", 0))
    removal.feature_updates[0].allow_downgrade = True
    await script.ask(removal, 0)
    for updates in (
        [],
        [("no.such.feature", 1)],
        [("no.such.feature", 0, down)],
        [("no.such.feature", 0, up)],
        [("no.such.feature", -1, down)],
        [("no.such.feature", 1, 0)],
        [("no.such.feature", 1, 4)],
        [("no.such.feature", 1, unsafe)],
        [("", 1)],
        [("no.such.feature", 1), ("no.such.feature", 1)],
        [("no.such.feature", 1), ("no.such.other", 1)],
        [("metadata.version", 15)],
        [("metadata.version", 0, down)],
        [("kraft.version", 1)],
    ):
        if all(len(each) == 2 for each in updates):
            await script.ask(update_features(*updates), 0, 1)
        else:
            await script.ask(update_features(*updates), 1)
        await script.ask(update_features(*updates, validate_only=True), 1)


SCRIPTS: tuple[Play, ...] = (without_security, quotas, credentials, features)


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
