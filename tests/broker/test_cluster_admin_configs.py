"""Configurations that change while the broker runs: how a change reaches the brokers, and which parts apply it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config.changes import EXPIRE_AFTER_MS, ConfigChanges, change_config
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import Registry, ensure_path
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode
from odradek.storage.disk import OsDisk
from tests.broker.admin_requests import BROKER, DELETE, SET, TOPIC, describe, replace_configs, set_config
from tests.broker.wire import Client, batch, running_broker
from tests.support.eventually import eventually_async

DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG = 2, 3


async def config_of(client: Client, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """Value and source."""
    (result,) = (await client.ask(describe(kind, name, key), 4)).results
    (entry,) = result.configs
    return entry.value, entry.config_source


# ---- parts that apply changes


async def test_a_topic_applies_its_new_configuration(client: Client) -> None:
    await client.create_topic("t")
    large = batch(bytes(2000))
    assert (await client.produce("t", large)).error_code == ErrorCode.NONE
    await set_config(client, TOPIC, "t", ("max.message.bytes", SET, "1000"))
    await eventually_async(
        lambda: client.produce("t", large), lambda answer: answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    )
    await set_config(client, TOPIC, "t", ("max.message.bytes", DELETE, None))
    await eventually_async(lambda: client.produce("t", large), lambda answer: answer.error_code == ErrorCode.NONE)


@pytest.mark.parametrize(
    ("name", "source"), [("0", DYNAMIC_BROKER_CONFIG), ("", DYNAMIC_DEFAULT_BROKER_CONFIG)], ids=["own", "of all"]
)
async def test_topics_apply_the_defaults_of_the_broker(client: Client, name: str, source: int) -> None:
    await client.create_topic("plain")
    await client.create_topic("own", configs={"max.message.bytes": "5000"})
    large = batch(bytes(2000))
    await set_config(client, BROKER, name, ("message.max.bytes", SET, "1000"))
    await eventually_async(
        lambda: client.produce("plain", large), lambda answer: answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    )
    assert (await client.produce("own", large)).error_code == ErrorCode.NONE
    assert await config_of(client, BROKER, "0", "message.max.bytes") == ("1000", source)
    assert await config_of(client, TOPIC, "plain", "max.message.bytes") == ("1000", source)
    await set_config(client, BROKER, name, ("message.max.bytes", DELETE, None))
    await eventually_async(lambda: client.produce("plain", large), lambda answer: answer.error_code == ErrorCode.NONE)


async def test_the_nearest_layer_wins_and_all_layers_survive_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t")
        await set_config(client, BROKER, "", ("message.max.bytes", SET, "1000"), ("log.retention.ms", SET, "7000"))
        await set_config(client, BROKER, "0", ("message.max.bytes", SET, "3000"))
        await set_config(client, TOPIC, "t", ("retention.ms", SET, "9000"))
        client.close()
    async with running_broker(tmp_path / "data") as broker:
        client = await Client.connect(broker.port)
        assert (await client.produce("t", batch(bytes(2000)))).error_code == ErrorCode.NONE
        assert (await client.produce("t", batch(bytes(4000)))).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert await config_of(client, BROKER, "0", "message.max.bytes") == ("3000", DYNAMIC_BROKER_CONFIG)
        assert await config_of(client, BROKER, "0", "log.retention.ms") == ("7000", DYNAMIC_DEFAULT_BROKER_CONFIG)
        assert (await config_of(client, TOPIC, "t", "retention.ms"))[0] == "9000"
        client.close()


async def test_a_recreated_topic_has_no_configuration_of_the_old_one(client: Client) -> None:
    await client.create_topic("t")
    await set_config(client, TOPIC, "t", ("max.message.bytes", SET, "1000"))
    large = batch(bytes(2000))
    await eventually_async(
        lambda: client.produce("t", large), lambda answer: answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    )
    answer = await client.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
    assert answer.responses[0].error_code == ErrorCode.NONE
    await client.create_topic("t")
    assert (await client.produce("t", large)).error_code == ErrorCode.NONE
    assert (await config_of(client, TOPIC, "t", "max.message.bytes"))[0] != "1000"


async def test_secrets_are_not_stored(client: Client) -> None:
    for name, value in (
        ("listener.name.plaintext.ssl.keystore.password", "hunter2"),
        ("ssl.keystore.password", "hunter2"),
        ("sasl.jaas.config", "hunter2"),
    ):
        (result,) = (await client.ask(replace_configs((BROKER, "0", [(name, value)])), 2)).responses
        assert result.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
        assert name in result.error_message
        assert value not in result.error_message


# ---- how a change reaches the brokers


class Notified:
    """Records the changes that handlers are notified of."""

    def __init__(self) -> None:
        self.topics: list[tuple[str, dict[str, str]]] = []
        self.brokers: list[tuple[dict[str, str], dict[str, str]]] = []

    def topic(self, name: str, properties: Mapping[str, str]) -> None:
        self.topics.append((name, dict(properties)))

    def broker(self, cluster_default: Mapping[str, str], own: Mapping[str, str]) -> None:
        self.brokers.append((dict(cluster_default), dict(own)))


class Clock:
    """The registry's and the broker's clock."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def monotonic_ns(self) -> int:
        return self.time_ms * 1_000_000


