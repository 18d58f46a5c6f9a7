"""Properties have their effects: on connections, between brokers, in the coordinator, and at once when they change."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.metadata.cache import BrokerMetadata, ListenerAddress, MetadataCache
from odradek.broker.network.controller_channel import ControllerChannel
from odradek.broker.network.inter_broker_client import InterBrokerClient
from odradek.broker.network.inter_broker_connection import Network, Peer, PeerLostError
from odradek.broker.runtime.scheduler import Periodic, ThreadWorker
from odradek.broker.runtime.timers import LoopTimers, SystemClock
from odradek.broker.server import Broker, Environment
from odradek.ports import free_port
from odradek.protocol import messages as m
from odradek.protocol.dial import Channel
from odradek.protocol.errors import ErrorCode
from odradek.protocol.listening import UNLIMITED, CreationRate, Listener
from tests.broker.admin_requests import BROKER, DELETE, LOGGER, SET, TOPIC, alter, describe, set_config
from tests.broker.pair import HERE, Mute, running_pair
from tests.broker.wire import DEADLINE_S, Client, batch, running_broker
from tests.support.eventually import eventually_async
from tests.support.installed import install

# ---- two brokers, and their outgoing connections


async def test_requests_of_and_to_the_controller_use_the_control_plane_listener(tmp_path: Path) -> None:
    listeners = {
        "listeners": f"PLAINTEXT://{HERE}:0,CONTROL://{HERE}:0",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
        "control_plane_listener_name": "control",
    }
    async with running_pair(tmp_path, **listeners) as pair:
        await pair.create("t", [1, 2])
        assert (await pair.clients[1].produce("t", batch(b"v"), acks=-1)).error_code == ErrorCode.NONE
        assert set(pair.dialing[1].ports) == {pair.port(2, "CONTROL")}, "the controller sends nothing else"
        assert set(pair.dialing[2].ports) == {pair.port(1)}, "a follower fetches where clients do"
        answer = await pair.clients[2].ask(m.InitProducerIdRequest(transactional_id=None), 4)
        assert answer.error_code == ErrorCode.NONE
        assert set(pair.dialing[2].ports) == {pair.port(1), pair.port(1, "CONTROL")}, "so do requests to the controller"


async def test_a_leader_is_followed_over_num_replica_fetchers_connections(tmp_path: Path) -> None:
    async with running_pair(tmp_path, num_replica_fetchers="2") as pair:
        await pair.create("t", *[[1, 2]] * 8)
        for partition in range(8):
            answer = await pair.clients[1].produce("t", batch(b"v"), partition=partition, acks=-1)
            assert answer.error_code == ErrorCode.NONE
        port = pair.port(1)
        before = pair.dialing[2].ports[port]
        assert before >= 2
        await set_config(pair.clients[2], BROKER, "2", ("num.replica.fetchers", SET, "4"))
        await eventually_async(lambda: pair.dialing[2].ports[port], lambda dialed: dialed >= before + 2)
        await set_config(pair.clients[2], BROKER, "2", ("num.replica.fetchers", DELETE, None))
        for partition in range(8):
            answer = await pair.clients[1].produce("t", batch(b"v"), partition=partition, acks=-1)
            assert answer.error_code == ErrorCode.NONE


async def test_a_follower_gives_up_a_leader_that_does_not_answer(tmp_path: Path) -> None:
    settings = {"replica_socket_timeout_ms": "60", "replica_fetch_wait_max_ms": "50", "replica_fetch_backoff_ms": "10"}
    async with running_pair(tmp_path, **settings) as pair:
        pair.dialing[2].is_mute = True
        await pair.create("t", [1, 2])
        await eventually_async(lambda: pair.dialing[2].ports[pair.port(1)], lambda dialed: dialed >= 3)
        pair.dialing[2].is_mute = False
        assert (await pair.clients[1].produce("t", batch(b"v"), acks=-1)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("acks", "code"), [("1", ErrorCode.NONE), ("-1", ErrorCode.REQUEST_TIMED_OUT)])
async def test_a_commit_waits_for_the_required_acknowledgements(tmp_path: Path, acks: str, code: ErrorCode) -> None:
    settings = {"offsets_commit_required_acks": acks, "offsets_commit_timeout_ms": "300"}
    async with running_pair(tmp_path, **settings) as pair:
        find = m.FindCoordinatorRequest(key="g")
        found = await eventually_async(
            lambda: pair.clients[1].ask(find, 2), lambda answer: answer.error_code == ErrorCode.NONE
        )
        await pair.create("t", [1, 2])
        leader, follower = found.node_id, 3 - found.node_id
        assert (await commit(pair.clients[leader], 1)) == ErrorCode.NONE
        pair.dialing[follower].silence()
        assert await commit(pair.clients[leader], 2) == code


async def commit(client: Client, offset: int) -> ErrorCode:
    """Commit an offset of a group without members."""
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await client.ask(m.OffsetCommitRequest(group_id="g", topics=[topic]), 7)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


# ---- connections to other brokers


class NoAnswer:
    """Never connects, or connects to a peer that does not answer."""

    def __init__(self, *, opens: bool) -> None:
        self._opens = opens

    async def __call__(self, host: str, port: int, **handlers: Any) -> Channel:
        if not self._opens:
            await asyncio.Event().wait()
        return Mute()


def network(opens: bool, **settings: int) -> Network:
    clock = SystemClock()
    return Network(NoAnswer(opens=opens), clock, LoopTimers(clock, asyncio.get_running_loop()), **settings)


async def lost(asker: Any, *more: Any) -> str:
    """The error of a request that got no response."""
    received: asyncio.Future[PeerLostError] = asyncio.get_running_loop().create_future()
    asker.send_request(m.AllocateProducerIdsRequest(), lambda answer: None, received.set_result, *more)
    async with asyncio.timeout(DEADLINE_S):
        return str(await received)


async def test_the_connection_setup_timeout_grows_with_each_attempt() -> None:
    peer = Peer(network(False, setup_timeout_ms=20, setup_timeout_max_ms=50), "broker 5", HERE, 1, "test")
    waited = [await lost(peer) for _ in range(3)]
    assert [text.partition("within ")[2] for text in waited] == ["20 ms", "40 ms", "50 ms"]
    peer.close()


async def test_the_controller_is_given_up_after_controller_socket_timeout_ms() -> None:
    metadata_cache = MetadataCache("cluster")
    metadata_cache.brokers = {5: BrokerMetadata(5, (ListenerAddress("PLAINTEXT", HERE, 1),), None)}
    metadata_cache.controller_id = 5
    client = InterBrokerClient.of_metadata(
        metadata_cache, "PLAINTEXT", 1, network(True), lambda *args: None, "to-controller"
    )
    channel = ControllerChannel(client, metadata_cache, 30)
    assert "did not answer within 30 ms" in await lost(channel)
    channel.close()


# ---- connections of clients


async def test_buffers_of_sockets_have_the_size_that_was_set(tmp_path: Path) -> None:
    made: list[Listener] = []

    def listen(*arguments: Any, **options: Any) -> Listener:
        made.append(Listener(*arguments, **options))
        return made[-1]

    properties = {
        "listeners": f"PLAINTEXT://{HERE}:0",
        "broker.id": "0",
        "log.dirs": str(tmp_path / "data"),
        "socket.send.buffer.bytes": "20000",
        "socket.receive.buffer.bytes": "30000",
    }
    broker = Broker(BrokerConfig(properties), Environment(listen=listen))
    await broker.start()
    try:
        client = await Client.connect(broker.port)
        await client.ask(m.ApiVersionsRequest(), 0)
        (connection,) = made[0].connections
        assert connection.socket is not None
        # Linux adds its own overhead.
        assert connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (20000, 40000)
        assert connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (30000, 60000)
        client.close()
    finally:
        await broker.stop()


def test_connections_over_the_rate_of_one_second_wait() -> None:
    rate = CreationRate()
    assert [come_in(rate, 100.0, 3) for _ in range(5)] == [True, True, True, False, False]
    assert [come_in(rate, 100.4, 3) for _ in range(2)] == [True, False]
    assert [come_in(rate, 200.0, 3) for _ in range(4)] == [True, True, True, False]
    assert all(come_in(rate, 200.0, UNLIMITED) for _ in range(10))


def come_in(rate: CreationRate, now_s: float, per_second: int) -> bool:
    if rate.too_soon(now_s, per_second):
        return False
    rate.came_in()
    return True


@pytest.mark.slow
async def test_limits_on_connections_change_at_once(client: Client, broker: Broker) -> None:
    async def another() -> Client:
        made = await Client.connect(broker.port)
        await made.ask(m.ApiVersionsRequest(), 0)
        return made

    async def is_turned_away() -> bool:
        try:
            (await another()).close()
        except (ConnectionError, asyncio.IncompleteReadError):
            return True
        return False

    await set_config(client, BROKER, "", ("max.connections.per.ip", SET, "1"))
    assert await is_turned_away()
    await set_config(client, BROKER, "0", ("max.connections.per.ip.overrides", SET, f"{HERE}:2"))
    await eventually_async(is_turned_away, lambda turned: not turned)
    await set_config(client, BROKER, "0", ("max.connections.per.ip.overrides", DELETE, None))
    await set_config(client, BROKER, "", ("max.connections.per.ip", DELETE, None))
    assert not await is_turned_away()
    await set_config(client, BROKER, "", ("max.connection.creation.rate", SET, "4"))
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for made in await asyncio.gather(*(another() for _ in range(8))):
        made.close()
    assert loop.time() - began_s > 0.7, "four come in at once, and four in the second after"


@asynccontextmanager
async def two_listeners(folder: Path, **properties: str) -> AsyncIterator[tuple[Client, int, int]]:
    """A client at a broker's own listener, INSIDE, and the ports of that and of OUTSIDE."""
    inside, outside = free_port(), free_port()
    static = {
        "listeners": f"INSIDE://{HERE}:{inside},OUTSIDE://{HERE}:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        **properties,
    }
    async with running_broker(folder, static):
        client = await Client.connect(inside)
        yield client, inside, outside
        client.close()


