"""Composition root: builds, starts and stops one broker (Kafka: KafkaServer).

All external inputs of a broker come in through `Environment`: clocks, randomness, the disk and the metadata store. No
other part of the broker reads a clock or draws a random number, so a simulation runs the same broker over a simulated
environment.

Start order: metadata store, identity, data directories, listeners, then the broker's registration and the controller
election. The controller (another broker or this one) sends control requests that name the partitions that this broker
leads and follows. Stop is the reverse: controlled shutdown, no new connections, no requests, logs flushed and closed
with the clean shutdown file, the metadata store last.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from odradek.broker.composition import registry_access
from odradek.broker.composition.coordinators import Coordination, CoordinatorDependencies
from odradek.broker.composition.partition_state_listener import CoordinatorEvents, DiskFailures
from odradek.broker.composition.routes import Services, handlers
from odradek.broker.config.admin_manager import ConfigWriter
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.changes import ConfigChanges
from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.config.topic_overrides import TopicConfigs
from odradek.broker.controller.auto_topic_creation import TopicCreator, TopicsKnown
from odradek.broker.controller.channel_manager import Channels, ControllerChannelManager
from odradek.broker.controller.controlled_shutdown import hand_over
from odradek.broker.controller.controller import Controller
from odradek.broker.metadata.broker_registration import Registration
from odradek.broker.metadata.cache import BrokerMetadata, MetadataCache, TopicMetadata
from odradek.broker.metadata.features import FeatureLevels
from odradek.broker.metadata.registry_session import Member, OpenSession, RegistrySession
from odradek.broker.metrics.broker_metrics import ApiMetrics
from odradek.broker.metrics.exposition.snapshot import SnapshotSources, look
from odradek.broker.network.addresses import Addresses
from odradek.broker.network.controller_channel import ControllerChannel
from odradek.broker.network.dispatcher import Dispatcher
from odradek.broker.network.inter_broker_client import InterBrokerClient, Local
from odradek.broker.network.inter_broker_connection import Network
from odradek.broker.network.reconfiguration import Reconfiguration
from odradek.broker.replication.alter_partition_manager import DefaultAlterPartitionManager
from odradek.broker.replication.config_handler import ConfigInForce
from odradek.broker.replication.conversions import Conversions
from odradek.broker.replication.fetcher import Fetchers, FetchSettings
from odradek.broker.replication.log_cleaner import CleanerProcesses, Cleaners, CleanersHere, LogCleaner
from odradek.broker.replication.log_dirs import LogDirs
from odradek.broker.replication.partition import Replicas, Worker
from odradek.broker.replication.replica_manager import ReplicaManager, ReplicaManagerDependencies
from odradek.broker.replication.replicas import ReplicaHost, log_config
from odradek.broker.replication.state.fetch_session import FetchSessions
from odradek.broker.replication.state.partition import Role
from odradek.broker.runtime.open_files import raise_open_file_limit, warn_of_low_open_file_limit
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.scheduler import Periodic, ThreadWorker
from odradek.broker.runtime.stop_signals import stop_signals
from odradek.broker.runtime.timers import Clock, LoopTimers, SystemClock, Timers
from odradek.broker.transaction.producer_ids import ProducerIds
from odradek.protocol.compression import load_libraries
from odradek.protocol.dial import Connect, connect
from odradek.protocol.listening import Listener
from odradek.storage.descriptors import RESERVE
from odradek.storage.directories import Directories, open_all
from odradek.storage.directory import DirectoryRequest
from odradek.storage.disk import Disk, OsDisk

log = logging.getLogger(__name__)

FIRST_CONTROL_REQUESTS_MS = 10_000
MOST_CLEANERS = 256
CONVERSION_THREADS = 2
OnReady = Callable[[int, str, int, str], None]
"""Called with broker id, host, port and data directory when the broker is ready for requests."""


@dataclass(slots=True)
class Environment:
    """External inputs of a broker."""

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.SystemRandom)
    disk: Disk = field(default_factory=OsDisk)
    listen: Callable[..., Listener] = Listener
    """Creates a listener, with the arguments of `Listener`: the network, for incoming connections."""
    connect: Connect = connect
    """Opens connections to other brokers: the network, for outgoing connections."""
    open_session: OpenSession | None = None
    """Opens sessions of an external metadata store. None: ZooKeeper if `zookeeper.connect` is set, otherwise the
    embedded metadata store in the broker's data directory."""
    worker: Worker | None = None
    """Runs blocking calls; None: in the broker's own threads."""


