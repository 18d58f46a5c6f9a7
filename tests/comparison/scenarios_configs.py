"""Scenarios of the properties of topics, brokers and clients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tests.comparison.scenarios_logs import make
from tests.comparison.side import Side

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def described(kind: int, name: str, *keys: str, every: bool = False) -> list[dict[str, Any]]:
    """The resources of a DescribeConfigs; `every` requests all properties."""
    return [{"resource_type": kind, "resource_name": name, "configuration_keys": None if every else list(keys)}]


def changed(kind: int, name: str, changes: Iterable[tuple[str, int, str | None]]) -> dict[str, Any]:
    """A resource of an IncrementalAlterConfigs."""
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


def replaced(kind: int, name: str, configs: Iterable[tuple[str, str | None]]) -> dict[str, Any]:
    """A resource of an AlterConfigs."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key, "value": value} for key, value in configs],
    }


async def descriptions(s: Side) -> None:
    """DescribeConfigs."""
    await make(s, "properties", 1, retention_ms="1000", cleanup_policy="compact,delete")
    some = ("retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas", "compression.type")
    await s.ask("DescribeConfigs", resources=described(TOPIC, "properties", every=True))
    await s.ask("DescribeConfigs", "1+", resources=described(TOPIC, "properties", every=True), include_synonyms=True)
    await s.ask("DescribeConfigs", resources=described(TOPIC, "properties", *some))
    await s.ask("DescribeConfigs", resources=described(TOPIC, "properties", "no.such", "retention.ms"))
    await s.ask("DescribeConfigs", resources=described(TOPIC, "properties"))
    static = ("broker.id", "num.partitions", "log.retention.ms", "min.insync.replicas", "num.io.threads")
    for name in ("0", ""):
        for synonyms in (False, True):
            resources = described(BROKER, name, *static, "no.such")
            await s.ask("DescribeConfigs", "1+", resources=resources, include_synonyms=synonyms)
    await s.ask("DescribeConfigs", 0, resources=described(BROKER, "0", "num.partitions", "log.retention.ms"))
    for kind, name in (
        (TOPIC, "absent"),
        (TOPIC, ""),
        (TOPIC, "a b"),
        (BROKER, "1"),
        (BROKER, "zero"),
        (LOGGER, "0"),
        (LOGGER, "1"),
        (LOGGER, ""),
        (CLIENT_METRICS, "metrics"),
        (CLIENT_METRICS, ""),
        (GROUP, "group"),
        (0, "x"),
        (1, "x"),
        (3, "x"),
        (64, "x"),
        (-1, "x"),
    ):
        await s.ask("DescribeConfigs", resources=described(kind, name, "retention.ms"))
    both = described(TOPIC, "properties", "retention.ms") + described(TOPIC, "absent", "retention.ms")
    await s.ask("DescribeConfigs", resources=both)
    await s.ask("DescribeConfigs", resources=both[:1] * 2)
    await s.ask("DescribeConfigs", resources=[])
    documented: dict[str, Any] = {"include_synonyms": True, "include_documentation": False}
    await s.ask("DescribeConfigs", "3+", resources=described(TOPIC, "properties", *some), **documented)