class Visitor:
    """A connection that sends a request; its response shows that the listener has accepted it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._answer = asyncio.create_task(client.receive())

    @classmethod
    async def enter(cls, port: int) -> Visitor:
        client = await Client.connect(port)
        await client.send(m.ApiVersionsRequest(), 0)
        return cls(client)

    async def is_let_in(self) -> None:
        """Await it."""
        await self._answer

    async def waits_beside(self, served: Client) -> bool:
        """Whether there is no response although another connection has completed many requests."""
        for _ in range(30):
            await served.ask(m.ApiVersionsRequest(), 0)
        return not self._answer.done()

    def leave(self) -> None:
        self._answer.cancel()
        self.client.close()


async def test_a_listener_has_its_own_limit_on_connections(tmp_path: Path) -> None:
    limit = "listener.name.outside.max.connections"
    async with two_listeners(tmp_path, **{limit: "1", limit.replace("outside", "OUTSIDE"): "0"}) as brokers:
        client, inside, outside = brokers
        first, second, third = [await Visitor.enter(outside) for _ in range(3)]
        await first.is_let_in()
        for _ in range(3):
            insider = await Visitor.enter(inside)
            await insider.is_let_in()
            insider.leave()
        assert await second.waits_beside(client)
        await set_config(client, BROKER, "", (limit, SET, "2"))
        await second.is_let_in()
        assert await third.waits_beside(client)
        await set_config(client, BROKER, "0", (limit, SET, "3"))
        await third.is_let_in()
        await set_config(client, BROKER, "0", (limit, DELETE, None))
        fourth = await Visitor.enter(outside)
        first.leave()
        assert await fourth.waits_beside(client), "two are open, the number set for all brokers"
        await set_config(client, BROKER, "", (limit, DELETE, None))
        second.leave()
        assert await fourth.waits_beside(client), "one is open, the number in the file"
        third.leave()
        await fourth.is_let_in()
        fourth.leave()


async def test_a_listener_without_its_own_limit_has_that_of_the_broker(tmp_path: Path) -> None:
    """Also the inter-broker listener, for which others make room: so Kafka reads its properties."""
    async with two_listeners(tmp_path, **{"listener.name.outside.max.connections": "9"}) as brokers:
        client, inside, outside = brokers
        idle = await Visitor.enter(outside)
        await idle.is_let_in()
        await set_config(client, BROKER, "0", ("max.connections", SET, "2"))
        second = await Visitor.enter(inside)
        await second.is_let_in()
        assert await idle.client.is_closed()
        third, outsider = await Visitor.enter(inside), await Visitor.enter(outside)
        assert await third.waits_beside(client)
        assert await outsider.waits_beside(client), "nine may be open there, but the broker has its two"
        await set_config(client, BROKER, "0", ("max.connections", DELETE, None))
        for each in (third, outsider):
            await each.is_let_in()
        for each in (idle, second, third, outsider):
            each.leave()


@pytest.mark.slow
async def test_a_listener_has_its_own_limit_on_new_connections(tmp_path: Path) -> None:
    async with two_listeners(tmp_path) as (client, inside, outside):
        await set_config(client, BROKER, "0", ("listener.name.outside.max.connection.creation.rate", SET, "4"))
        loop = asyncio.get_running_loop()

        async def eight(port: int) -> float:
            for each in [await Visitor.enter(port) for _ in range(8)]:
                await each.is_let_in()
                each.leave()
            return loop.time()

        began_s = loop.time()
        quick_s, slow_s = await asyncio.gather(eight(inside), eight(outside))
        assert slow_s - began_s > 0.7, "four come in at once, and four in the second after"
        assert quick_s < slow_s


async def test_many_clients_do_not_slow_down_brokers(tmp_path: Path) -> None:
    """New connections at the inter-broker listener do not count for the broker's rate, as in Kafka."""
    async with two_listeners(tmp_path) as (client, inside, outside):
        await set_config(client, BROKER, "", ("max.connection.creation.rate", SET, "1"))
        crowd = [await Visitor.enter(outside) for _ in range(9)]
        await crowd[0].is_let_in()
        insider = await Visitor.enter(inside)
        await insider.is_let_in()
        assert await crowd[-1].waits_beside(insider.client), "its turn is in eight seconds"
        for each in (insider, *crowd):
            each.leave()


