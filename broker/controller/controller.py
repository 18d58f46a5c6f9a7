"""Controller: campaigns for the controller election, and serves the controller's requests while elected (Kafka:
KafkaController).

Every broker campaigns for /controller (`election.py`). The winner runs an `ActiveController`, one event after the other
in the order of their arrival. A broker that loses the election waits until the node is removed.

A controller resigns when its session expires, when a write shows that the epoch has moved on, and when the metadata
store fails in the middle of an event: which of the event's writes succeeded is then uncertain, so the next controller
reads the whole state again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.controller.active_controller import ActiveController
from odradek.broker.controller.channel_manager import Channels
from odradek.broker.controller.election import ControllerElection, LostElection, WonElection
from odradek.broker.controller.event_manager import ControllerEventManager
from odradek.broker.controller.producer_id_blocks import allocate_block
from odradek.broker.controller.state.controller import ControllerMachine, ControllerSettings
from odradek.broker.controller.topics import (
    NewPartitions,
    NewTopic,
    RecordMutations,
    TopicMaker,
    TopicOutcome,
    unbounded,
)
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Check, Create, Event, NodeExistsError, Registry, RegistryError
from odradek.broker.registry.znodes import ReplicaAssignment
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep, steps_of_caller
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

__all__ = ["Controller", "NewPartitions", "NewTopic", "TopicOutcome"]

log = logging.getLogger(__name__)

RETRY_MS: Final = 100
Outcome = tuple[ErrorCode, str | None]
Election = tuple[ErrorCode, int]
"""The result of an election, and the leader that it elected."""
T = TypeVar("T")


class Controller:
    """Campaigns for the controller election; while elected, makes the controller's decisions."""

    def __init__(
        self,
        config: BrokerConfig,
        session: RegistrySession,
        metadata_cache: MetadataCache,
        channels: Channels,
        maker: TopicMaker,
        clock: Clock,
        timers: Timers,
    ) -> None:
        """The controller does nothing before `session_begun`."""
        self._config = config
        self._session = session
        self._metadata_cache = metadata_cache
        self._channels = channels
        self._clock = clock
        self._timers = timers
        self.maker = maker
        self._events = ControllerEventManager()
        self._election = ControllerElection(config.broker_id, clock)
        self._active_controller: ActiveController | None = None
        self._last_epoch = 0
        self._retry: Timer | None = None
        self._balance: Timer | None = None
        self._closed = False

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._active_controller is not None

    @property
    def active_controller(self) -> ActiveController | None:
        """The current controller epoch's state, if this broker is the controller."""
        return self._active_controller

    # ---- session

    def session_lost(self) -> None:
        """Resign: the controller znode is removed with the session."""
        self._resign("the metadata store session has expired")

    async def session_begun(self, registry: Registry) -> None:
        """Campaign on a new session. Raises RegistryError."""
        self._events.start()
        done = asyncio.get_running_loop().create_future()

        async def campaign() -> None:
            try:
                await self._campaign(registry)
            finally:
                if not done.done():  # after a lost or interrupted election, the campaign continues in the background
                    done.set_result(None)

        self._events.put(campaign)
        await done

    async def close(self) -> None:
        """Run no more events; the controller znode is removed with the session."""
        self._closed = True
        self._resign("the broker stops")
        for timer in (self._retry, self._balance):
            if timer is not None:
                timer.cancel()
        await self._events.close()

    # ---- election

    async def _campaign(self, registry: Registry) -> None:
        """Take the controller znode, or read which broker has it."""
        if self._closed or self._active_controller is not None or registry is not self._session.registry:
            return
        try:
            outcome = await self._election.run(registry, self._controller_znode_changed)
            if isinstance(outcome, LostElection):
                self._metadata_cache.controller_id = outcome.controller_id
                return
            self._retry = None
            await self._on_election(registry, outcome)
        except KafkaError as error:
            # Elected, and resigned before the first event completed.
            log.info(
                "controller resigned during its election broker=%d error=%s", self._config.broker_id, error.message
            )
            self._campaign_later()
        except RegistryError as error:
            if self._retry is None:  # once, not at each retry
                log.warning("controller election interrupted error=%s", error)
            self._campaign_later()

    async def _on_election(self, registry: Registry, won: WonElection) -> None:
        log.info("controller elected broker=%d controller_epoch=%d", self._config.broker_id, won.epoch)
        assert won.epoch > self._last_epoch, f"controller epoch {won.epoch} after epoch {self._last_epoch}"
        self._last_epoch = won.epoch
        settings = ControllerSettings(
            self._config.broker_id,
            self._config.inter_broker_listener,
            bool(self._config["unclean.leader.election.enable"]),
            bool(self._config["delete.topic.enable"]),
            int(self._config["leader.imbalance.per.broker.percentage"]),
        )
        active_controller = ActiveController(
            registry,
            ControllerMachine(settings, won.epoch, won.epoch_version),
            self._config,
            self._events,
            self._channels,
            self.maker.topic_ids,
            self._resign_and_campaign,
        )
        self._active_controller = active_controller
        self._metadata_cache.controller_id = self._config.broker_id
        await active_controller.begin()
        if self._config["auto.leader.rebalance.enable"]:
            self._balance_later()

    def _resign(self, why: str) -> None:
        if self._active_controller is not None:
            log.warning("controller resigned broker=%d reason=%s", self._config.broker_id, why)
            self._active_controller.end()
            self._active_controller = None
            if self._balance is not None:
                self._balance.cancel()

    def _resign_and_campaign(self, why: str) -> None:
        self._resign(why)
        self._campaign_later()

    def _controller_znode_changed(self, event: Event) -> None:
        """Check the controller znode, which has changed or was removed, and campaign."""
        registry = self._session.registry

        async def check() -> None:
            active_controller = self._active_controller
            if active_controller is not None:
                await self._check_controller_znode(active_controller)
            await self._campaign(registry)

        self._events.put(check)

    async def _check_controller_znode(self, active_controller: ActiveController) -> None:
        """Resign if this session no longer owns the controller znode; an operator may have removed the node."""
        try:
            owns = await self._election.is_controller(active_controller.registry, self._controller_znode_changed)
        except RegistryError:
            return  # `session_lost` handles the end of the session
        if not owns:
            self._resign("the controller znode was removed or has another owner")

    def _campaign_later(self) -> None:
        if self._closed:
            return
        if self._retry is not None:
            self._retry.cancel()
        registry = self._session.registry
        deadline_ms = self._clock.monotonic_ms() + RETRY_MS
        self._retry = self._timers.at(deadline_ms, lambda: self._events.put(lambda: self._campaign(registry)))

    def _balance_later(self) -> None:
        active_controller = self._active_controller
        if active_controller is None or self._closed:
            return
        interval_ms = int(self._config["leader.imbalance.check.interval.seconds"]) * 1000

        def balance() -> None:
            active_controller.submit(active_controller.machine.elections.balance)
            self._balance_later()

        self._balance = self._timers.at(self._clock.monotonic_ms() + interval_ms, balance)

    # ---- requests

    async def _do(self, work: Callable[[ActiveController], Coroutine[Any, Any, T]]) -> T:
        """Run this in the controller's event queue.

        Raises KafkaError with NOT_CONTROLLER where this broker is not the controller, or no longer. RegistryError, such
        as ConnectionLossError, becomes NOT_CONTROLLER, too: the client then finds the controller that can write.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        steps: Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, T]] = steps_of_caller()

        async def run() -> None:
            active_controller = self._active_controller
            try:
                if active_controller is None:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
                result = await steps(work(active_controller))
            except RegistryError as error:
                if active_controller is not None:
                    active_controller.resign_if_fenced(error)
                _fail(done, KafkaError(ErrorCode.NOT_CONTROLLER, f"the metadata store failed: {error}"))
            except Exception as error:
                _fail(done, error)
            else:
                if not done.done():
                    done.set_result(result)

        if self._active_controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        self._events.put(run)
        return await done

    async def create_topics(
        self, wanted: list[NewTopic], *, validate_only: bool = False, record: RecordMutations = unbounded
    ) -> list[TopicOutcome]:
        """Create topics; each succeeds or fails by itself. Raises KafkaError with NOT_CONTROLLER.

        `record` is called with the partitions of each topic before the topic is created.
        """

        async def create(active_controller: ActiveController) -> list[TopicOutcome]:
            context = active_controller.machine.context
            outcomes: list[TopicOutcome] = []
            made: list[str] = []
            for topic in items_of(wanted):
                outcome = await self.maker.create(
                    active_controller.registry,
                    context,
                    topic,
                    made=made,
                    validate_only=validate_only,
                    record=record,
                )
                outcomes.append(outcome)
                if outcome.error is ErrorCode.NONE and not validate_only:
                    made.append(outcome.name)
            if not validate_only:
                await active_controller.read_new_topics()
            return outcomes

        return await self._do(create)

    async def delete_topics(self, names: Iterable[str], record: RecordMutations = unbounded) -> dict[str, ErrorCode]:
        """Delete topics; when this returns, the controller is notifying the brokers of the deletion.

        `record` is called with the number of the partitions of each before; its KafkaError is the error of that topic.
        Raises KafkaError with NOT_CONTROLLER.
        """

        async def delete(active_controller: ActiveController) -> dict[str, ErrorCode]:
            context, codes = active_controller.machine.context, dict[str, ErrorCode]()
            check = Check(znodes.CONTROLLER_EPOCH, context.epoch_version)
            for name in items_of(names):
                if name not in context.assignments:
                    codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                try:
                    record(len(context.assignments[name]))
                except KafkaError as refused:
                    codes[name] = refused.code
                    continue
                try:
                    await active_controller.registry.multi([check, Create(znodes.delete_topic_path(name), None)])
                except NodeExistsError:
                    log.info("topic deletion already requested topic=%s", name)
                codes[name] = ErrorCode.NONE
            going = [name for name, code in codes.items() if not code]
            await active_controller.run(active_controller.machine.topic_deletion.begin(going))
            return codes

        return await self._do(delete)

    async def create_partitions(
        self, wanted: list[NewPartitions], *, validate_only: bool, record: RecordMutations = unbounded
    ) -> dict[str, Outcome]:
        """Give topics more partitions; each succeeds or fails by itself. Raises KafkaError with NOT_CONTROLLER.

        `record` is called with the new partitions of each topic before they are created.
        """

        async def grow(active_controller: ActiveController) -> dict[str, Outcome]:
            outcomes: dict[str, Outcome] = {}
            for pending in items_of(wanted):
                try:
                    context = active_controller.machine.context
                    await self.maker.grow(
                        active_controller.registry, context, pending, validate_only=validate_only, record=record
                    )
                except KafkaError as error:
                    outcomes[pending.topic] = (error.code, error.message or None)
                    continue
                if not validate_only:
                    await active_controller.run(active_controller.machine.partitions_changed(pending.topic))
                outcomes[pending.topic] = (ErrorCode.NONE, None)
            return outcomes

        return await self._do(grow)

    async def elect_leaders(
        self, unclean: bool, partitions: list[TopicPartition] | None
    ) -> dict[TopicPartition, Election]:
        """Elect preferred leaders, or any live replicas if `unclean`. Raises KafkaError with NOT_CONTROLLER."""

        async def elect(active_controller: ActiveController) -> dict[TopicPartition, Election]:
            machine = active_controller.machine
            elections = machine.elections
            event = elections.elect_unclean(partitions) if unclean else elections.elect_preferred(partitions)
            codes, states = await active_controller.run(event), machine.context.states
            return keep(
                {each: (code, states[each].state.leader if not code else -1) for each, code in items_of(codes.items())}
            )

        return await self._do(elect)

    async def alter_partition_reassignments(
        self, wanted: dict[TopicPartition, tuple[int, ...] | None], *, allow_factor_change: bool
    ) -> dict[TopicPartition, Outcome]:
        """Reassign partitions; None cancels a reassignment. Raises KafkaError with NOT_CONTROLLER."""

        async def alter(active_controller: ActiveController) -> dict[TopicPartition, Outcome]:
            machine, refused = active_controller.machine, dict[TopicPartition, Outcome]()
            for partition, replicas in items_of(wanted.items()):
                known = machine.context.replicas(partition)
                if not allow_factor_change and replicas and known and len(replicas) != len(known.replicas):
                    refused[partition] = (
                        ErrorCode.INVALID_REPLICATION_FACTOR,
                        f"the partition has {len(known.replicas)} replicas, it would have {len(replicas)}",
                    )
            allowed = keep({each: wanted[each] for each in items_of(wanted) if each not in refused})
            results = keep(await active_controller.run(machine.reassignments.reassign(allowed)))
            outcomes = keep(refused)
            for each, error in items_of(results.items()):
                outcomes[each] = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
            return outcomes

        return await self._do(alter)

    async def list_partition_reassignments(
        self, partitions: list[TopicPartition] | None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """The ongoing reassignments of these partitions, or all. Raises KafkaError with NOT_CONTROLLER."""

        async def read(active_controller: ActiveController) -> dict[TopicPartition, ReplicaAssignment]:
            under_way = active_controller.machine.reassignments.under_way()
            wanted = None if partitions is None else keep(set(items_of(partitions)))
            return {each: under_way[each] for each in under_way if wanted is None or each in wanted}

        return await self._do(read)

    async def alter_partition(self, request: m.AlterPartitionRequest, version: int) -> m.AlterPartitionResponse:
        """Change ISRs as leaders request. Raises KafkaError with NOT_CONTROLLER."""

        async def alter(active_controller: ActiveController) -> m.AlterPartitionResponse:
            event = active_controller.machine.alter_partition.handle(request, by_id=version >= 2)
            return await active_controller.run(event)

        return await self._do(alter)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker; returns the partitions that it still leads.

        Raises KafkaError: NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """

        async def leave(active_controller: ActiveController) -> list[TopicPartition]:
            return await active_controller.run(active_controller.machine.controlled_shutdown(broker_id, broker_epoch))

        return await self._do(leave)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """A block of producer ids that no other broker gets (KIP-730).

        Raises KafkaError: NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
        """

        async def allocate(active_controller: ActiveController) -> range:
            context = active_controller.machine.context
            return await allocate_block(active_controller.registry, context, broker_id, broker_epoch)

        return await self._do(allocate)

    def topic_config_changed(self, topic: str) -> None:
        """Elect leaders anew: a topic's configuration has changed, and may allow unclean elections now."""
        active_controller = self._active_controller
        if active_controller is not None:
            active_controller.submit(lambda: active_controller.machine.elections.topic_config_changed(topic))

    def broker_config_changed(self) -> None:
        """Apply the changed configuration of the broker."""
        active_controller = self._active_controller
        if active_controller is not None:
            allow = bool(self._config["unclean.leader.election.enable"])
            active_controller.submit(lambda: active_controller.machine.elections.unclean_default_changed(allow))


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