async def topic_changes(s: Side) -> None:
    """AlterConfigs and IncrementalAlterConfigs of topics."""
    await make(s, "changing")
    watched = ("retention.ms", "cleanup.policy", "max.message.bytes", "leader.replication.throttled.replicas")
    for changes in (
        [],
        [("retention.ms", SET, "5000")],
        [("retention.ms", SET, "soon")],
        [("retention.ms", SET, "-2")],
        [("retention.ms", SET, None)],
        [("retention.ms", APPEND, None), ("segment.ms", SET, None)],
        [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
        [("retention.ms", SUBTRACT, "1")],
        [("retention.ms", DELETE, None)],
        [("retention.ms", DELETE, "5")],
        [("retention.ms", APPEND, "1")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "absent")],
        [("cleanup.policy", SUBTRACT, "compact")],
        [("cleanup.policy", APPEND, "nothing")],
        [("cleanup.policy", SUBTRACT, "delete,compact")],
        [("cleanup.policy", SET, "")],
        [("cleanup.policy", DELETE, "")],
        [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
        [("no.such", SET, "1")],
        [("no.such", DELETE, None)],
        [("", SET, "1")],
        [("max.message.bytes", SET, "1000"), ("retention.ms", SET, "7")],
        [("max.message.bytes", SET, "1000"), ("max.message.bytes", SET, "7")],
        [("max.message.bytes", SET, "-1"), ("retention.ms", SET, "8")],
        [("retention.ms", 4, "8")],
        [("retention.ms", -1, "8")],
        [("leader.replication.throttled.replicas", SET, "*")],
        [("leader.replication.throttled.replicas", APPEND, "0:1")],
        [("leader.replication.throttled.replicas", SET, "0:0,1:0")],
        [("leader.replication.throttled.replicas", APPEND, "2:0")],
        [("leader.replication.throttled.replicas", SET, "here")],
        [("leader.replication.throttled.replicas", DELETE, None)],
    ):
        for validate in (True, False):
            resources = [changed(TOPIC, "changing", changes)]
            await s.ask("IncrementalAlterConfigs", resources=resources, validate_only=validate)
        await s.ask("DescribeConfigs", 4, resources=described(TOPIC, "changing", *watched))
    one = changed(TOPIC, "changing", [("retention.ms", SET, "9")])
    for resources in (
        [],
        [changed(TOPIC, "absent", [("retention.ms", SET, "9")])],
        [changed(TOPIC, "", [("retention.ms", SET, "9")])],
        [changed(TOPIC, "absent", []), changed(TOPIC, "a b", [])],
        [changed(TOPIC, "__consumer_offsets", [("retention.ms", SET, "9")])],
        [one, one],
        [one, changed(TOPIC, "changing", [])],
        [one, changed(TOPIC, "absent", [])],
        [one, changed(3, "x", []), changed(64, "x", []), changed(0, "", [])],
        [changed(BROKER, "x", [])],
        [changed(LOGGER, "x", [])],
        [changed(LOGGER, "", [])],
        [changed(0, "x", [])],
        [changed(1, "x", [])],
        [changed(77, "x", [])],
        [changed(GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")])],
        [changed(CLIENT_METRICS, "m", [("interval.ms", SET, "1000")])],
        [changed(LOGGER, "0", [("kafka.server.KafkaApis", SET, "SHOUT")])],
        [changed(LOGGER, "0", [("no.such.Logger", SET, "INFO")])],
        [changed(LOGGER, "1", [("kafka", SET, "INFO")])],
    ):
        for validate in (True, False):
            await s.ask("IncrementalAlterConfigs", resources=resources, validate_only=validate)
    for configs in (
        [("retention.ms", "1"), ("segment.bytes", "2000")],
        [("retention.ms", "soon")],
        [("retention.ms", None)],
        [("no.such", "1")],
        [("retention.ms", "1"), ("retention.ms", "2")],
        [("cleanup.policy", "compact")],
        [("cleanup.policy", "nothing")],
        [("cleanup.policy", None)],
        [],
    ):
        for validate in (True, False):
            resources = [replaced(TOPIC, "changing", configs)]
            await s.ask("AlterConfigs", resources=resources, validate_only=validate)
        await s.ask("DescribeConfigs", 4, resources=described(TOPIC, "changing", *watched, "segment.bytes"))
    for resources in (
        [],
        [replaced(TOPIC, "absent", [])],
        [replaced(LOGGER, "0", [])],
        [replaced(BROKER, "1", [])],
        [replaced(3, "x", [])],
        [replaced(GROUP, "g", [])],
        [replaced(0, "x", [])],
    ):
        await s.ask("AlterConfigs", resources=resources)
    await s.hanging("AlterConfigs", 2, resources=[replaced(TOPIC, "changing", [])] * 2)


async def broker_changes(s: Side) -> None:
    """Properties of brokers at run time."""
    for name in ("0", ""):
        for changes in (
            [("log.retention.ms", SET, "-1")],
            [("log.retention.ms", SET, "soon")],
            [("num.io.threads", SET, "9")],
            [("num.io.threads", SET, "1000")],
            [("background.threads", SET, "0")],
            [("broker.id", SET, "5")],
            [("listeners", SET, "PLAINTEXT://:1")],
            [("no.such", SET, "1")],
            [("log.cleaner.threads", SET, "2")],
            [("log.cleaner.threads", SET, "50")],
            [("metric.reporters", SET, "no.such.Class")],
            [("compression.type", SET, "gzip")],
            [("compression.type", DELETE, None)],
            # Only validated: the cleaners would compact the topics of other scenarios, each at its own time.
            [("log.cleanup.policy", APPEND, "compact")],
            [],
        ):
            resources = [changed(BROKER, name, changes)]
            await s.ask("IncrementalAlterConfigs", resources=resources, validate_only=True)
        for changes in (
            [("log.retention.ms", SET, "soon")],
            [("log.retention.ms", SET, "0")],
            [("log.retention.ms", APPEND, "1")],
            [("log.retention.ms", SET, "3600000000000")],
            [("log.retention.ms", DELETE, None)],
            [("log.retention.hours", SET, "1")],
            [("log.cleanup.policy", SUBTRACT, "compact")],
            [("log.cleanup.policy", DELETE, None)],
            [("broker.id", SET, "1")],
            [("zookeeper.connect", SET, "x")],
            [("no.such", SET, "1")],
            [("no.such", DELETE, None)],
            [("message.max.bytes", SET, None)],
            [("message.max.bytes", SET, "1"), ("message.max.bytes", SET, "2")],
            [("leader.replication.throttled.rate", SET, "1000")],
            [("leader.replication.throttled.rate", SET, "-1")],
            [("leader.replication.throttled.rate", DELETE, None)],
            [("follower.replication.throttled.rate", SET, "many")],
            [("min.insync.replicas", SET, "0")],
            [("unclean.leader.election.enable", SET, "true")],
            [("unclean.leader.election.enable", DELETE, None)],
            [],
        ):
            for validate in (True, False):
                resources = [changed(BROKER, name, changes)]
                await s.ask("IncrementalAlterConfigs", resources=resources, validate_only=validate)
        for configs in ([("broker.id", "5")], [("log.retention.ms", "now")]):
            for validate in (True, False):
                await s.ask("AlterConfigs", resources=[replaced(BROKER, name, configs)], validate_only=validate)
    for name in ("1", "zero", "-1"):
        one = changed(BROKER, name, [("log.retention.ms", SET, "-1")])
        await s.ask("IncrementalAlterConfigs", resources=[one])
    kept = [replaced(BROKER, "0", [("log.retention.ms", "3600000000000")]), replaced(BROKER, "", [])]
    for resources in (kept, [replaced(BROKER, "0", []), replaced(BROKER, "", [])]):
        await s.ask("AlterConfigs", resources=resources)
    for name, change, found in (
        ("", (SET, "9"), [(3, "9")]),
        ("", (DELETE, ""), []),
        ("0", (SET, "9"), [(2, "9")]),
        ("0", (DELETE, ""), [(5, "10")]),
    ):
        resources = [changed(BROKER, name, [("background.threads", *change)])]
        await s.ask("IncrementalAlterConfigs", 1, resources=resources)
        # Kafka applies a change after ZooKeeper's notification, some time after its response. In between it can return
        # the new source with the old value: it reads them one after the other.
        await s.until(
            lambda answer, found=found: (
                [(each.config_source, each.value) for each in answer.results[0].configs] == found
            ),
            "DescribeConfigs",
            4,
            resources=described(BROKER, name, "background.threads"),
            include_synonyms=True,
        )


async def quotas(s: Side) -> None:
    """DescribeClientQuotas and AlterClientQuotas."""

    def entry(entity: dict[str, str | None], *ops: tuple[str, float, bool]) -> dict[str, Any]:
        return {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value, "remove": remove} for key, value, remove in ops],
        }

    rate = ("producer_byte_rate", 1e12, False)
    for entries in (
        [],
        [entry({"user": "u"}, rate)],
        [entry({"user": None}, rate)],
        [entry({"client-id": "c"}, rate)],
        [entry({"client-id": None}, ("request_percentage", 1e6, False))],
        [entry({"user": "u", "client-id": "c"}, rate)],
        [entry({"user": "u", "client-id": None}, ("consumer_byte_rate", 1e12, False))],
        [entry({"ip": "127.0.0.9"}, ("connection_creation_rate", 1e9, False))],
        [entry({"ip": None}, ("connection_creation_rate", 1e9, False))],
        [entry({"ip": "not an address"}, ("connection_creation_rate", 1e9, False))],
        [entry({"ip": "127.0.0.9"}, rate)],
        [entry({"user": "u", "ip": "127.0.0.9"}, rate)],
        [entry({"user": "u"}, ("no.such", 1.0, False))],
        [entry({"user": "u"}, ("producer_byte_rate", 1e12 + 0.5, False))],
        [entry({"user": "u"}, ("producer_byte_rate", -1.0, False))],
        [entry({"user": "u"}, ("producer_byte_rate", 0.0, False))],
        [entry({"user": "u"}, ("connection_creation_rate", 1e9, False))],
        [entry({"user": "u"}, rate, rate)],
        [entry({"user": "u"}, rate), entry({"user": "u"}, rate)],
        [entry({}, rate)],
        [entry({"nonsense": "u"}, rate)],
        [entry({"user": ""}, rate)],
        [entry({"user": "ü %"}, rate)],
        [entry({"user": "v"}, ("controller_mutation_rate", 1e9, False))],
        [entry({"user": "w"}, ("producer_byte_rate", 0.0, True))],
        [entry({"user": "u"}, ("no.such", 0.0, True))],
        [entry({"user": "u"}, ("producer_byte_rate", 0.5, False))],
        [entry({"user": "u"}, ("producer_byte_rate", math.nan, False))],
        [entry({"user": "u"}, ("producer_byte_rate", math.inf, False))],
        [entry({"user": "u"}, ("request_percentage", -2.5, False))],
        [entry({"user": "x"}, ("request_percentage", 1e-3, False), ("controller_mutation_rate", 12345678.9, False))],
        [entry({"client-id": "d", "user": "x"}, ("controller_mutation_rate", 0.25, False))],
        [entry({"client-id": "d", "user": None}, ("producer_byte_rate", 5.0, False))],
        [entry({"ip": "127.0.0.9"}, ("connection_creation_rate", 1.5, False))],
        [entry({"user": "x", "client-id": "d"}, ("controller_mutation_rate", 0.0, True), ("no.such", 0.0, True))],
        [entry({"client-id": "absent"}, ("producer_byte_rate", 0.0, True))],
        [entry({"user": "u"})],
    ):
        for validate in (True, False):
            await s.ask("AlterClientQuotas", entries=entries, validate_only=validate)
    for components in (
        [],
        [{"entity_type": "user", "match_type": 0, "match": "u"}],
        [{"entity_type": "user", "match_type": 1, "match": None}],
        [{"entity_type": "user", "match_type": 2, "match": None}],
        [{"entity_type": "client-id", "match_type": 2, "match": None}],
        [{"entity_type": "ip", "match_type": 2, "match": None}],
        [{"entity_type": "ip", "match_type": 0, "match": "127.0.0.9"}],
        [{"entity_type": kind, "match_type": 2, "match": None} for kind in ("user", "client-id")],
        [{"entity_type": kind, "match_type": 2, "match": None} for kind in ("user", "ip")],
        [{"entity_type": "user", "match_type": 0, "match": None}],
        [{"entity_type": "user", "match_type": 1, "match": "u"}],
        [{"entity_type": "user", "match_type": 3, "match": None}],
        [{"entity_type": "user", "match_type": -1, "match": None}],
        [{"entity_type": "user", "match_type": 2, "match": "x"}],
        [{"entity_type": "client-id", "match_type": 0, "match": "c"}],
        [{"entity_type": "ip", "match_type": 1, "match": None}],
        [
            {"entity_type": "user", "match_type": 0, "match": "u"},
            {"entity_type": "client-id", "match_type": 0, "match": "c"},
        ],
        [
            {"entity_type": "user", "match_type": 0, "match": "u"},
            {"entity_type": "client-id", "match_type": 1, "match": None},
        ],
        [{"entity_type": "user", "match_type": 0, "match": "absent"}],
        [{"entity_type": "nonsense", "match_type": 2, "match": None}],
        [{"entity_type": "user", "match_type": 2, "match": None}] * 2,
        [{"entity_type": "", "match_type": 2, "match": None}],
    ):
        for strict in (False, True):
            await s.ask("DescribeClientQuotas", components=components, strict=strict)
    entities: tuple[dict[str, str | None], ...] = (
        {"user": "u"},
        {"client-id": "c"},
        {"user": None},
        {"client-id": None},
        {"user": "u", "client-id": "c"},
    )
    for entity in entities:
        await s.ask("AlterClientQuotas", 1, entries=[entry(entity, ("producer_byte_rate", 0.0, True))])
    await s.ask("AlterClientQuotas", 1, entries=[entry({"client-id": None}, ("request_percentage", 0.0, True))])


async def credentials(s: Side) -> None:
    """DescribeUserScramCredentials and AlterUserScramCredentials."""

    def upsert(name: str, mechanism: int = 1, iterations: int = 4096, **fields: Any) -> dict[str, Any]:
        return {
            "name": name,
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": b"salt",
            "salted_password": b"p" * (32 if mechanism == 1 else 64),
            **fields,
        }

    async def alter(deletions: list[dict[str, Any]], upsertions: list[dict[str, Any]]) -> None:
        await s.ask("AlterUserScramCredentials", deletions=deletions, upsertions=upsertions)

    await s.ask("DescribeUserScramCredentials", users=None)
    await alter([], [])
    for entry in (
        upsert("anna"),
        upsert("anna", 2),
        upsert("berta", 1, 5000),
        upsert("", 1),
        upsert("carl", 0),
        upsert("carl", 3),
        upsert("carl", -1),
        upsert("carl", 1, 4095),
        upsert("carl", 2, 16385),
        upsert("carl", 1, 16384),
        upsert("ü %"),
    ):
        await alter([], [entry])
    await alter([], [upsert("dora"), upsert("dora")])
    await alter([], [upsert("dora"), upsert("dora", 2)])
    await alter([{"name": "dora", "mechanism": 1}], [upsert("dora")])
    await alter([{"name": "dora", "mechanism": 1}], [upsert("emil")])
    await alter([{"name": "dora", "mechanism": 2}], [upsert("dora", 1, 5000)])
    await alter([], [upsert("dora"), upsert("dora", 2, 1)])
    await alter([], [upsert("dora"), upsert("emil", 2, 1)])
    await alter([], [upsert("emil", salt=b"")])
    await alter([], [upsert("emil", salted_password=b"")])
    await alter([{"name": "emil", "mechanism": 1}] * 2, [])
    unknown = [{"name": "absent", "mechanism": 1}, {"name": "emil", "mechanism": 0}, {"name": "emil", "mechanism": 0}]
    await alter(unknown, [upsert("dora", 2)])
    for users in (
        None,
        [],
        [{"name": "anna"}],
        [{"name": "absent"}],
        [{"name": ""}],
        [{"name": "anna"}, {"name": "anna"}],
        [{"name": "anna"}, {"name": "absent"}, {"name": "berta"}],
    ):
        await s.ask("DescribeUserScramCredentials", users=users)
    for name, mechanism in (("anna", 1), ("anna", 1), ("absent", 1), ("", 1), ("anna", 0), ("anna", 9)):
        await alter([{"name": name, "mechanism": mechanism}], [])
    for name in ("anna", "berta", "carl", "ü %", "dora", "emil"):
        for mechanism in (1, 2):
            await alter([{"name": name, "mechanism": mechanism}], [])
    await s.ask("DescribeUserScramCredentials", users=None)


CONFIGS = (descriptions, topic_changes, broker_changes, quotas, credentials)
