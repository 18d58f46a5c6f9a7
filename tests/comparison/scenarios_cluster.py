"""Scenarios of all other APIs: versions, features, missing security, and requests between brokers."""

from __future__ import annotations

from typing import Any

from tests.comparison.scenarios_logs import make
from tests.comparison.side import Side


async def greetings(s: Side) -> None:
    """ApiVersions and UpdateFeatures."""
    await s.ask("ApiVersions", "0-2")
    for name, version in (
        ("client", "1.0"),
        ("", ""),
        ("client", ""),
        ("", "1.0"),
        ("a b", "1"),
        ("-client", "1"),
        ("client-", "1"),
        ("c.l-1", "v1.0-rc.1"),
        ("ü", "1"),
        ("x" * 300, "1"),
    ):
        await s.ask("ApiVersions", "3+", client_software_name=name, client_software_version=version)
    for updates in (
        [],
        [{"feature": "metadata.version", "max_version_level": 7}],
        [{"feature": "no.such", "max_version_level": 1}],
        [{"feature": "no.such", "max_version_level": 0}],
        [{"feature": "no.such", "max_version_level": -1}],
        [{"feature": "no.such", "max_version_level": 1}, {"feature": "no.such.other", "max_version_level": 1}],
        [{"feature": "metadata.version", "max_version_level": 15}],
        [{"feature": "metadata.version", "max_version_level": 0}],
        [{"feature": "kraft.version", "max_version_level": 1}],
        [{"feature": "", "max_version_level": 1}],
        [{"feature": "metadata.version", "max_version_level": -1}],
        [{"feature": "group.version", "max_version_level": 1}],
        [{"feature": "a", "max_version_level": 1}, {"feature": "a", "max_version_level": 1}],
    ):
        await s.ask("UpdateFeatures", timeout_ms=5000, feature_updates=updates)
        for kind in (0, 1, 2, 3, 4):
            typed = [{**update, "upgrade_type": kind} for update in updates]
            await s.ask("UpdateFeatures", "1+", timeout_ms=5000, feature_updates=typed, validate_only=True)
        down_converted = [{**update, "allow_downgrade": True} for update in updates]
        await s.ask("UpdateFeatures", 0, timeout_ms=5000, feature_updates=down_converted)


async def security(s: Side) -> None:
    """The responses of a broker without security to requests about it."""
    for mechanism in ("PLAIN", "", "NONSENSE"):
        await s.ask("SaslHandshake", mechanism=mechanism, at="sasl")
    await s.ask("SaslAuthenticate", auth_bytes=b"\0user\0secret", at="sasl")
    await s.ask("SaslAuthenticate", auth_bytes=b"", at="sasl")
    await s.ask("Metadata", 1, topics=[], at="sasl")
    about = {"resource_name_filter": "t", "principal_filter": "User:a", "host_filter": "*"}
    for kind, operation, permission in ((2, 3, 3), (1, 1, 1), (0, 0, 0), (99, 99, 99), (0, 3, 3), (2, 0, 3), (2, 3, 0)):
        filters: dict[str, Any] = {
            **about,
            "resource_type_filter": kind,
            "operation": operation,
            "permission_type": permission,
        }
        nothing: dict[str, Any] = dict.fromkeys(about)
        await s.ask("DescribeAcls", **filters)
        await s.ask("DescribeAcls", **{**filters, **nothing})
        await s.ask("DeleteAcls", filters=[filters])
        await s.ask("DeleteAcls", filters=[filters, {**filters, **nothing}])
        creation = {
            "resource_type": kind,
            "resource_name": "t",
            "principal": "User:a",
            "host": "*",
            "operation": operation,
            "permission_type": permission,
        }
        await s.ask("CreateAcls", creations=[creation])
        await s.ask("CreateAcls", creations=[creation, {**creation, "principal": "nobody", "resource_name": ""}])
        for pattern in (0, 1, 2, 3, 4, 9):
            await s.ask("DescribeAcls", "1+", **filters, pattern_type_filter=pattern)
            await s.ask("CreateAcls", "1+", creations=[{**creation, "resource_pattern_type": pattern}])
            await s.ask("DeleteAcls", "1+", filters=[{**filters, "pattern_type_filter": pattern}])
    await s.ask("CreateAcls", creations=[])
    await s.ask("DeleteAcls", filters=[])


