"""Active controller: one controller epoch, in which this broker runs the controller's events (Kafka: KafkaController,
between onControllerFailover and onControllerResignation).

It executes the steps of the machine's events on the metadata store, and sends the control requests that an event
produced through the channels of the brokers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.controller.channel_manager import Channels, ControlEndpoint
from odradek.broker.controller.event_manager import ControllerEventManager
from odradek.broker.controller.state.controller import ControllerMachine
from odradek.broker.controller.state.steps import Children, ControllerMovedError, Pause, Read, Step, Steps, Watch, Write
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import BadVersionError, Event, NoNodeError, Registry, RegistryError, Watcher
from odradek.broker.runtime.turns import each as items_of
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

READS_AT_A_TIME: Final = 500
SPARE_TOPIC_IDS: Final = 100
T = TypeVar("T")


class ActiveController:
    """One controller epoch: a machine on one session."""

    def __init__(
        self,
        registry: Registry,
        machine: ControllerMachine,
        config: BrokerConfig,
        events: ControllerEventManager,
        channels: Channels,
        topic_ids: Callable[[int], list[bytes]],
        on_failure: Callable[[str], None],
    ) -> None:
        """`topic_ids` returns random topic ids; `on_failure` is called with the reason why the epoch has to end."""
        self.registry = registry
        self.machine = machine
        self.is_over = False
        """Whether the controller has resigned."""
        self._config = config
        self._events = events
        self._channels = channels
        self._topic_ids = topic_ids
        self._on_failure = on_failure
        self._queued: dict[str, None] = {}
        """Events of watches that wait to run: one run reads the result of several changes."""

    async def begin(self) -> None:
        """Read the whole state and send it to the brokers. Raises KafkaError with NOT_CONTROLLER."""
        self._channels.update({})
        await self.run(self.machine.elected(self._topic_ids(SPARE_TOPIC_IDS)))

    def end(self) -> None:
        """Run no more events, and send no more control requests."""
        self.is_over = True
        self._channels.update({})

    async def read_new_topics(self) -> None:
        """Run the event for topics that were created. Raises KafkaError with NOT_CONTROLLER."""
        await self.run(self._topics_changed())

    def _topics_changed(self) -> Steps[None]:
        return self.machine.topics_changed(self._topic_ids(SPARE_TOPIC_IDS))

    # ---- events

    async def run(self, event: Steps[T]) -> T:
        """Run an event to its end and send the control requests that it produced.

        Raises KafkaError with NOT_CONTROLLER when the controller resigns during the event, and what the event raises.
        """
        result: Any = None
        error: BaseException | None = None
        try:
            while True:
                if self.is_over:
                    event.close()
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
                step = event.throw(error) if error is not None else event.send(result)
                result, error = None, None
                try:
                    result = await self._execute(step)
                except RegistryError as failure:
                    error = failure
        except StopIteration as end:
            await self._send_control_requests()
            value: T = end.value
            return value
        except KafkaError:
            if not self.is_over:
                await self._send_control_requests()
            raise
        except (ControllerMovedError, RegistryError) as failure:
            self._fail(str(failure) or type(failure).__name__)
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"the controller resigned: {failure}") from failure
        except Exception as failure:
            self._fail(f"an event failed: {failure!r}")
            raise

    def resign_if_fenced(self, error: RegistryError) -> None:
        """Resign if a write failed because another controller has a later epoch (KAFKA-6082)."""
        if isinstance(error, BadVersionError) and error.path == znodes.CONTROLLER_EPOCH:
            self._fail(f"controller epoch {self.machine.context.epoch} is over")

    def _fail(self, why: str) -> None:
        if not self.is_over:
            self._on_failure(why)

    async def _execute(self, step: Step) -> Any:
        registry = self.registry
        if isinstance(step, Pause):
            await asyncio.sleep(0)
            return None
        if isinstance(step, Write):
            results = await registry.multi(step.operations)
            return results[1:]
        if isinstance(step, Children):
            try:
                return (await registry.children(step.path, self._noticed))[0]
            except NoNodeError:
                return []
        if isinstance(step, Watch):
            return await registry.exists(step.path, self._noticed)
        return await self._read(registry, step, self._noticed if step.watch else None)

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

    async def _send_control_requests(self) -> None:
        listener = self._config.control_listener
        live = {}
        for broker_id, broker in self.machine.context.brokers.items():
            endpoint = next((each for each in broker.registration.endpoints if each.listener == listener), None)
            if endpoint is not None:
                live[broker_id] = ControlEndpoint(endpoint.host, endpoint.port, broker.epoch)
        self._channels.update(live)
        for request in self.machine.drain():
            if isinstance(request, Pause):
                await asyncio.sleep(0)
                if self.is_over:
                    return
            else:
                self._channels.send(request.broker_id, request.message, partial(self._answered, request.broker_id))

    def _answered(self, broker_id: int, response: Any) -> None:
        """Queue the event for a broker's response to a control request."""
        machine = self.machine
        if isinstance(response, m.LeaderAndIsrResponse):
            offline = machine.context.offline_replicas.get(broker_id)
            bad = any(each.error_code == ErrorCode.KAFKA_STORAGE_ERROR for each in items_of(_results(response)))
            if bad or offline:
                self.submit(lambda: machine.leader_and_isr_answered(broker_id, response))
        elif isinstance(response, m.StopReplicaResponse) and machine.context.deleting:
            self.submit(lambda: machine.topic_deletion.stop_replica_answered(broker_id, response))

    def submit(
        self,
        event: Callable[[], Steps[Any]],
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Queue an event. It runs after the events before it, if this controller epoch is still active."""

        async def run() -> None:
            done()
            if not self.is_over:
                try:
                    await self.run(event())
                except KafkaError as error:
                    log.info("controller event ended early error=%s", error.message)

        self._events.put(run)

    def _noticed(self, event: Event) -> None:
        """Queue the event of a watch that fired."""
        path, machine = event.path, self.machine
        events: dict[str, Callable[[], Steps[Any]]] = {
            znodes.TOPICS: self._topics_changed,
            znodes.DELETE_TOPICS: machine.topic_deletion.deletions_changed,
            znodes.ISR_CHANGES: machine.notifications.isr_changed,
            znodes.LOG_DIR_EVENTS: machine.notifications.log_dirs_changed,
            znodes.PREFERRED_REPLICA_ELECTION: machine.notifications.preferred_election_requested,
            znodes.REASSIGN_PARTITIONS: machine.notifications.reassignment_requested,
        }
        what, run = path, events.get(path)
        if run is None and path.startswith(znodes.BROKER_IDS):
            what, run = znodes.BROKER_IDS, machine.brokers_changed
        elif run is None and path.startswith(znodes.TOPICS + "/"):
            topic = path.removeprefix(znodes.TOPICS + "/")
            run = lambda: machine.partitions_changed(topic)  # noqa: E731
        if run is not None and what not in self._queued and not self.is_over:
            self._queued[what] = None
            self.submit(run, lambda: self._queued.pop(what, None))


def _results(response: m.LeaderAndIsrResponse) -> Iterator[m.LeaderAndIsrResponse.LeaderAndIsrPartitionError]:
    yield from response.partition_errors
    for topic in response.topics:
        yield from topic.partition_errors