@pytest.mark.parametrize(
    ("wrong", "is_fine"),
    [
        ({"listener.name.plaintext.max.connections": "many"}, False),
        ({"listener.name.plaintext.max.connections": "-1"}, False),
        ({"listener.name.plaintext.log.retention.ms": "soon"}, False),
        ({"listener.name.plaintext.max.connections": "0"}, True),
        ({"listener.name.nobody.max.connections": "many"}, True),
        ({"listener.name.PLAINTEXT.max.connections": "many"}, True),
        ({"listener.name.plaintext.no.such": "many"}, True),
    ],
)
def test_properties_of_an_existing_listener_are_read(wrong: dict[str, str], is_fine: bool) -> None:
    if is_fine:
        assert BrokerConfig(wrong).of_listener("PLAINTEXT", "max.connections") in (0, 2147483647)
        return
    with pytest.raises(ConfigError, match=r"max\.connections|log\.retention\.ms"):
        BrokerConfig(wrong)


async def test_a_listener_added_at_run_time_exists_after_a_restart(tmp_path: Path) -> None:
    here, extra = free_port(), free_port()
    static = {"listeners": f"PLAINTEXT://{HERE}:{here}"}
    async with running_broker(tmp_path / "data", static):
        client = await Client.connect(here)
        await set_config(
            client,
            BROKER,
            "0",
            ("listeners", SET, f"PLAINTEXT://{HERE}:{here},EXTRA://{HERE}:{extra}"),
            ("listener.security.protocol.map", SET, "PLAINTEXT:PLAINTEXT,EXTRA:PLAINTEXT"),
            ("advertised.listeners", SET, f"PLAINTEXT://{HERE}:{here},EXTRA://outside:{extra}"),
        )
        await eventually_async(lambda: notified(extra), lambda brokers: brokers == [("outside", extra)])
        client.close()
    async with running_broker(tmp_path / "data", static):
        assert await notified(extra) == [("outside", extra)]
        assert await notified(here) == [(HERE, here)]


