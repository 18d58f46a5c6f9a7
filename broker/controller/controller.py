"""Controller: campaigns for the controller election, and runs the controller's events while elected (Kafka:
KafkaController).

Every broker campaigns for /controller, an ephemeral node that only one of them can create. The same transaction
increments the controller epoch. The winner runs a `ControllerMachine`: it executes the machine's steps on the metadata
store, one event after the other in the order of their arrival, and sends its control requests through the channels of
the brokers. A broker that loses the election waits until the node is removed.

A controller resigns when its session expires, when a write shows that the epoch has moved on, and when the metadata
store fails in the middle of an event: which of the event's writes succeeded is then uncertain, so the next controller
reads the whole state again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.controller.channel_manager import Channels, LiveBroker
from odradek.broker.controller.state.controller import ControllerMachine, ControllerSettings
from odradek.broker.controller.state.steps import Children, ControllerMovedError, Read, Step, Steps, Watch, Write
from odradek.broker.controller.topics import NewPartitions, NewTopic, TopicMaker, TopicOutcome
from odradek.broker.metadata.cache import MetadataCache
from odradek.broker.metadata.registry_session import RegistrySession
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import (
    BadVersionError,
    Check,
    Create,
    Event,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    RegistryError,
    Set,
    Watcher,
)
from odradek.broker.registry.znodes import Replicas
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

__all__ = ["Controller", "NewPartitions", "NewTopic", "TopicOutcome"]

log = logging.getLogger(__name__)

READS_AT_A_TIME: Final = 500
SPARE_TOPIC_IDS: Final = 100
PRODUCER_IDS_IN_BLOCK: Final = 1000
RETRY_MS: Final = 100
Outcome = tuple[ErrorCode, str | None]
Election = tuple[ErrorCode, int]
"""The result of an election, and the leader that it elected."""
T = TypeVar("T")


class ActiveController:
    """One controller epoch: a machine on one session."""

    __slots__ = ("machine", "noticed", "queued", "registry")

    def __init__(
        self, registry: Registry, machine: ControllerMachine, noticed: Callable[[ActiveController, Event], None]
    ) -> None:
        self.registry = registry
        self.machine = machine
        self.noticed: Watcher = lambda event: noticed(self, event)
        self.queued: dict[str, None] = {}
        """Events of watches that wait to run: one run reads the result of several changes."""


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
        self._active_controller: ActiveController | None = None
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
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
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
        done = asyncio.get_running_loop().create_future()

        async def campaign() -> None:
            try:
                await self._campaign(registry)
            finally:
                if not done.done():  # after a lost or interrupted election, the campaign continues in the background
                    done.set_result(None)

        self._queue.put_nowait(campaign)
        await done

    async def close(self) -> None:
        """Run no more events; the controller znode is removed with the session."""
        self._closed = True
        self._resign("the broker stops")
        for timer in (self._retry, self._balance):
            if timer is not None:
                timer.cancel()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            work = await self._queue.get()
            try:
                await work()
            except Exception:
                log.exception("controller event failed")

    # ---- election

    async def _campaign(self, registry: Registry) -> None:
        """Take the controller znode, or read which broker has it."""
        if self._closed or self._active_controller is not None or registry is not self._session.registry:
            return
        try:
            while True:
                try:
                    data, stat = await registry.get(znodes.CONTROLLER, self._controller_znode_changed)
                except NoNodeError:
                    active_controller = await self._elect(
                        registry, Create(znodes.CONTROLLER, self._own_controller_znode(), ephemeral=True)
                    )
                else:
                    if stat.ephemeral_owner != registry.session_id:
                        self._metadata_cache.controller_id = znodes.Controller.decode(data).broker_id
                        return
                    # This session owns the znode from an epoch that failed: a new epoch fences requests of the old one.
                    active_controller = await self._elect(registry, Check(znodes.CONTROLLER, stat.version))
                if active_controller is not None:
                    self._retry = None
                    await registry.exists(znodes.CONTROLLER, self._controller_znode_changed)
                    await self._on_election(active_controller)
                    return
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

    def _own_controller_znode(self) -> bytes:
        return znodes.Controller(self._config.broker_id, self._clock.now_ms()).encode()

    async def _elect(self, registry: Registry, controller_znode: Operation) -> ActiveController | None:
        """Take the controller znode with the next epoch; None when another broker was faster."""
        try:
            data, stat = await registry.get(znodes.CONTROLLER_EPOCH)
        except NoNodeError:
            with contextlib.suppress(NodeExistsError):
                await registry.create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
            data, stat = await registry.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.decode_controller_epoch(data) + 1
        try:
            await registry.multi(
                [controller_znode, Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), stat.version)]
            )
        except (NodeExistsError, BadVersionError, NoNodeError):
            return None
        settings = ControllerSettings(
            self._config.broker_id,
            self._config.inter_broker_listener,
            bool(self._config["unclean.leader.election.enable"]),
            bool(self._config["delete.topic.enable"]),
            int(self._config["leader.imbalance.per.broker.percentage"]),
        )
        return ActiveController(registry, ControllerMachine(settings, epoch, stat.version + 1), self._noticed)

    async def _on_election(self, active_controller: ActiveController) -> None:
        log.info(
            "controller elected broker=%d controller_epoch=%d",
            self._config.broker_id,
            active_controller.machine.context.epoch,
        )
        self._active_controller = active_controller
        self._metadata_cache.controller_id = self._config.broker_id
        self._channels.update({})
        await self._run(active_controller, active_controller.machine.elected(self.maker.topic_ids(SPARE_TOPIC_IDS)))
        if self._config["auto.leader.rebalance.enable"]:
            self._balance_later()

    def _resign(self, why: str) -> None:
        if self._active_controller is not None:
            log.warning("controller resigned broker=%d reason=%s", self._config.broker_id, why)
            self._active_controller = None
            self._channels.update({})
            if self._balance is not None:
                self._balance.cancel()

    def _resign_if_fenced(self, active_controller: ActiveController, error: RegistryError) -> None:
        """Resign if a write failed because another controller has a later epoch (KAFKA-6082)."""
        fenced = isinstance(error, BadVersionError) and error.path == znodes.CONTROLLER_EPOCH
        if fenced and self._active_controller is active_controller:
            self._resign(f"controller epoch {active_controller.machine.context.epoch} is over")
            self._campaign_later()

    def _controller_znode_changed(self, event: Event) -> None:
        """Check the controller znode, which has changed or was removed, and campaign."""
        registry = self._session.registry

        async def look() -> None:
            active_controller = self._active_controller
            if active_controller is not None:
                await self._check_controller_znode(active_controller)
            await self._campaign(registry)

        self._queue.put_nowait(look)

    async def _check_controller_znode(self, active_controller: ActiveController) -> None:
        """Resign if this session no longer owns the controller znode; an operator may have removed the node."""
        try:
            stat = await active_controller.registry.exists(znodes.CONTROLLER, self._controller_znode_changed)
        except RegistryError:
            return  # `session_lost` handles the end of the session
        if stat is None or stat.ephemeral_owner != active_controller.registry.session_id:
            self._resign("the controller znode was removed or has another owner")

    def _campaign_later(self) -> None:
        if self._closed:
            return
        if self._retry is not None:
            self._retry.cancel()
        registry = self._session.registry
        deadline_ms = self._clock.monotonic_ms() + RETRY_MS
        self._retry = self._timers.at(deadline_ms, lambda: self._queue.put_nowait(lambda: self._campaign(registry)))

    # ---- events

    async def _run(self, active_controller: ActiveController, event: Steps[T]) -> T:
        """Run an event to its end and send the control requests that it produced.

        Raises KafkaError with NOT_CONTROLLER when the controller resigns during the event, and what the event raises.
        """
        result: Any = None
        error: BaseException | None = None
        try:
            while True:
                if self._active_controller is not active_controller:
                    event.close()
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
                step = event.throw(error) if error is not None else event.send(result)
                result, error = None, None
                try:
                    result = await self._execute(active_controller, step)
                except RegistryError as failure:
                    error = failure
        except StopIteration as end:
            self._send_control_requests(active_controller)
            value: T = end.value
            return value
        except KafkaError:
            if self._active_controller is active_controller:
                self._send_control_requests(active_controller)
            raise
        except (ControllerMovedError, RegistryError) as failure:
            if self._active_controller is active_controller:
                self._resign(str(failure) or type(failure).__name__)
                self._campaign_later()
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"the controller resigned: {failure}") from failure
        except Exception as failure:
            if self._active_controller is active_controller:
                self._resign(f"an event failed: {failure!r}")
                self._campaign_later()
            raise

    async def _execute(self, active_controller: ActiveController, step: Step) -> Any:
        registry = active_controller.registry
        if isinstance(step, Write):
            results = await registry.multi(step.operations)
            return results[1:]
        if isinstance(step, Children):
            try:
                return (await registry.children(step.path, active_controller.noticed))[0]
            except NoNodeError:
                return []
        if isinstance(step, Watch):
            return await registry.exists(step.path, active_controller.noticed)
        return await self._read(registry, step, active_controller.noticed if step.watch else None)

    @staticmethod
    async def _read(registry: Registry, step: Read, watch: Watcher | None) -> list[Any]:
        async def read(path: str) -> Any:
            try:
                return await registry.get(path, watch)
            except NoNodeError:
                return None

        found: list[Any] = []
        for start in range(0, len(step.paths), READS_AT_A_TIME):
            found.extend(await asyncio.gather(*map(read, step.paths[start : start + READS_AT_A_TIME])))
        return found

    def _send_control_requests(self, active_controller: ActiveController) -> None:
        listener = self._config.control_listener
        live = {}
        for broker_id, broker in active_controller.machine.context.brokers.items():
            endpoint = next((each for each in broker.registration.endpoints if each.listener == listener), None)
            if endpoint is not None:
                live[broker_id] = LiveBroker(endpoint.host, endpoint.port, broker.epoch)
        self._channels.update(live)
        for broker_id, message in active_controller.machine.drain():
            self._channels.send(broker_id, message, partial(self._answered, active_controller, broker_id))

    def _answered(self, active_controller: ActiveController, broker_id: int, response: Any) -> None:
        """Queue the event for a broker's response to a control request."""
        machine = active_controller.machine
        if isinstance(response, m.LeaderAndIsrResponse):
            offline = machine.context.offline_replicas.get(broker_id)
            bad = any(each.error_code == ErrorCode.KAFKA_STORAGE_ERROR for each in _results(response))
            if bad or offline:
                self._submit(active_controller, lambda: machine.leader_and_isr_answered(broker_id, response))
        elif isinstance(response, m.StopReplicaResponse) and machine.context.deleting:
            self._submit(active_controller, lambda: machine.stop_replica_answered(broker_id, response))

    def _submit(
        self,
        active_controller: ActiveController,
        event: Callable[[], Steps[Any]],
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue an event. It runs after the events before it, if this controller epoch is still active."""

        async def run() -> None:
            done()
            if self._active_controller is active_controller:
                try:
                    await self._run(active_controller, event())
                except KafkaError as error:
                    log.info("controller event ended early error=%s", error.message)

        self._queue.put_nowait(run)

    def _noticed(self, active_controller: ActiveController, event: Event) -> None:
        """Queue the event of a watch that fired."""
        path, machine = event.path, active_controller.machine
        events: dict[str, Callable[[], Steps[Any]]] = {
            znodes.TOPICS: lambda: machine.topics_changed(self.maker.topic_ids(SPARE_TOPIC_IDS)),
            znodes.DELETE_TOPICS: machine.deletions_changed,
            znodes.ISR_CHANGES: machine.isr_changed,
            znodes.LOG_DIR_EVENTS: machine.log_dirs_changed,
            znodes.PREFERRED_REPLICA_ELECTION: machine.elections_wished,
            znodes.REASSIGN_PARTITIONS: machine.reassignments_wished,
        }
        what, run = path, events.get(path)
        if run is None and path.startswith(znodes.BROKER_IDS):
            what, run = znodes.BROKER_IDS, machine.brokers_changed
        elif run is None and path.startswith(znodes.TOPICS + "/"):
            topic = path.removeprefix(znodes.TOPICS + "/")
            run = lambda: machine.partitions_changed(topic)  # noqa: E731
        if run is not None and what not in active_controller.queued and self._active_controller is active_controller:
            active_controller.queued[what] = None
            self._submit(active_controller, run, lambda: active_controller.queued.pop(what, None))

    def _balance_later(self) -> None:
        active_controller = self._active_controller
        if active_controller is None or self._closed:
            return
        interval_ms = int(self._config["leader.imbalance.check.interval.seconds"]) * 1000

        def balance() -> None:
            self._submit(active_controller, active_controller.machine.balance)
            self._balance_later()

        self._balance = self._timers.at(self._clock.monotonic_ms() + interval_ms, balance)

    # ---- requests

    async def _do(self, work: Callable[[ActiveController], Coroutine[Any, Any, T]]) -> T:
        """Run this in the controller's event queue.

        Raises KafkaError with NOT_CONTROLLER where this broker is not the controller, or no longer. RegistryError, such
        as ConnectionLossError, becomes NOT_CONTROLLER, too: the client then finds the controller that can write.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            active_controller = self._active_controller
            try:
                if active_controller is None:
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
                result = await work(active_controller)
            except RegistryError as error:
                if active_controller is not None:
                    self._resign_if_fenced(active_controller, error)
                _fail(done, KafkaError(ErrorCode.NOT_CONTROLLER, f"the metadata store failed: {error}"))
            except Exception as error:
                _fail(done, error)
            else:
                if not done.done():
                    done.set_result(result)

        if self._active_controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        self._queue.put_nowait(run)
        return await done

    async def create_topics(self, wanted: list[NewTopic], *, validate_only: bool = False) -> list[TopicOutcome]:
        """Create topics; each succeeds or fails by itself. Raises KafkaError with NOT_CONTROLLER."""

        async def create(active_controller: ActiveController) -> list[TopicOutcome]:
            context = active_controller.machine.context
            outcomes: list[TopicOutcome] = []
            for topic in wanted:
                made = () if validate_only else tuple(each.name for each in outcomes if each.error is ErrorCode.NONE)
                outcomes.append(
                    await self.maker.create(
                        active_controller.registry, context, topic, made=made, validate_only=validate_only
                    )
                )
            if not validate_only:
                spare = self.maker.topic_ids(SPARE_TOPIC_IDS)
                await self._run(active_controller, active_controller.machine.topics_changed(spare))
            return outcomes

        return await self._do(create)

    async def delete_topic(self, name: str) -> ErrorCode:
        """Delete a topic; when this returns, the controller is notifying the brokers of the deletion.

        Raises KafkaError with NOT_CONTROLLER.
        """

        async def delete(active_controller: ActiveController) -> ErrorCode:
            if name not in active_controller.machine.context.assignments:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            check = Check(znodes.CONTROLLER_EPOCH, active_controller.machine.context.epoch_version)
            try:
                await active_controller.registry.multi([check, Create(znodes.delete_topic_path(name), None)])
            except NodeExistsError:
                log.info("topic deletion already requested topic=%s", name)
            await self._run(active_controller, active_controller.machine.deletions_changed())
            return ErrorCode.NONE

        return await self._do(delete)

    async def create_partitions(self, wanted: list[NewPartitions], *, validate_only: bool) -> dict[str, Outcome]:
        """Give topics more partitions; each succeeds or fails by itself. Raises KafkaError with NOT_CONTROLLER."""

        async def grow(active_controller: ActiveController) -> dict[str, Outcome]:
            outcomes: dict[str, Outcome] = {}
            for pending in wanted:
                try:
                    context = active_controller.machine.context
                    await self.maker.grow(active_controller.registry, context, pending, validate_only=validate_only)
                except KafkaError as error:
                    outcomes[pending.topic] = (error.code, error.message)
                    continue
                if not validate_only:
                    await self._run(active_controller, active_controller.machine.partitions_changed(pending.topic))
                outcomes[pending.topic] = (ErrorCode.NONE, None)
            return outcomes

        return await self._do(grow)

    async def elect_leaders(
        self, unclean: bool, partitions: list[TopicPartition] | None
    ) -> dict[TopicPartition, Election]:
        """Elect preferred leaders, or any live replicas if `unclean`. Raises KafkaError with NOT_CONTROLLER."""

        async def elect(active_controller: ActiveController) -> dict[TopicPartition, Election]:
            machine = active_controller.machine
            event = machine.elect_unclean(partitions) if unclean else machine.elect_preferred(partitions)
            codes, states = await self._run(active_controller, event), machine.context.states
            return {each: (code, states[each].state.leader if not code else -1) for each, code in codes.items()}

        return await self._do(elect)

    async def alter_partition_reassignments(
        self, wanted: dict[TopicPartition, tuple[int, ...] | None], *, allow_factor_change: bool
    ) -> dict[TopicPartition, Outcome]:
        """Reassign partitions; None cancels a reassignment. Raises KafkaError with NOT_CONTROLLER."""

        async def alter(active_controller: ActiveController) -> dict[TopicPartition, Outcome]:
            machine, refused = active_controller.machine, dict[TopicPartition, Outcome]()
            for partition, replicas in wanted.items():
                known = machine.context.replicas(partition)
                if not allow_factor_change and replicas and known and len(replicas) != len(known.replicas):
                    refused[partition] = (
                        ErrorCode.INVALID_REPLICATION_FACTOR,
                        f"the partition has {len(known.replicas)} replicas, it would have {len(replicas)}",
                    )
            results = await self._run(
                active_controller, machine.reassign({each: wanted[each] for each in wanted if each not in refused})
            )
            outcomes = {
                each: (ErrorCode.NONE, None) if error is None else (error.code, error.message)
                for each, error in results.items()
            }
            return {**outcomes, **refused}

        return await self._do(alter)

    async def list_partition_reassignments(
        self, partitions: list[TopicPartition] | None
    ) -> dict[TopicPartition, Replicas]:
        """The ongoing reassignments of these partitions, or all. Raises KafkaError with NOT_CONTROLLER."""

        async def look(active_controller: ActiveController) -> dict[TopicPartition, Replicas]:
            under_way = active_controller.machine.reassignments()
            return {each: under_way[each] for each in under_way if partitions is None or each in partitions}

        return await self._do(look)

    async def alter_partition(self, request: m.AlterPartitionRequest, version: int) -> m.AlterPartitionResponse:
        """Change ISRs as leaders request. Raises KafkaError with NOT_CONTROLLER."""

        async def alter(active_controller: ActiveController) -> m.AlterPartitionResponse:
            event = active_controller.machine.alter_partition(request, by_id=version >= 2)
            return await self._run(active_controller, event)

        return await self._do(alter)

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leadership away from a broker; returns the partitions that it still leads.

        Raises KafkaError: NOT_CONTROLLER, BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
        """

        async def leave(active_controller: ActiveController) -> list[TopicPartition]:
            return await self._run(
                active_controller, active_controller.machine.controlled_shutdown(broker_id, broker_epoch)
            )

        return await self._do(leave)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """A block of producer ids that no other broker gets (KIP-730).

        Raises KafkaError: NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
        """

        async def allocate(active_controller: ActiveController) -> range:
            broker = active_controller.machine.context.brokers.get(broker_id)
            if broker is None:
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
            if broker.epoch != broker_epoch:
                raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"the epoch of broker {broker_id} is {broker.epoch}")
            while True:
                data, stat = await active_controller.registry.get(znodes.PRODUCER_ID_BLOCK)
                first = znodes.ProducerIdBlock.decode(data).last + 1 if data else 0
                last = first + PRODUCER_IDS_IN_BLOCK - 1
                block = znodes.ProducerIdBlock(broker_id, first, last).encode()
                check = Check(znodes.CONTROLLER_EPOCH, active_controller.machine.context.epoch_version)
                try:
                    await active_controller.registry.multi([check, Set(znodes.PRODUCER_ID_BLOCK, block, stat.version)])
                except BadVersionError as error:
                    if error.path == znodes.CONTROLLER_EPOCH:
                        raise
                    continue
                return range(first, last + 1)

        return await self._do(allocate)

    def topic_config_changed(self, topic: str) -> None:
        """Elect leaders anew: a topic's configuration has changed, and may allow unclean elections now."""
        active_controller = self._active_controller
        if active_controller is not None:
            self._submit(active_controller, lambda: active_controller.machine.topic_config_changed(topic))

    def broker_config_changed(self) -> None:
        """Apply the changed configuration of the broker."""
        active_controller = self._active_controller
        if active_controller is not None:
            allow = bool(self._config["unclean.leader.election.enable"])
            self._submit(active_controller, lambda: active_controller.machine.unclean_default_changed(allow))


def _results(response: m.LeaderAndIsrResponse) -> list[m.LeaderAndIsrResponse.LeaderAndIsrPartitionError]:
    return [*response.partition_errors, *(each for topic in response.topics for each in topic.partition_errors)]


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