async def tokens(s: Side) -> None:
    """Delegation tokens, which need a secret that this broker does not have."""
    for renewers in (
        [],
        [{"principal_type": "User", "principal_name": "a"}],
        [{"principal_type": "x", "principal_name": ""}],
    ):
        await s.ask("CreateDelegationToken", renewers=renewers, max_lifetime_ms=-1)
    owner = {"owner_principal_type": "User", "owner_principal_name": "a"}
    await s.ask("CreateDelegationToken", "3+", renewers=[], max_lifetime_ms=1000, **owner)
    for hmac in (b"", b"hmac"):
        await s.ask("RenewDelegationToken", hmac=hmac, renew_period_ms=-1)
        await s.ask("ExpireDelegationToken", hmac=hmac, expiry_time_period_ms=-1)
    for owners in (None, [], [{"principal_type": "User", "principal_name": "a"}]):
        await s.ask("DescribeDelegationToken", owners=owners)


async def brokers(s: Side) -> None:
    """Requests of brokers and controllers from a client that is neither: old epochs, unknown brokers."""
    await make(s, "ruled")
    past: dict[str, Any] = {"controller_id": 9, "controller_epoch": 0}
    await s.ask("LeaderAndIsr", **past)
    await s.ask("StopReplica", **past)
    await s.ask("UpdateMetadata", **past)
    await s.ask("LeaderAndIsr", "2+", **past, broker_epoch=5)
    await s.ask("StopReplica", "1+", **past, broker_epoch=5)
    await s.ask("UpdateMetadata", "5+", **past, broker_epoch=5)
    state = {
        "partition_index": 0,
        "controller_epoch": 0,
        "leader": 9,
        "leader_epoch": 0,
        "isr": [9],
        "replicas": [9, 0],
        "partition_epoch": 0,
    }
    old = [{"topic_name": "ruled", **state}]
    await s.ask("LeaderAndIsr", "0-1", **past, ungrouped_partition_states=old)
    await s.ask("LeaderAndIsr", "2+", **past, topic_states=[{"topic_name": "ruled", "partition_states": [state]}])
    await s.ask("StopReplica", 0, **past, ungrouped_partitions=[{"topic_name": "ruled", "partition_index": 0}])
    await s.ask("StopReplica", "1-2", **past, topics=[{"name": "ruled", "partition_indexes": [0]}])
    stopped = [{"topic_name": "ruled", "partition_states": [{"partition_index": 0, "leader_epoch": 0}]}]
    await s.ask("StopReplica", "3+", **past, topic_states=stopped)
    await s.ask("ControlledShutdown", broker_id=9)
    await s.ask("ControlledShutdown", "2+", broker_id=9, broker_epoch=5)
    await s.ask("ControlledShutdown", "2+", broker_id=0, broker_epoch=0)
    for broker, epoch in ((9, 5), (0, 0), (9, -1), (0, 1 << 60)):
        await s.ask("AlterPartition", broker_id=broker, broker_epoch=epoch)
        await s.ask("AllocateProducerIds", broker_id=broker, broker_epoch=epoch)
        changes = [{"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0}]
        await s.ask(
            "AlterPartition",
            "0-1",
            broker_id=broker,
            broker_epoch=epoch,
            topics=[{"topic_name": "ruled", "partitions": changes}],
        )
    for data in (b"", b"nonsense", bytes(20)):
        for principal in (None, b"", b"nobody"):
            for address in (b"", b"\x7f\0\0\1", b"x"):
                await s.ask(
                    "Envelope",
                    at="envelope",
                    request_data=data,
                    request_principal=principal,
                    client_host_address=address,
                )


CLUSTER = (greetings, security, tokens, brokers)