async def notified(port: int) -> list[tuple[str, int]]:
    """The brokers that Metadata returns at that listener; none while the port is closed."""
    try:
        client = await Client.connect(port)
    except ConnectionRefusedError:
        return []
    answer = await client.ask(m.MetadataRequest(topics=[]), 7)
    client.close()
    return [(each.host, each.port) for each in answer.brokers]


# ---- logs


async def test_the_cleaner_applies_changes_at_once(tmp_path: Path) -> None:
    properties = {
        "log.cleaner.backoff.ms": "3600000",
        "log.cleaner.min.cleanable.ratio": "1",
        "log.cleaner.io.buffer.size": "1",
    }
    async with running_broker(tmp_path / "data", properties) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", configs={"cleanup.policy": "compact", "segment.bytes": "1000"})
        for number in range(20):
            assert (await client.produce("t", batch(b"%d" % number * 200))).error_code == ErrorCode.NONE
        assert broker.running.cleaner.metrics.passes == 0
        await set_config(client, BROKER, "", ("log.cleaner.min.cleanable.ratio", SET, "0.01"))
        await eventually_async(lambda: broker.running.cleaner.metrics.passes, lambda passes: passes > 0)
        client.close()


async def test_a_coordinator_loads_in_small_reads(tmp_path: Path) -> None:
    properties = {"offsets.load.buffer.size": "100", "transaction.state.log.load.buffer.size": "100"}
    for number in range(3):
        async with running_broker(tmp_path / "data", properties) as broker:
            client = await Client.connect(broker.port)
            if not number:
                await client.create_topic("t")
            await eventually_async(lambda client=client: find(client), lambda code: code == ErrorCode.NONE)
            if number:
                fetch = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
                answer = await client.ask(m.OffsetFetchRequest(group_id="g", topics=[fetch]), 5)
                assert answer.topics[0].partitions[0].committed_offset == 10 * (number - 1) + 9
            for offset in range(10):
                assert await commit(client, 10 * number + offset) == ErrorCode.NONE
            client.close()


