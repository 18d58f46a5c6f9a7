"""Composition root: builds, starts and stops one broker (Kafka: KafkaServer).

Start order: metadata store, identity, data directories, listeners, then the broker's registration and the controller
election. Stop is the reverse: controlled shutdown, no new connections, no requests, logs flushed and closed with the
clean shutdown file, the metadata store last.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Callable
from functools import partial

from odradek.broker.composition import registry_access
from odradek.broker.composition.context import BrokerContext
from odradek.broker.composition.environment import Environment
from odradek.broker.composition.identity import Identity, find_identity, report_logs_without_topic
from odradek.broker.composition.quotas import BrokerQuotas, quotas
from odradek.broker.composition.running_broker import RunningBroker
from odradek.broker.composition.security import BrokerSecurity, security
from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.metadata.broker_registration import Registration
from odradek.broker.metadata.cache import BrokerMetadata, MetadataCache
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.metrics.broker_metrics import ApiMetrics
from odradek.broker.network.addresses import Addresses
from odradek.broker.network.dispatcher import Dispatcher
from odradek.broker.replication.partition import Replicas
from odradek.broker.runtime.collector import FullCollections, YoungCollections, collect_young_objects_only
from odradek.broker.runtime.loop_watchdog import LoopWatchdog
from odradek.broker.runtime.open_files import raise_open_file_limit, warn_of_low_open_file_limit
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.stop_signals import stop_signals
from odradek.broker.runtime.timers import LoopTimers
from odradek.protocol.compression import import_under
from odradek.protocol.extensions import missing_extensions
from odradek.storage.descriptors import RESERVE

__all__ = ["Broker", "Environment", "run"]

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0002
"""How long a thread keeps the interpreter from the event loop, which gives it up with each call of the system. By
default it is 5 ms: while a thread converts many small batches, an iteration with 16 such calls took 80 ms."""
OnReady = Callable[[int, str, int, str], None]
"""Called with broker id, host, port and data directory when the broker is ready for requests."""


class Broker:
    """One broker: starts and stops its parts."""

    def __init__(self, config: BrokerConfig, environment: Environment | None = None) -> None:
        """Has no side effects; `start` begins them."""
        self._config = config
        self._environment = environment or Environment()
        self._undo = contextlib.AsyncExitStack()
        self._running: RunningBroker | None = None
        self.replicas = Replicas()
        self.api_metrics = ApiMetrics(self._environment.clock.monotonic_ns)
        self.failure: str | None = None
        """The reason for the shutdown when all log directories have failed; `on_failure` is called then."""
        self.on_failure: Callable[[], None] = lambda: None

    @property
    def running(self) -> RunningBroker:
        """The parts of the broker, once `start` has built them; also after `stop`."""
        assert self._running is not None, "the broker has not been started"
        return self._running

    @property
    def broker_id(self) -> int:
        """The broker id; if none is configured, -1 until `start` has determined one."""
        return self._config.broker_id if self._running is None else self._running.broker_id

    @property
    def host(self) -> str:
        """The host of the first advertised address."""
        return self.running.host

    @property
    def port(self) -> int:
        """The port of the first advertised address."""
        return self.running.port

    async def start(self) -> None:
        """Start the broker. Raises ConfigError, KafkaError, RegistryError, OSError; the parts that were started are
        then stopped.
        """
        async with contextlib.AsyncExitStack() as undo:
            await self._start(undo)
            self._undo = undo.pop_all()

    async def _start(self, undo: contextlib.AsyncExitStack) -> None:
        environment = self._environment
        session = RegistrySession(environment.open_session or registry_access.sessions(self._config, environment, undo))
        undo.push_async_callback(session.close)
        identity = await find_identity(self._config, environment, session)
        # The log manager closes them before this, unless the start fails before there is one.
        undo.callback(lambda: identity.directories.close_unused(environment.clock.now_ms()))
        if environment.open_session is None:
            await report_logs_without_topic(session.registry, identity.directories)
        made = quotas(identity.config, environment.clock)
        dispatcher = Dispatcher([], self.api_metrics, made.clients)
        timers = LoopTimers(environment.clock, asyncio.get_running_loop())
        if environment.worker is None:  # a simulated loop has no thread beside it
            self._watch_loop(undo, identity.config, timers, session)
        request_tasks = RequestTasks()
        undo.push_async_callback(request_tasks.close)
        undo.callback(dispatcher.large.close)  # before the tasks of large requests
        secured = await security(identity.config, environment, timers, session, request_tasks)
        addresses = Addresses(
            identity.config,
            environment.listen,
            environment.clock,
            partial(secured.channel_builder, dispatcher.frame),
            made.connections.throttle_ms,
        )
        undo.callback(addresses.close)
        await addresses.bind()
        context = self._context(undo, session, identity, addresses, dispatcher, timers, request_tasks, secured, made)
        running = RunningBroker(context, identity, dispatcher, self.api_metrics, self._end)
        self._running = running
        undo.callback(addresses.close)  # closed first at the stop: no request is answered from then on
        await running.begin()
        undo.push_async_callback(self._controlled_shutdown, running)

    def _watch_loop(
        self, undo: contextlib.AsyncExitStack, config: BrokerConfig, timers: LoopTimers, session: RegistrySession
    ) -> None:
        if timeout_ms := int(config["odradek.event.loop.stall.timeout.ms"]):
            watchdog = LoopWatchdog(self._environment.clock, timers, timeout_ms, session.abandon)
            undo.callback(watchdog.close)
            watchdog.start()

    def _context(
        self,
        undo: contextlib.AsyncExitStack,
        session: RegistrySession,
        identity: Identity,
        addresses: Addresses,
        dispatcher: Dispatcher,
        timers: LoopTimers,
        request_tasks: RequestTasks,
        secured: BrokerSecurity,
        made: BrokerQuotas,
    ) -> BrokerContext:
        config, environment = identity.config, self._environment
        session_ms = int(config["zookeeper.session.timeout.ms"])
        return BrokerContext(
            config=config,
            environment=environment,
            timers=timers,
            session=session,
            addresses=addresses,
            registration=Registration(
                config.broker_id, addresses.registration(), session_ms, environment.clock, timers
            ),
            metadata_cache=MetadataCache(
                identity.cluster_id, BrokerMetadata(config.broker_id, addresses.endpoints, config["broker.rack"])
            ),
            replicas=self.replicas,
            request_tasks=request_tasks,
            security=secured,
            quotas=made,
            local=dispatcher.local,
            undo=undo,
        )

    def _end(self, reason: str) -> None:
        log.critical("broker failed reason=%s", reason)
        self.failure = reason
        self.on_failure()

    async def stop(self) -> None:
        """Stop the parts in order; every acknowledged write is on disk afterwards."""
        await self._undo.aclose()

    async def _controlled_shutdown(self, running: RunningBroker) -> None:
        if self.failure is None:
            await running.controlled_shutdown()


def run(config: BrokerConfig, *, on_ready: OnReady, metrics: tuple[str, int] | None = None) -> int:
    """Run a broker until one of `stop_signals` arrives; returns the exit status.

    `metrics` is the address of the page for Prometheus.
    Raises ConfigError, KafkaError, OSError when the broker cannot start.
    """
    import uvloop

    gc.freeze()  # the imported modules
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    raise_open_file_limit()
    RESERVE.fill()
    import_under(RESERVE.lent)
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
    _warn_of_missing_extensions()
    close_metrics = _serve_metrics(broker, metrics)
    collect_young_objects_only()
    on_ready(broker.broker_id, broker.host, broker.port, data)
    young_collections = YoungCollections(loop)
    full_collections = FullCollections(loop)  # after the announcement: it counts all objects
    await stop.wait()
    log.info("stopping")
    young_collections.close()
    full_collections.close()
    close_metrics()
    await broker.stop()
    log.info("stopped")
    return 0 if broker.failure is None else 1


def _warn_of_missing_extensions() -> None:
    if missing := missing_extensions():
        modules, works = ",".join(missing), ",".join(missing.values())
        log.warning("C extensions missing, using pure Python modules=%s slow=%s", modules, works)


def _serve_metrics(broker: Broker, address: tuple[str, int] | None) -> Callable[[], None]:
    if address is None:
        return lambda: None
    # imported late: most starts need no HTTP server
    from odradek.broker.metrics.exposition.page import serve_metrics
    from odradek.broker.metrics.exposition.snapshot import take_snapshot

    running = broker.running
    close = serve_metrics(*address, partial(take_snapshot, running.sources), asyncio.get_running_loop())
    running.stalls.start()

    def stop() -> None:
        running.stalls.stop()
        close()

    return stop
