"""Running broker: the parts of one broker, connected with each other.

The constructor builds every part; none of them sends a request yet. `begin` opens the listeners, registers the broker
and takes part in the controller election. The controller (another broker or this one) then sends control requests that
name the partitions that this broker leads and follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from odradek.broker.composition.context import BrokerContext
from odradek.broker.composition.coordinators import Coordination, CoordinatorDependencies
from odradek.broker.composition.delegation_tokens import delegation_token_manager
from odradek.broker.composition.identity import Identity
from odradek.broker.composition.replication import Replication
from odradek.broker.composition.routes import handlers
from odradek.broker.composition.services import Services
from odradek.broker.config.admin_manager import ConfigWriter
from odradek.broker.config.changes import ConfigChanges
from odradek.broker.config.client_store import ClientConfigs
from odradek.broker.controller.auto_topic_creation import TopicCreator, TopicsKnown
from odradek.broker.controller.channel_manager import ControllerChannelManager
from odradek.broker.controller.controlled_shutdown import request_controlled_shutdown
from odradek.broker.controller.controller import Controller
from odradek.broker.controller.topics import TopicMaker
from odradek.broker.metadata.cache import TopicMetadata
from odradek.broker.metadata.features import FeatureLevels
from odradek.broker.metadata.registry_session import StateChangeHandler
from odradek.broker.metrics.broker_metrics import ApiMetrics
from odradek.broker.metrics.loop_stalls import LoopStalls
from odradek.broker.network.dispatcher import Dispatcher
from odradek.broker.network.large_requests import LargeRequests
from odradek.broker.network.reconfiguration import Reconfiguration
from odradek.broker.replication.config_handler import ConfigInForce
from odradek.broker.replication.conversions import Conversions
from odradek.broker.replication.log_dirs import LogDirs
from odradek.broker.replication.state.fetch_session import FetchSessions
from odradek.broker.replication.state.partition import Role
from odradek.broker.runtime.purgatory import DelayedOperationPurgatory
from odradek.broker.runtime.scheduler import ThreadWorker
from odradek.broker.runtime.turns import Run
from odradek.broker.transaction.producer_ids import ProducerIds

if TYPE_CHECKING:
    from odradek.broker.metrics.exposition.snapshot import SnapshotSources

log = logging.getLogger(__name__)

FIRST_CONTROL_REQUESTS_MS: Final = 10_000
CONVERSION_THREADS: Final = 2


class RunningBroker:
    """The parts of one broker."""

    def __init__(
        self,
        context: BrokerContext,
        identity: Identity,
        dispatcher: Dispatcher,
        api_metrics: ApiMetrics,
        end: Callable[[str], None],
    ) -> None:
        """`dispatcher` receives the handlers; `end` is called with the reason when no log directory is left."""
        self._context = context
        self.broker_id = context.config.broker_id
        self.metadata_cache = context.metadata_cache
        self.quotas = context.quotas
        self._channel = context.controller_channel()
        large = dispatcher.large
        producer_ids = ProducerIds(context.registration, self._channel.send_request)
        coordination = _coordination(context, producer_ids, large.run)
        replication = Replication(context, identity, self._channel.send_request, coordination.events, end)
        self.replica_manager, self.cleaner = replication.replica_manager, replication.cleaner
        context.undo.callback(coordination.close)
        coordination.start()
        context.undo.callback(self._channel.close)
        self.controller = _controller(context, replication, large.run)
        changes = _config_changes(context, identity, replication, self.controller)
        known = TopicsKnown(context.metadata_cache, context.clock, context.timers)
        self._tokens = delegation_token_manager(context, self.controller)
        services = Services(
            config=context.config,
            auth=context.security.authorization.helper,
            acls=context.security.authorization.acls,
            tokens=self._tokens,
            clock=context.clock,
            purgatory=DelayedOperationPurgatory(context.timers),
            random=context.environment.random,
            metadata_cache=context.metadata_cache,
            replicas=context.replicas,
            replica_manager=replication.replica_manager,
            controller=self.controller,
            creator=TopicCreator(self._channel.send_request, known, context.clock, context.timers),
            known=known,
            configs=identity.topic_configs,
            config_writer=_config_writer(context, changes),
            client_configs=ClientConfigs(lambda: context.session.registry),
            log_dirs=LogDirs(identity.directories, context.replicas),
            moves=replication.host.moves,
            producer_ids=producer_ids,
            coordination=coordination,
            conversions=_conversions(context),
            request_tasks=context.request_tasks,
            sessions=_fetch_sessions(context),
            features=FeatureLevels(context.request_tasks),
            quotas=context.quotas.clients,
            leader_quota=context.quotas.replication.leader,
            alone=context.environment.open_session is None and not context.config["zookeeper.connect"],
        )
        dispatcher.serve(handlers(services, dispatcher))
        self.stalls = LoopStalls(context.clock.monotonic_ns)
        """Measures from its start on; without the metrics page it is not started."""
        self._sources = partial(_snapshot_sources, services, replication, context, api_metrics, large, self.stalls)
        self._members = _session_members(context, services, changes)

    @cached_property
    def sources(self) -> SnapshotSources:
        """The sources of the metrics page."""
        return self._sources()

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration."""
        return self._context.registration.broker_epoch

    @property
    def host(self) -> str:
        """The host of the first advertised address."""
        return self._context.addresses.endpoints[0].host

    @property
    def port(self) -> int:
        """The port of the first advertised address."""
        return self._context.addresses.endpoints[0].port

    @property
    def held_bytes(self) -> int:
        """Bytes in memory for connections: incomplete requests, and responses that are not sent yet."""
        return self._context.addresses.held_bytes

    async def begin(self) -> None:
        """Accept connections, register the broker, and wait for the first control requests.

        Raises KafkaError, RegistryError.
        """
        context = self._context
        registry = context.session.registry
        acls = context.security.authorization.acls
        if acls is not None:  # no request is answered before its authorization is known
            await acls.session_begun(registry)
        # Tokens are loaded before a client can log in with one.
        await self._tokens.session_begun(registry)
        await context.quotas.handler.replace(registry)
        # A controller on another broker sends its control requests over the network.
        await context.addresses.serve()
        await context.session.begin(self._members)
        await self._await_first_control_requests()

    async def _await_first_control_requests(self) -> None:
        """Wait until the metadata cache contains this broker, and this broker leads every partition that the cache
        assigns to it; without a controller, at most FIRST_CONTROL_REQUESTS_MS.
        """
        first_requests = asyncio.Event()
        metadata_cache, context = self.metadata_cache, self._context

        def check() -> None:
            if self.broker_id in metadata_cache.brokers and all(map(self._leads, metadata_cache)):
                first_requests.set()

        metadata_cache.watch(check)
        timer = context.timers.at(context.clock.monotonic_ms() + FIRST_CONTROL_REQUESTS_MS, first_requests.set)
        check()
        try:
            await first_requests.wait()
        finally:
            timer.cancel()
            metadata_cache.unwatch(check)
        if self.broker_id not in metadata_cache.brokers:
            log.warning("no control request received yet broker=%d", self.broker_id)

    def _leads(self, topic: TopicMetadata) -> bool:
        """Whether this broker leads the partitions of a topic whose leader it is according to the metadata cache."""
        led = [each.index for each in topic.partitions if each.leader == self.broker_id]
        replicas = [self._context.replicas.get(topic.name, index) for index in led]
        return all(each is not None and each.machine.role is Role.LEADER for each in replicas)

    async def controlled_shutdown(self) -> None:
        """Have the controller move leadership to other brokers, if there are any."""
        if len(self.metadata_cache.brokers) > 1:
            await request_controlled_shutdown(self._context.config, self.broker_epoch, self._channel.send_request)