async def find(client: Client) -> ErrorCode:
    return ErrorCode((await client.ask(m.FindCoordinatorRequest(key="g"), 2)).error_code)


class Alarms:
    """Timers that only record when they are due."""

    def __init__(self) -> None:
        self.due_ms: list[int] = []
        self.callbacks: list[Any] = []

    def at(self, deadline_ms: int, callback: Any) -> Any:
        self.due_ms.append(deadline_ms)
        self.callbacks.append(callback)
        return asyncio.Event()

    def monotonic_ms(self) -> int:
        return 1000


def test_log_maintenance_first_runs_after_the_initial_delay_or_sooner() -> None:
    alarms = Alarms()
    periodic = Periodic(alarms, alarms)  # type: ignore[arg-type]
    for interval_ms, first_ms in ((300_000, 30_000), (100, 30_000), (300_000, None)):
        periodic.every("job", lambda interval_ms=interval_ms: interval_ms, lambda: None, first_ms)
    assert alarms.due_ms == [31_000, 1_100, 301_000]


async def test_the_loop_serves_others_between_the_parts_of_a_scheduled_task() -> None:
    steps: list[str] = []

    def job() -> Iterator[None]:
        for number in range(3):
            steps.append(f"part {number}")
            asyncio.get_running_loop().call_soon(steps.append, "another")
            yield
        steps.append("end")
        periodic.close()

    periodic = Periodic(SystemClock(), LoopTimers(SystemClock(), asyncio.get_running_loop()))
    periodic.every("job", lambda: 1, job)  # type: ignore[arg-type]
    await eventually_async(lambda: steps[-1:], lambda last: last == ["end"])
    assert steps == ["part 0", "another", "part 1", "another", "part 2", "another", "end"]


async def test_an_iteration_of_the_loop_runs_one_part_of_all_scheduled_tasks() -> None:
    """Checkpoints of three kinds and the checks of ISRs are due at the same time: together they took 30 ms."""
    steps: list[str] = []

    def job(name: str) -> Iterator[None]:
        for _ in range(2):
            steps.append(name)
            yield
        steps.append("end")

    alarms = Alarms()
    periodic = Periodic(alarms, alarms)  # type: ignore[arg-type]
    for name in ("a", "b", "c"):
        periodic.every(name, lambda: 1, partial(job, name))  # type: ignore[arg-type]
    for due in list(alarms.callbacks):
        due()
    for number in range(1, 10):
        await asyncio.sleep(0)
        assert len(steps) == number
    assert steps == ["a", "b", "c"] * 2 + ["end"] * 3
    assert len(alarms.callbacks) == 6  # each is called again


