"""The composition root: one broker, made of its parts, started and stopped in order.

Everything that a broker takes from the world comes in through `Environment`: clocks, randomness, the disk and the
registry. Nothing else in the broker reads a clock or draws a number, so a simulation builds the same broker over its
own world.

Start: registry, identity, data directories, address, then the controller's place and the partitions; only then are
connections accepted. Stop is the reverse: no new connections, no requests, logs flushed and closed with the clean mark,
the registry last.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import logging
import os
import random
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.broker.apis.api_versions import ApiVersions
from odradek.broker.apis.create_topics import CreateTopics
from odradek.broker.apis.delete_groups import DeleteGroups
from odradek.broker.apis.delete_topics import DeleteTopics
from odradek.broker.apis.describe_cluster import DescribeCluster
from odradek.broker.apis.describe_configs import DescribeConfigs
from odradek.broker.apis.describe_groups import DescribeGroups
from odradek.broker.apis.fetch import Fetch
from odradek.broker.apis.find_coordinator import FindCoordinator
from odradek.broker.apis.heartbeat import Heartbeat
from odradek.broker.apis.init_producer_id import InitProducerId
from odradek.broker.apis.join_group import JoinGroup
from odradek.broker.apis.leave_group import LeaveGroup
from odradek.broker.apis.list_groups import ListGroups
from odradek.broker.apis.list_offsets import ListOffsets
from odradek.broker.apis.metadata import Metadata
from odradek.broker.apis.offset_commit import OffsetCommit
from odradek.broker.apis.offset_delete import OffsetDelete
from odradek.broker.apis.offset_fetch import OffsetFetch
from odradek.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpoch
from odradek.broker.apis.produce import Produce
from odradek.broker.apis.sync_group import SyncGroup
from odradek.broker.cluster_view import BrokerView, ClusterView, TopicView
from odradek.broker.cluster_view import Endpoint as ViewEndpoint
from odradek.broker.config import BrokerConfig
from odradek.broker.config_types import ConfigError
from odradek.broker.controller import Controller, cluster_id
from odradek.broker.coordinator import GroupCoordinator
from odradek.broker.dispatch import Dispatcher, Handler
from odradek.broker.housekeeping import Periodic, ThreadWorker
from odradek.broker.machines.fetch_session import FetchSessions
from odradek.broker.machines.group_settings import GroupSettings
from odradek.broker.machines.topics import GROUP_OFFSETS
from odradek.broker.observe import RateLimitedReport
from odradek.broker.offsets_topic import Coordinators, OffsetsTopic, new_topic
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import Registry, ensure_path
from odradek.broker.registry.journal import JournalInUseError
from odradek.broker.replica import Replica, Replicas, Worker
from odradek.broker.replica_host import ReplicaHost, log_config
from odradek.broker.waiting import Clock, LoopTimers, SystemClock, Timers
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.net import Census, Connection, Limits, Listener
from odradek.storage.directory import Directory, DirectoryRequest, open_all, read_identity
from odradek.storage.disk import Disk, OsDisk

log = logging.getLogger(__name__)

REGISTRY_FOLDER = "__cluster_metadata-0"
"""Where the embedded registry lies within the first data directory. Kafka 3.9 passes over a folder of this name, so
it opens a data directory of ours as it opens its own."""

GIVEN_IDS_BELOW = "reserved.broker.max.id"
OnReady = Callable[[int, str, int, str], None]
"""Hears broker id, host, port and data directory when the broker serves."""


@dataclass(slots=True)
class Environment:
    """What a broker takes from the world."""

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.SystemRandom)
    disk: Disk = field(default_factory=OsDisk)
    listen: Callable[..., Listener] = Listener
    """Makes a listener, with the arguments of `Listener`: the network."""
    registry: Registry | None = None
    """A session of a registry that others keep; None for one of the broker's own, inside its data directory."""
    worker: Worker | None = None
    """Runs what blocks; None for threads of the broker's own."""