def _coordination(context: BrokerContext, producer_ids: ProducerIds, run_in_turns: Run) -> Coordination:
    return Coordination(
        CoordinatorDependencies(
            context.config,
            context.metadata_cache,
            context.replicas,
            context.network(),
            context.local,
            producer_ids,
            context.environment.random_uuid,
            run_in_turns,
        )
    )


def _session_members(
    context: BrokerContext, services: Services, changes: ConfigChanges
) -> tuple[StateChangeHandler, ...]:
    """The parts that depend on the session of the metadata store, in the order in which they begin."""
    members: tuple[StateChangeHandler, ...] = (
        context.registration,
        services.replica_manager,
        changes.listener,
        services.features.listener,
        services.tokens,
        services.controller,
    )
    return members if services.acls is None else (services.acls, *members)


def _controller(context: BrokerContext, replication: Replication, run_in_turns: Run) -> Controller:
    """The controller, which takes part in the controller election for this broker."""
    config, environment = context.config, context.environment
    channels = ControllerChannelManager(
        config.broker_id,
        context.network(config.control_listener),
        context.local,
        context.controller_timeout_ms,
        run_in_turns,
    )
    maker = TopicMaker(config, environment.random, replication.host.has_log)
    controller = Controller(
        config, context.session, context.metadata_cache, channels, maker, context.clock, context.timers
    )
    context.undo.push_async_callback(controller.close)
    return controller