class Harness:
    """A registry, a session that changes configurations in it, and the watch on them."""

    def __init__(self, ensemble: EmbeddedEnsemble, admin: Registry, clock: Clock) -> None:
        self.ensemble, self.admin, self.clock = ensemble, admin, clock
        self.notified = Notified()
        self.request_tasks = RequestTasks()
        self.changes = ConfigChanges(1, self.notified, self.request_tasks, clock)

    async def change(self, entity: str, **properties: str) -> None:
        await change_config(self.admin, entity, lambda known: {**known, **properties})

    async def notifications(self) -> list[str]:
        return (await self.admin.children(znodes.CONFIG_CHANGES))[0]


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    clock = Clock()
    ensemble = EmbeddedEnsemble(OsDisk(), str(tmp_path / "registry"), now_ms=clock.now_ms)
    admin = await ensemble.connect()
    for path in (znodes.CONFIG_CHANGES, znodes.config_path("topics"), znodes.config_path("brokers")):
        await ensure_path(admin, path)
    made = Harness(ensemble, admin, clock)
    yield made
    await made.request_tasks.close()
    await admin.close()
    await ensemble.close()


async def test_changes_are_delivered_in_order_each_with_all_overrides(harness: Harness) -> None:
    await harness.change("topics/before", a="1")
    await harness.changes.listener.session_begun(await harness.ensemble.connect())
    assert harness.notified.topics == [("before", {"a": "1"})]
    await harness.change("topics/t", a="1")
    await eventually_async(lambda: len(harness.notified.topics) == 2)
    for number in range(20):
        await harness.change("topics/t", **{f"b{number}": "2"})
    await eventually_async(lambda: len(harness.notified.topics) >= 3 and "b19" in harness.notified.topics[-1][1])
    assert harness.notified.topics[-1] == ("t", {"a": "1", **{f"b{number}": "2" for number in range(20)}})
    sizes = [len(properties) for name, properties in harness.notified.topics if name == "t"]
    assert sizes == sorted(sizes)


async def test_a_broker_receives_its_own_and_default_changes_but_not_those_of_others(harness: Harness) -> None:
    await harness.change("brokers/<default>", a="1")
    await harness.changes.listener.session_begun(await harness.ensemble.connect())
    assert harness.notified.brokers[0] == ({"a": "1"}, {})
    received = len(harness.notified.brokers)
    await harness.change("brokers/2", b="2")
    await harness.change("users/u", c="3")
    await harness.change("brokers/1", d="4")
    await eventually_async(lambda: len(harness.notified.brokers) > received)
    assert harness.notified.brokers[received:] == [({"a": "1"}, {"d": "4"})]
    assert not harness.notified.topics


async def test_notifications_of_kafka_are_read_and_invalid_ones_are_skipped(harness: Harness) -> None:
    await harness.changes.listener.session_begun(await harness.ensemble.connect())
    await harness.admin.create(znodes.config_path("topics/t"), b'{"version":1,"config":{"retention.ms":"5"}}')
    for data in (b"", None, b"{", b"[]", b'{"version":2}', b'{"version":3,"entity_path":7}', b"\xff"):
        await harness.admin.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
    await harness.admin.create(f"{znodes.CONFIG_CHANGES}/something-else", b"")
    old = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    await harness.admin.create(znodes.CONFIG_CHANGE_PREFIX, old, sequential=True)
    await harness.admin.create(
        znodes.CONFIG_CHANGE_PREFIX, b'{"version":2,"entity_path":"topics/gone"}', sequential=True
    )
    await eventually_async(lambda: len(harness.notified.topics) == 2)
    assert harness.notified.topics == [("t", {"retention.ms": "5"}), ("gone", {})]