class Broker:
    """One broker."""

    def __init__(self, config: BrokerConfig, environment: Environment | None = None) -> None:
        """Nothing is touched before `start`."""
        self._config = config
        self._environment = environment or Environment()
        self._replicas = Replicas()
        self._listeners: list[Listener] = []
        self._undo: contextlib.AsyncExitStack = contextlib.AsyncExitStack()
        self.host = ""
        self.port = 0

    @property
    def broker_id(self) -> int:
        """The broker's number; -1 until `start` has found one where none was configured."""
        return self._config.broker_id

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for connections: incomplete requests, and answers that wait."""
        return self._listeners[0].held_bytes if self._listeners else 0

    # ---- start

    async def start(self) -> None:
        """Serve. Raises ConfigError, KafkaError, OSError; what was begun is then undone."""
        async with contextlib.AsyncExitStack() as undo:
            await self._start(undo)
            self._undo = undo.pop_all()

    async def _start(self, undo: contextlib.AsyncExitStack) -> None:
        environment, loop = self._environment, asyncio.get_running_loop()
        clock, timers = environment.clock, LoopTimers(environment.clock, loop)
        _only_plaintext(self._config)
        registry = await self._open_registry(undo)
        self._config = config = await self._identify(registry)
        cluster = await cluster_id(registry, _new_cluster_id(environment.random))
        directories = self._open_directories(cluster, await _topic_configs(registry))
        worker = environment.worker or ThreadWorker(loop, threads=max(2, len(directories)))
        view = ClusterView(cluster)
        host = ReplicaHost(
            config, directories, self._replicas, clock, worker, lambda lost: _on_disk_failure(view, lost)
        )
        undo.callback(host.close)
        if isinstance(worker, ThreadWorker):
            undo.push_async_callback(worker.close)  # a flush under way ends, and is heard of, before its log is closed
        undo.callback(host.retire)  # and no flush follows

        settings = _group_settings(config)
        offsets = OffsetsTopic(settings, self._replicas, clock, timers)
        groups = GroupCoordinator(settings, clock, timers, self._fresh_id, offsets)
        undo.callback(groups.close)

        events = GroupEvents(groups)
        controller = Controller(config, registry, view, host, clock, environment.random, events)
        dispatcher = _dispatcher(
            [
                *self._log_handlers(view, timers),
                *_topic_handlers(config, view, controller, settings),
                *_group_handlers(groups, view, clock),
                FindCoordinator(Coordinators(settings, view, controller)),
            ]
        )
        endpoints = await self._bind(dispatcher.frame, undo)
        view.brokers[config.broker_id] = BrokerView(config.broker_id, endpoints, config["broker.rack"])
        await controller.start(self._registration(endpoints))
        if GROUP_OFFSETS in view.topics:  # as many partitions as it was made with, whatever the property says now
            settings.offsets_topic_num_partitions = len(view.topics[GROUP_OFFSETS].partitions)
        undo.push_async_callback(controller.close)
        undo.callback(self._close_listeners)
        groups.start()
        self._keep_house(Periodic(clock, timers), host, undo)
        for listener in self._listeners:
            await listener.serve()

    def _log_handlers(self, view: ClusterView, timers: Timers) -> list[Handler]:
        config, environment, replicas = self._config, self._environment, self._replicas
        sessions = FetchSessions(
            int(config["max.incremental.fetch.session.cache.slots"]), lambda: environment.random.randrange(1, 2**31)
        )
        return [
            Produce(replicas, view, environment.clock, timers),
            Fetch(replicas, view, sessions, environment.clock, timers, lambda: int(config["fetch.max.bytes"])),
            ListOffsets(replicas),
            OffsetForLeaderEpoch(replicas),
        ]

    async def _open_registry(self, undo: contextlib.AsyncExitStack) -> Registry:
        config, environment = self._config, self._environment
        if environment.registry is not None:
            return environment.registry
        if config["zookeeper.connect"]:
            raise ConfigError(
                "zookeeper.connect is set, and a ZooKeeper cannot be used yet: leave it out to use the registry "
                "inside the broker"
            )
        first = str(config.log_dirs[0])
        try:
            environment.disk.make_directory(first)
            ensemble = EmbeddedEnsemble(environment.disk, f"{first}/{REGISTRY_FOLDER}", now_ms=environment.clock.now_ms)
        except JournalInUseError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Failed to acquire lock on file .lock in {first}. "
                "A Kafka instance in another process or thread is using this directory.",
            ) from error
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"cannot open the data directory {first}: {error}"
            ) from error
        undo.push_async_callback(ensemble.close)
        registry = await ensemble.connect()
        undo.push_async_callback(registry.close)
        return registry

    async def _identify(self, registry: Registry) -> BrokerConfig:
        """The configuration with a broker id: the configured one, the directory's, or a new one from the registry."""
        config = self._config
        if config.broker_id >= 0:
            return config
        for path in config.log_dirs:
            known = read_identity(self._environment.disk, str(path)).get("broker.id")
            if known is not None:
                return config.with_broker_id(int(known))
        await ensure_path(registry, znodes.BROKER_SEQUENCE)
        stat = await registry.set(znodes.BROKER_SEQUENCE, b"")
        return config.with_broker_id(int(config[GIVEN_IDS_BELOW]) + stat.version)

    def _open_directories(self, cluster: str, topic_configs: dict[str, dict[str, str]]) -> list[Directory]:
        config, environment = self._config, self._environment
        request = DirectoryRequest(
            broker_id=config.broker_id,
            cluster_id=cluster,
            now_ms=environment.clock.now_ms(),
            config_for=lambda topic: log_config(config, topic_configs.get(topic, {})),
            random=environment.random,
        )
        return open_all([str(path) for path in config.log_dirs], request, environment.disk)

    async def _bind(
        self, on_frame: Callable[[Connection, memoryview], None], undo: contextlib.AsyncExitStack
    ) -> tuple[ViewEndpoint, ...]:
        """Take the addresses; returns where clients are told to go."""
        config = self._config
        limits = Limits(
            frame_bytes=int(config["socket.request.max.bytes"]),
            connections=int(config["max.connections"]),
            connections_per_address=int(config["max.connections.per.ip"]),
            connections_by_address=config.connections_per_address,
            idle_s=int(config["connections.max.idle.ms"]) / 1000,
            **(
                {"total_bytes": int(config["queued.max.request.bytes"])}
                if config["queued.max.request.bytes"] > 0
                else {}
            ),
        )
        census = Census()
        report = RateLimitedReport(self._environment.clock)
        told = []
        told_to = {each.listener: each for each in config.advertised_listeners}
        for endpoint in config.listeners:
            listener = self._environment.listen(
                endpoint.listener, on_frame, limits=limits, report=report, census=census
            )
            backlog = int(config["socket.listen.backlog.size"])
            port = await listener.bind(endpoint.host or None, endpoint.port, backlog=backlog)
            undo.callback(listener.close)
            self._listeners.append(listener)
            advertised = told_to.get(endpoint.listener)
            if advertised is not None:
                reachable = advertised.advertise(_own_name(endpoint.host), port)
                told.append(ViewEndpoint(endpoint.listener, reachable.host, reachable.port))
        self.host, self.port = told[0].host, told[0].port
        return tuple(told)

    def _registration(self, endpoints: tuple[ViewEndpoint, ...]) -> znodes.BrokerRegistration:
        protocols = {each.listener: each.security_protocol for each in self._config.listeners}
        return znodes.BrokerRegistration(
            tuple(znodes.Endpoint(each.listener, each.host, each.port, protocols[each.listener]) for each in endpoints),
            self._environment.clock.now_ms(),
            self._config["broker.rack"],
        )

    def _keep_house(self, periodic: Periodic, host: ReplicaHost, undo: contextlib.AsyncExitStack) -> None:
        config = self._config
        undo.callback(periodic.close)
        for name, job in (
            ("replica.high.watermark.checkpoint.interval.ms", host.write_high_watermarks),
            ("log.flush.offset.checkpoint.interval.ms", host.write_recovery_points),
            ("log.retention.check.interval.ms", host.delete_old_segments),
            ("producer.id.expiration.check.interval.ms", host.expire_producers),
        ):
            periodic.every(name, lambda name=name: int(config[name]), job)  # type: ignore[misc]
        periodic.every(
            "log.flush.scheduler",
            lambda: min(1000, int(config["log.flush.scheduler.interval.ms"])),
            host.flush_due_logs,
        )
        periodic.every("purge", lambda: 10_000, host.purge)

    def _fresh_id(self) -> str:
        """A random UUID (version 4) as text."""
        bits = self._environment.random.getrandbits(128)
        bits = bits & ~(0xF << 76) | 0x4 << 76
        bits = bits & ~(0x3 << 62) | 0x2 << 62
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # ---- stop

    async def stop(self) -> None:
        """Stop in order; everything that was acknowledged is on disk afterwards."""
        await self._undo.aclose()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()