async def test_a_call_for_a_thread_that_was_started_before_starts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop waited until the system ran the new thread."""
    worker = ThreadWorker(asyncio.get_running_loop(), threads=2, start=True)
    monkeypatch.setattr(threading.Thread, "start", mock.Mock(side_effect=AssertionError("a thread starts")))
    done: list[BaseException | None] = []
    for _ in range(4):
        worker.run(lambda: None, done.append)
    await eventually_async(lambda: done, lambda found: len(found) == 4)
    monkeypatch.undo()
    await worker.close()
    assert done == [None] * 4


# ---- policies and loggers


POLICIES = """
from odradek.broker.config.policies import PolicyViolationError


class FewPartitions:
    def configure(self, configs):
        self.most = int(configs["most.partitions"])

    def validate(self, topic):
        if (topic.partitions or 0) > self.most or "retention.ms" not in topic.configs:
            raise PolicyViolationError(f"{topic.topic} is too much")


class ShortRetention:
    def validate(self, change):
        if change.resource_type == 2 and int(change.configs.get("retention.ms", "0")) > 1000:
            raise PolicyViolationError("too long")


class Nothing:
    pass
"""
"""Policies as an operator's package has them."""
ENTRIES = {"few": "FewPartitions", "short": "ShortRetention", "nothing": "Nothing", "absent": "Absent"}


@pytest.fixture
def policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's package is installed."""
    install(monkeypatch, tmp_path, POLICIES, "odradek.policies", ENTRIES)


@pytest.mark.usefixtures("policies")
async def test_the_operators_policies_are_applied(tmp_path: Path) -> None:
    properties = {
        "create.topic.policy.class.name": "few",
        "alter.config.policy.class.name": "short",
        "most.partitions": "3",
    }
    async with running_broker(tmp_path / "data", properties) as broker:
        client = await Client.connect(broker.port)
        await client.create_topic("t", 3, {"retention.ms": "5000"})
        for partitions, configs in ((4, {"retention.ms": "1"}), (1, {})):
            with pytest.raises(AssertionError, match="u is too much"):
                await client.create_topic("u", partitions, configs)
        for value, code in (("1000", ErrorCode.NONE), ("1001", ErrorCode.POLICY_VIOLATION)):
            answer = await client.ask(alter((TOPIC, "t", [("retention.ms", SET, value)])), 1)
            assert answer.responses[0].error_code == code
        client.close()


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize("policy", ["com.acme.Policy", "json.JSONDecoder", "nothing", "absent"])
async def test_a_policy_that_is_not_installed_fails_the_start(tmp_path: Path, policy: str) -> None:
    for name in ("create.topic.policy.class.name", "alter.config.policy.class.name"):
        with pytest.raises(ConfigError, match=name):
            async with running_broker(tmp_path / name, {name: policy}):
                pass


async def test_logger_levels_are_described_and_set(client: Client) -> None:
    logger = logging.getLogger("odradek.broker.controller.controller")
    before = logger.level

    async def level() -> str:
        (result,) = (await client.ask(describe(LOGGER, "0", logger.name), 4)).results
        (entry,) = result.configs
        return str(entry.value)

    try:
        await set_config(client, LOGGER, "0", (logger.name, SET, "TRACE"))
        assert (logger.level, await level()) == (5, "TRACE")
        await set_config(client, LOGGER, "0", (logger.name, SET, "FATAL"))
        assert (logger.isEnabledFor(logging.ERROR), await level()) == (False, "FATAL")
        await set_config(client, LOGGER, "0", (logger.name, DELETE, None))
        assert logger.level == logging.NOTSET
        answer = await client.ask(describe(LOGGER, "0"), 4)
        names = [each.name for each in answer.results[0].configs]
        assert names[0] == "root"
        assert {"odradek.broker.controller.controller", "odradek.broker.config.admin_manager"} <= set(names)
        assert {name.partition(".")[0] for name in names[1:]} == {"kafka", "odradek"}
        assert [name for name in names if name.startswith("kafka.")] == ["kafka.authorizer.logger"]
    finally:
        logger.setLevel(before)