class Broker:
    """One broker."""

    def __init__(self, config: BrokerConfig, environment: Environment | None = None) -> None:
        """Has no side effects; `start` begins them."""
        self._config = config
        self._environment = environment or Environment()
        self._undo = contextlib.AsyncExitStack()
        self._timers: Timers
        self._session: RegistrySession
        self._registration: Registration
        self._config_changes: ConfigChanges
        self._addresses: Addresses
        self.replicas = Replicas()
        self.api_metrics = ApiMetrics(self._environment.clock.monotonic_ns)
        self.failure: str | None = None
        """The reason for the shutdown when all log directories have failed; `on_failure` is called then."""
        self.on_failure: Callable[[], None] = lambda: None
        self._fetchers: Fetchers
        self.metadata_cache: MetadataCache
        self.controller: Controller
        self.replica_manager: ReplicaManager
        self.cleaner: LogCleaner
        self.sources: SnapshotSources
        """The sources of the metrics page; set when the broker has started."""

    @property
    def broker_id(self) -> int:
        """The broker id; if none is configured, -1 until `start` has determined one."""
        return self._config.broker_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration."""
        return self._registration.broker_epoch

    @property
    def host(self) -> str:
        """The host of the first advertised address."""
        return self._addresses.endpoints[0].host

    @property
    def port(self) -> int:
        """The port of the first advertised address."""
        return self._addresses.endpoints[0].port

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for connections: incomplete requests, and responses that are not sent yet."""
        return self._addresses.held_bytes

    # ---- start

    async def start(self) -> None:
        """Start the broker. Raises ConfigError, KafkaError, RegistryError, OSError; the parts that were started are
        then stopped.
        """
        async with contextlib.AsyncExitStack() as undo:
            await self._start(undo)
            self._undo = undo.pop_all()

    async def _start(self, undo: contextlib.AsyncExitStack) -> None:
        environment = self._environment
        self._timers = LoopTimers(environment.clock, asyncio.get_running_loop())
        members: list[Member] = []
        alone = environment.open_session is None and not self._config["zookeeper.connect"]
        self._session = RegistrySession(self._open_session(undo), members)
        undo.push_async_callback(self._session.close)
        configs, directories = await self._find_identity()
        self._addresses = Addresses(self._config, environment.listen, environment.clock)
        undo.callback(self._addresses.close)
        dispatcher = Dispatcher([], self.api_metrics)
        await self._addresses.bind(dispatcher.frame)
        services = self._build(undo, dispatcher, configs, directories, alone=alone)
        dispatcher.serve(handlers(services, dispatcher))
        self.sources = self._what_to_watch(services)
        members.extend(
            [self._registration, self.replica_manager, self._config_changes, services.features, self.controller]
        )
        undo.callback(self._addresses.close)  # closed first at the stop: no request is answered from then on
        await self._addresses.serve()  # a controller on another broker sends its control requests over the network
        await self._session.begin()
        await self._await_first_control_requests()
        undo.push_async_callback(self._hand_over, services)

    def _open_session(self, undo: contextlib.AsyncExitStack) -> OpenSession:
        environment = self._environment
        if environment.open_session is not None:
            return environment.open_session
        return registry_access.sessions(self._config, environment.disk, environment.clock, undo)

    async def _find_identity(self) -> tuple[TopicConfigs, Directories]:
        """Determine broker id and cluster id, load topic configurations and open the data directories."""
        environment, session = self._environment, self._session
        registry = await session.start()
        self._config = config = await registry_access.identify(self._config, environment.disk, registry)
        config.adopt(await registry_access.with_run_time_layers(config, registry))
        cluster = await registry_access.cluster_id(registry, _new_cluster_id(environment.random))
        configs = TopicConfigs(lambda: session.registry)
        await configs.load_all()
        request = DirectoryRequest(
            broker_id=config.broker_id,
            cluster_id=cluster,
            now_ms=environment.clock.now_ms(),
            config_for=lambda topic: log_config(config, configs.get(topic)),
            random=environment.random,
            recovery_processes=_set_number(config, "num.recovery.threads.per.data.dir"),
        )
        self.metadata_cache = MetadataCache(cluster)
        return configs, Directories(open_all(_log_dirs(config), request, environment.disk))

    def _build(
        self,
        undo: contextlib.AsyncExitStack,
        dispatcher: Dispatcher,
        configs: TopicConfigs,
        directories: Directories,
        *,
        alone: bool,
    ) -> Services:
        """Build the parts of the broker; none of them sends a request yet."""
        config, environment, metadata_cache = self._config, self._environment, self.metadata_cache
        metadata_cache.own = BrokerMetadata(config.broker_id, self._addresses.endpoints, config["broker.rack"])
        clock, timers, session = environment.clock, self._timers, self._session
        self._registration = _registration(config, self._addresses, clock, timers)
        request_tasks = RequestTasks()
        undo.push_async_callback(request_tasks.close)
        network = _network(config, environment, timers)
        link = _controller_channel(config, metadata_cache, network, dispatcher.local)
        producer_ids = ProducerIds(self._registration, link.ask)
        coordination = Coordination(
            CoordinatorDependencies(
                config, metadata_cache, self.replicas, network, dispatcher.local, producer_ids, self._fresh_id
            )
        )
        host = self._build_host(undo, directories, network, link, request_tasks, coordination.events)
        self.replica_manager = self._build_replica_manager(undo, configs, host, coordination.events)
        undo.callback(coordination.close)
        coordination.start()
        undo.callback(link.close)
        channels = _channel_manager(config, network, dispatcher.local)
        self.controller = self._build_controller(undo, channels, host)
        self._config_changes = self._build_config_changes(configs, host, request_tasks)
        known = TopicsKnown(metadata_cache, clock, timers)
        return Services(
            config=config,
            clock=clock,
            purgatory=DelayedOperationPurgatory(clock, timers),
            random=environment.random,
            metadata_cache=metadata_cache,
            replicas=self.replicas,
            replica_manager=self.replica_manager,
            controller=self.controller,
            creator=TopicCreator(link.ask, known, clock, timers),
            known=known,
            configs=configs,
            config_writer=ConfigWriter(config, metadata_cache, lambda: session.registry, self._config_changes.catch_up),
            client_configs=ClientConfigs(lambda: session.registry),
            log_dirs=LogDirs(directories, self.replicas),
            moves=host.moves,
            producer_ids=producer_ids,
            coordination=coordination,
            conversions=self._build_conversions(undo),
            request_tasks=request_tasks,
            sessions=_fetch_sessions(config, environment.random),
            link=link,
            features=FeatureLevels(request_tasks),
            alone=alone,
        )

    def _build_controller(self, undo: contextlib.AsyncExitStack, channels: Channels, host: ReplicaHost) -> Controller:
        """Build the controller, which takes part in the controller election for this broker."""
        environment = self._environment
        controller = Controller(
            self._config,
            self._session,
            self.metadata_cache,
            channels,
            environment.clock,
            self._timers,
            environment.random,
        )
        controller.maker.budget.has_log = host.has_log
        undo.push_async_callback(controller.close)
        return controller

    def _build_config_changes(
        self, configs: TopicConfigs, host: ReplicaHost, request_tasks: RequestTasks
    ) -> ConfigChanges:
        """Build the handlers of dynamic configuration changes."""
        config, controller = self._config, self.controller
        first_requests = (self._fetchers.resize, self.cleaner.wake, controller.broker_config_changed)
        on_broker = Reconfiguration(config, self._addresses, self._registration, request_tasks, first_requests)
        on_topic = lambda topic, _: controller.topic_config_changed(topic)  # noqa: E731
        in_force = ConfigInForce(config, configs, host, self.replicas, on_topic, on_broker)
        return ConfigChanges(config.broker_id, in_force, request_tasks, self._environment.clock)

    def _build_host(
        self,
        undo: contextlib.AsyncExitStack,
        directories: Directories,
        network: Network,
        link: ControllerChannel,
        request_tasks: RequestTasks,
        events: CoordinatorEvents,
    ) -> ReplicaHost:
        """Build the replica host, the AlterPartition manager, the fetchers and the scheduled tasks."""
        config, registration = self._config, self._registration
        clock, timers = network.clock, network.timers
        alter_partition_manager = DefaultAlterPartitionManager(registration, link.ask, clock, timers)
        fetch_network = network._replace(connect=_following(config, network.connect))
        self._fetchers = Fetchers(fetch_network, _fetch_settings(config, registration))
        failures = DiskFailures(config.broker_id, self._session, self._fetchers, request_tasks, events, self._end)
        worker = self._environment.worker or ThreadWorker(asyncio.get_running_loop(), threads=len(directories) + 2)
        host = ReplicaHost(config, directories, self.replicas, clock, worker, alter_partition_manager, failures)
        undo.callback(lambda: host.close(registration.broker_epoch))
        if isinstance(worker, ThreadWorker):
            undo.push_async_callback(worker.close)  # running flushes and their callbacks end before logs are closed
        undo.callback(host.retire)  # runs first, so that no new flush starts
        undo.callback(self._fetchers.close)
        undo.callback(alter_partition_manager.close)
        self.cleaner = self._build_cleaner(undo, directories, clock)
        self._keep_house(Periodic(clock, timers), host, undo)
        return host

    def _build_conversions(self, undo: contextlib.AsyncExitStack) -> Conversions:
        """Build the conversions of old message formats and other codecs. They have their own threads, so that no fsync
        waits for them.
        """
        environment = self._environment
        worker = environment.worker
        if worker is None:
            worker = threads = ThreadWorker(asyncio.get_running_loop(), threads=CONVERSION_THREADS)
            undo.push_async_callback(threads.close)
        return Conversions(worker, environment.clock)

    def _build_cleaner(self, undo: contextlib.AsyncExitStack, directories: Directories, clock: Clock) -> LogCleaner:
        """Build the log cleaner. It compacts in worker processes, unless disk and threads are simulated."""
        environment = self._environment
        cleaners: Cleaners
        if environment.worker is not None:
            cleaners = CleanersHere(environment.disk, environment.worker)
        else:
            # A thread starts when it is first needed; log.cleaner.threads limits how many the cleaner uses.
            waiting = ThreadWorker(asyncio.get_running_loop(), threads=MOST_CLEANERS)
            undo.push_async_callback(waiting.close)
            cleaners = CleanerProcesses(waiting)
        cleaner = LogCleaner(self._config, list(directories), self.replicas, cleaners, clock, environment.random)
        undo.callback(cleaner.close)
        return cleaner

    def _build_replica_manager(
        self, undo: contextlib.AsyncExitStack, configs: TopicConfigs, host: ReplicaHost, events: CoordinatorEvents
    ) -> ReplicaManager:
        """Build the replica manager, which applies the controller's control requests."""
        registration = self._registration
        replica_manager = ReplicaManager(
            ReplicaManagerDependencies(
                self.broker_id,
                lambda: registration.broker_epoch,
                host,
                self.replicas,
                self._fetchers,
                self.metadata_cache,
                events,
                configs,
                self._config.inter_broker_listener,
            )
        )
        undo.push_async_callback(replica_manager.close)
        return replica_manager

    async def _await_first_control_requests(self) -> None:
        """Wait until the metadata cache contains this broker, and this broker leads every partition that the cache
        assigns to it; without a controller, at most FIRST_CONTROL_REQUESTS_MS.
        """
        first_requests = asyncio.Event()
        metadata_cache = self.metadata_cache

        def look() -> None:
            if self.broker_id in metadata_cache.brokers and all(map(self._leads, metadata_cache)):
                first_requests.set()

        metadata_cache.watch(look)
        timer = self._timers.at(self._environment.clock.monotonic_ms() + FIRST_CONTROL_REQUESTS_MS, first_requests.set)
        look()
        try:
            await first_requests.wait()
        finally:
            timer.cancel()
            metadata_cache.unwatch(look)
        if self.broker_id not in metadata_cache.brokers:
            log.warning("no control request received yet broker=%d", self.broker_id)

    def _leads(self, topic: TopicMetadata) -> bool:
        """Whether this broker leads the partitions of a topic whose leader it is according to the metadata cache."""
        led = [each.index for each in topic.partitions if each.leader == self.broker_id]
        replicas = [self.replicas.get(topic.name, index) for index in led]
        return all(each is not None and each.machine.role is Role.LEADER for each in replicas)

    def _keep_house(self, periodic: Periodic, host: ReplicaHost, undo: contextlib.AsyncExitStack) -> None:
        config = self._config
        undo.callback(periodic.close)
        for name, job in (
            ("replica.high.watermark.checkpoint.interval.ms", host.write_high_watermarks),
            ("log.flush.offset.checkpoint.interval.ms", host.write_recovery_points),
            ("log.flush.start.offset.checkpoint.interval.ms", host.write_start_offsets),
            ("log.retention.check.interval.ms", lambda: host.delete_old_segments(self.cleaner.is_cleaning)),
            ("producer.id.expiration.check.interval.ms", host.expire_producers),
        ):
            # Kafka's scheduled tasks on logs first run after that delay, or sooner.
            first_ms = int(config["log.initial.task.delay.ms"]) if name.startswith("log.") else None
            periodic.every(name, lambda name=name: int(config[name]), job, first_ms)  # type: ignore[misc]
        periodic.every(
            "log.flush.scheduler",
            lambda: min(1000, int(config["log.flush.scheduler.interval.ms"])),
            host.flush_due_logs,
        )
        if config["log.cleaner.enable"]:
            periodic.every("log.cleaner.backoff.ms", lambda: int(config["log.cleaner.backoff.ms"]), self.cleaner.look)
        # The interval of Kafka's task that removes deleted logs; at most ten seconds, for topics with a shorter delay.
        delay = "log.segment.delete.delay.ms"
        periodic.every("purge", lambda: min(10_000, max(100, int(config[delay]))), host.purge)
        periodic.every("refusals", lambda: 10_000, self._addresses.say_what_was_left_out)
        periodic.every("isr", lambda: max(1, int(config["replica.lag.time.max.ms"]) // 2), host.shrink_isrs)

    def _fresh_id(self) -> str:
        """A random UUID (version 4) as text."""
        bits = self._environment.random.getrandbits(128)
        bits = bits & ~(0xF << 76) | 0x4 << 76
        bits = bits & ~(0x3 << 62) | 0x2 << 62
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _what_to_watch(self, services: Services) -> SnapshotSources:
        return SnapshotSources(
            replicas=self.replicas,
            apis=self.api_metrics,
            cleaner=lambda: self.cleaner.metrics,
            controller=self.controller,
            groups=services.coordination.groups,
            sessions=services.sessions,
            fetchers=self._fetchers,
            listening=self._addresses,
            offline_directories=services.log_dirs.offline,
        )

    # ---- stop

    def _end(self, reason: str) -> None:
        log.critical("broker failed reason=%s", reason)
        self.failure = reason
        self.on_failure()

    async def stop(self) -> None:
        """Stop the parts in order; every acknowledged write is on disk afterwards."""
        await self._undo.aclose()

    async def _hand_over(self, services: Services) -> None:
        if len(self.metadata_cache.brokers) > 1 and self.failure is None:
            await hand_over(self._config, self.broker_epoch, services.link.ask)


def _fetch_settings(config: BrokerConfig, registration: Registration) -> FetchSettings:
    return FetchSettings(
        config.broker_id,
        lambda: registration.broker_epoch,
        int(config["replica.fetch.wait.max.ms"]),
        int(config["replica.fetch.min.bytes"]),
        int(config["replica.fetch.max.bytes"]),
        int(config["replica.fetch.response.max.bytes"]),
        int(config["replica.fetch.backoff.ms"]),
        int(config["replica.socket.timeout.ms"]),
        lambda: int(config["num.replica.fetchers"]),
    )


def _registration(config: BrokerConfig, addresses: Addresses, clock: Clock, timers: Timers) -> Registration:
    session_ms = int(config["zookeeper.session.timeout.ms"])
    return Registration(config.broker_id, addresses.registration(), session_ms, clock, timers)


def _network(config: BrokerConfig, environment: Environment, timers: Timers) -> Network:
    return Network(
        environment.connect,
        environment.clock,
        timers,
        setup_timeout_ms=int(config["socket.connection.setup.timeout.ms"]),
        setup_timeout_max_ms=int(config["socket.connection.setup.timeout.max.ms"]),
    )


def _controller_channel(
    config: BrokerConfig, metadata_cache: MetadataCache, network: Network, local: Local
) -> ControllerChannel:
    listener, purpose = config.inter_broker_listener, "to-controller"
    client = InterBrokerClient.of_metadata(metadata_cache, listener, config.broker_id, network, local, purpose)
    return ControllerChannel(client, metadata_cache, int(config["controller.socket.timeout.ms"]))


def _channel_manager(config: BrokerConfig, network: Network, local: Local) -> ControllerChannelManager:
    return ControllerChannelManager(config.broker_id, network, local, int(config["controller.socket.timeout.ms"]))


def _following(config: BrokerConfig, plain: Connect) -> Connect:
    """The connect function of followers. The operating system chooses the size of the receive buffer, unless
    `replica.socket.receive.buffer.bytes` is set.
    """
    size = _set_number(config, "replica.socket.receive.buffer.bytes")
    return plain if size is None or size <= 0 or plain is not connect else partial(connect, receive_buffer_bytes=size)


def _fetch_sessions(config: BrokerConfig, source: random.Random) -> FetchSessions:
    return FetchSessions(int(config["max.incremental.fetch.session.cache.slots"]), lambda: source.randrange(1, 2**31))


def _log_dirs(config: BrokerConfig) -> list[str]:
    """The absolute paths of the data directories, as clients receive them."""
    return [str(path.absolute()) for path in config.log_dirs]


def _set_number(config: BrokerConfig, name: str) -> int | None:
    """The value of a numeric property that is set explicitly, None if it has its default."""
    return int(config[name]) if config.is_set(name) else None


def _new_cluster_id(source: random.Random) -> str:
    return base64.urlsafe_b64encode(source.randbytes(16)).rstrip(b"=").decode()


def run(config: BrokerConfig, *, on_ready: OnReady, metrics: tuple[str, int] | None = None) -> int:
    """Run a broker until one of `stop_signals` arrives; returns the exit status.

    `metrics` is the address of the page for Prometheus.
    Raises ConfigError, KafkaError, OSError when the broker cannot start.
    """
    import uvloop

    raise_open_file_limit()
    RESERVE.fill()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, on_ready, os.path.abspath(config.log_dirs[0]), metrics))


async def _serve(config: BrokerConfig, on_ready: OnReady, data: str, metrics: tuple[str, int] | None) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in stop_signals():
        loop.add_signal_handler(number, stop.set)
    broker = Broker(config)
    broker.on_failure = stop.set
    await broker.start()
    warn_of_low_open_file_limit()  # after the start: a start that fails logs only its reason
    loading = loop.run_in_executor(None, load_libraries)  # while file descriptors are free
    close_metrics = _serve_metrics(broker, metrics)
    # Objects that exist now live as long as the broker, so the garbage collector need not scan them again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    on_ready(broker.broker_id, broker.host, broker.port, data)
    await stop.wait()
    log.info("stopping")
    await loading
    close_metrics()
    await broker.stop()
    log.info("stopped")
    return 0 if broker.failure is None else 1


def _serve_metrics(broker: Broker, address: tuple[str, int] | None) -> Callable[[], None]:
    if address is None:
        return lambda: None
    from odradek.broker.metrics.exposition.page import serve_metrics  # imported late: most starts need no HTTP server

    return serve_metrics(*address, partial(look, broker.sources), asyncio.get_running_loop())