def _config_changes(
    context: BrokerContext, identity: Identity, replication: Replication, controller: Controller
) -> ConfigChanges:
    """The handlers of dynamic configuration changes."""
    config, request_tasks = context.config, context.request_tasks
    quotas = context.quotas
    received = (
        replication.fetchers.resize,
        replication.cleaner.reconfigure,
        controller.broker_config_changed,
        lambda: quotas.broker_config_changed(config),
    )
    on_broker = Reconfiguration(config, context.addresses, context.registration, request_tasks, received)

    def on_topic(topic: str, properties: Mapping[str, str]) -> None:
        controller.topic_config_changed(topic)
        quotas.replication.topic_config_changed(topic, properties)

    identity.topic_configs.watch(quotas.replication.topic_config_changed)
    in_force = ConfigInForce(config, identity.topic_configs, replication.host, context.replicas, on_topic, on_broker)
    users = context.security.sasl.credentials
    return ConfigChanges(config.broker_id, in_force, request_tasks, context.clock, users, quotas.handler)


def _config_writer(context: BrokerContext, changes: ConfigChanges) -> ConfigWriter:
    """Writes dynamic configurations to the metadata store."""
    session, listeners = context.session, context.addresses
    return ConfigWriter(context.config, context.metadata_cache, lambda: session.registry, changes.written, listeners)


def _conversions(context: BrokerContext) -> Conversions:
    """The conversions of old message formats and other codecs. They have their own threads, so that no fsync waits for
    them.
    """
    worker = context.environment.worker
    if worker is None:
        worker = threads = ThreadWorker(asyncio.get_running_loop(), threads=CONVERSION_THREADS)
        context.undo.push_async_callback(threads.close)
    return Conversions(worker, context.clock)


def _fetch_sessions(context: BrokerContext) -> FetchSessions:
    source = context.environment.random
    slots = int(context.config["max.incremental.fetch.session.cache.slots"])
    return FetchSessions(slots, lambda: source.randrange(1, 2**31))


def _snapshot_sources(
    services: Services,
    replication: Replication,
    context: BrokerContext,
    api_metrics: ApiMetrics,
    large_requests: LargeRequests,
    stalls: LoopStalls,
) -> SnapshotSources:
    # imported late: only a broker with a metrics page needs it
    from odradek.broker.metrics.exposition.snapshot import SnapshotSources

    return SnapshotSources(
        broker_id=context.config.broker_id,
        replicas=context.replicas,
        apis=api_metrics,
        cleaner=lambda: replication.cleaner.metrics,
        controller=services.controller,
        groups=services.coordination.group_coordinator.groups,
        sessions=services.sessions,
        fetchers=replication.fetchers,
        listening=context.addresses,
        offline_directories=services.log_dirs.offline,
        quarantined_bytes=services.log_dirs.quarantined_bytes,
        client_quotas=context.quotas.clients,
        connection_quotas=context.quotas.connections,
        replication_quotas=context.quotas.replication,
        large_requests=large_requests,
        stalls=stalls,
    )