async def test_old_notifications_are_deleted(harness: Harness) -> None:
    await harness.change("topics/old", a="1")
    harness.clock.time_ms += EXPIRE_AFTER_MS
    await harness.change("topics/young", a="1")
    await harness.changes.listener.session_begun(await harness.ensemble.connect())
    assert len(await harness.notifications()) == 2
    harness.clock.time_ms += 1
    await harness.change("topics/younger", a="1")
    await eventually_async(lambda: len(harness.notified.topics) == 3)
    assert [name for name, _ in harness.notified.topics] == ["old", "young", "younger"]
    await eventually_async(harness.notifications, lambda names: len(names) == 2)


class CountingReads:
    """A session with the registry that counts how often each node is read."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    async def get(self, path: str, *watcher: Any) -> Any:
        self.reads[path] += 1
        return await self._registry.get(path, *watcher)


async def test_each_notification_is_read_once(harness: Harness) -> None:
    session = CountingReads(await harness.ensemble.connect())
    await harness.changes.listener.session_begun(session)
    for number in range(20):
        await harness.change("topics/t", **{f"b{number}": "2"})
        await harness.changes.listener.catch_up()
    assert len(harness.notified.topics) == 20
    read = {path: count for path, count in session.reads.items() if path.startswith(znodes.CONFIG_CHANGE_PREFIX)}
    assert len(read) == len(await harness.notifications()) == 20
    assert set(read.values()) == {1}


async def test_a_change_of_this_broker_is_applied_without_reading_it(harness: Harness) -> None:
    session = CountingReads(await harness.ensemble.connect())
    await harness.changes.listener.session_begun(session)
    await harness.change("topics/t", a="1")
    await eventually_async(lambda: len(harness.notified.topics) == 1)
    session.reads.clear()
    harness.changes.listener.session_lost()  # the watch reads nothing any more
    for number in range(2, 5):
        written = await change_config(harness.admin, "topics/t", lambda known, number=number: {"a": str(number)})
        await harness.changes.written(written)
        assert harness.notified.topics[-1] == ("t", {"a": str(number)})
    assert not session.reads
    await harness.changes.listener.session_begun(session)
    assert not [path for path in session.reads if path.startswith(znodes.CONFIG_CHANGE_PREFIX)]


async def test_changes_before_that_of_this_broker_are_applied_first(harness: Harness) -> None:
    await harness.changes.listener.session_begun(await harness.ensemble.connect())
    harness.changes.listener.session_lost()  # the broker misses the notifications of others
    await harness.change("topics/other", a="1")
    written = await change_config(harness.admin, "topics/t", lambda known: {"b": "2"})
    await harness.changes.written(written)
    assert harness.notified.topics == []
    await harness.changes.listener.session_begun(await harness.ensemble.connect())
    assert ("t", {"b": "2"}) in harness.notified.topics
    assert ("other", {"a": "1"}) in harness.notified.topics


async def test_changes_between_two_sessions_are_read_again(harness: Harness) -> None:
    first = await harness.ensemble.connect()
    await harness.changes.listener.session_begun(first)
    harness.changes.listener.session_lost()
    await first.close()
    await harness.change("topics/t", a="1")
    await harness.change("brokers/1", b="2")
    for name in await harness.notifications():  # all notifications are gone before the broker is back
        await harness.admin.delete(f"{znodes.CONFIG_CHANGES}/{name}")
    await harness.changes.listener.session_begun(await harness.ensemble.connect())
    assert harness.notified.topics == [("t", {"a": "1"})]
    assert harness.notified.brokers[-1] == ({}, {"b": "2"})
    await harness.change("topics/t", a="3")
    await eventually_async(lambda: harness.notified.topics[-1] == ("t", {"a": "3"}))


async def test_two_concurrent_changes_of_one_topic_lose_nothing(harness: Harness) -> None:
    other = await harness.ensemble.connect()
    await asyncio.gather(
        *(
            change_config(registry, "topics/t", lambda known, key=key: {**known, key: "1"})
            for key in map(str, range(10))
            for registry in (harness.admin, other)
        )
    )
    data, _ = await harness.admin.get(znodes.config_path("topics/t"))
    assert znodes.decode_config(data) == {str(key): "1" for key in range(10)}
    assert len(await harness.notifications()) == 20