def _topic_handlers(
    config: BrokerConfig, view: ClusterView, controller: Controller, settings: GroupSettings
) -> list[Handler]:
    return [
        Metadata(
            view,
            controller,
            lambda: bool(config["auto.create.topics.enable"]),
            lambda name: new_topic(name, settings, len(view.brokers)),
        ),
        CreateTopics(controller),
        DeleteTopics(view, controller, lambda: bool(config["delete.topic.enable"])),
        InitProducerId(controller),
        DescribeConfigs(config, view, controller),
        DescribeCluster(view),
    ]


def _group_handlers(groups: GroupCoordinator, view: ClusterView, clock: Clock) -> list[Handler]:
    return [
        JoinGroup(groups),
        SyncGroup(groups),
        Heartbeat(groups),
        LeaveGroup(groups),
        OffsetCommit(groups, view, clock),
        OffsetFetch(groups, view),
        OffsetDelete(groups, view),
        DescribeGroups(groups),
        ListGroups(groups),
        DeleteGroups(groups),
    ]


class GroupEvents:
    """What the coordinator of groups has to know of partitions."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def led(self, replica: Replica) -> None:
        if replica.topic == GROUP_OFFSETS:
            self._groups.load(replica.partition)

    def deleted(self, topic: TopicView) -> None:
        """Offsets of partitions that are gone go with them."""
        if topic.name != GROUP_OFFSETS:
            self._groups.forget_partitions([(topic.name, partition.index) for partition in topic.partitions])


def _on_disk_failure(view: ClusterView, replica: Replica) -> None:
    log.error("replica %s-%d has lost its disk and serves no more", replica.topic, replica.partition)
    view.take_offline(replica.topic, replica.partition)


def _dispatcher(handlers: list[Handler]) -> Dispatcher:
    dispatcher: Dispatcher
    versions = ApiVersions(lambda: dispatcher.versions())
    dispatcher = Dispatcher([*handlers, versions])
    return dispatcher


def _only_plaintext(config: BrokerConfig) -> None:
    for endpoint in config.listeners:
        if endpoint.security_protocol != "PLAINTEXT":
            raise ConfigError(
                f"listener {endpoint} speaks {endpoint.security_protocol}, which is not served yet; PLAINTEXT is"
            )


def _new_cluster_id(source: random.Random) -> str:
    return base64.urlsafe_b64encode(source.randbytes(16)).rstrip(b"=").decode()


async def _topic_configs(registry: Registry) -> dict[str, dict[str, str]]:
    """What is set for each topic, read before the logs are opened."""
    path = znodes.config_path("topics")
    await ensure_path(registry, path)
    names, _ = await registry.children(path)
    return {name: znodes.decode_config((await registry.get(f"{path}/{name}"))[0]) for name in names}


def _group_settings(config: BrokerConfig) -> GroupSettings:
    names = GroupSettings.__dataclass_fields__
    return GroupSettings(**{name: int(config[name.replace("_", ".")]) for name in names})


def _own_name(host: str) -> str:
    """What to tell clients when a listener names no address: this machine's name, as Kafka does."""
    import socket

    return host or socket.getfqdn()


def run(config: BrokerConfig, *, on_ready: OnReady) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status.

    Raises ConfigError, KafkaError, OSError when the broker cannot start.
    """
    import uvloop

    _allow_many_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, on_ready, os.path.abspath(config.log_dirs[0])))


async def _serve(config: BrokerConfig, on_ready: OnReady, data: str) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(config)
    await broker.start()
    # What exists now lives as long as the broker; the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    on_ready(broker.broker_id, broker.host, broker.port, data)
    await stop.wait()
    log.info("stopping")
    await broker.stop()
    log.info("stopped")
    return 0


def _allow_many_files() -> None:
    """Every connection takes two descriptors and every segment a few; take as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
