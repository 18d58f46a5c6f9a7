"""Coordinator runtime: loads, serves and unloads the partitions of a coordinator (Kafka: CoordinatorRuntime).

A coordinator stores the state of its keys (groups, transactional ids) in the partitions of an internal topic, and the
broker that leads a partition coordinates the keys of this partition. The runtime replays the records of a partition in
turns, so that a long log does not block the event loop; then it hosts a state machine for each key, and an event
processor performs their effects.

| state of a partition | requests receive             |
|----------------------|------------------------------|
| not led              | NOT_COORDINATOR              |
| LOADING              | COORDINATOR_LOAD_IN_PROGRESS |
| ACTIVE               | the answer of the key        |
| FAILED               | COORDINATOR_NOT_AVAILABLE    |

"Not led" begins when the log rejects an append because another broker leads the partition, or when this broker receives
the request that makes it a follower. A partition fails when it cannot be read to its end: a part of its state would be
missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from odradek.broker.coordinator.event_processor import (
    CoordinatorEventProcessor,
    CoordinatorShard,
    Effects,
    LedPartition,
    Machine,
    PartitionWriter,
    TransactionalWriter,
)
from odradek.broker.runtime.state.effects import Now
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol.batch import Header, Record
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

log = logging.getLogger(__name__)

RECORDS_AT_A_TIME: Final = 1000
"""How many records a load reads before it returns to the event loop: about ten milliseconds."""


class CoordinatorLog(PartitionWriter, Protocol):
    """The partitions of the internal topic that this broker leads (`coordinator.log.InternalTopic`)."""

    def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
        """Every record of a partition in order, each with the header of its batch."""
        ...

    def when_replicated(self, partition: int, done: Callable[[], None]) -> None:
        """Call `done` once the present log is on the in-sync replicas."""
        ...


class CoordinatorState(Enum):
    """The state of a partition that this broker leads (Kafka: CoordinatorRuntime.CoordinatorState)."""

    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE = ErrorCode.NONE
    FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE


Shard = TypeVar("Shard", bound=CoordinatorShard[Any])


class CoordinatorContext(LedPartition[Machine]):
    """A partition that this broker leads, with the progress of its load (Kafka: CoordinatorContext)."""

    __slots__ = ("records", "state", "timer")

    def __init__(
        self, partition: int, epoch: int, shard: CoordinatorShard[Machine], records: Iterator[tuple[Header, Record]]
    ) -> None:
        super().__init__(partition, epoch, shard)
        self.state = CoordinatorState.LOADING
        self.records = records
        self.timer: Timer | None = None
        """The next turn of the load."""


class CoordinatorRuntime(Generic[Machine, Shard]):
    """The partitions of one internal topic that this broker leads, and the state machines of their keys."""

    def __init__(
        self,
        topic: str,
        shards: Callable[[int], Shard],
        coordinator_log: CoordinatorLog,
        clock: Clock,
        timers: Timers,
        *,
        transactional_writer: TransactionalWriter | None = None,
        awaits_replication: bool = False,
    ) -> None:
        """`shards` creates the shard of a partition.

        With `awaits_replication`, the state machines receive `loaded` only when the in-sync replicas have every record
        that the load has read; the partition serves requests before that.
        """
        self._topic = topic
        self._shards = shards
        self._log = coordinator_log
        self._clock = clock
        self._set_timer = timers.at
        self._awaits_replication = awaits_replication
        self._contexts: dict[int, CoordinatorContext[Machine]] = {}
        self._processor = CoordinatorEventProcessor[Machine](coordinator_log, transactional_writer, clock, timers)

    # --- partitions ---

    def load(self, partition: int, epoch: int) -> None:
        """Load a partition that this broker leads in this epoch, and serve its keys."""
        context = self._contexts.get(partition)
        if context is not None and not context.is_led:
            self.unload(partition)
        elif context is not None and context.state is not CoordinatorState.FAILED:
            # A new epoch of the same leader: no other broker has written in between.
            context.epoch = epoch
            return
        context = CoordinatorContext[Machine](partition, epoch, self._shards(partition), self._log.read_all(partition))
        self._contexts[partition] = context
        self._load_more(context)

    def unload(self, partition: int) -> None:
        """Unload a partition that this broker no longer leads."""
        context = self._contexts.pop(partition, None)
        if context is None:
            return
        if context.timer is not None:
            context.timer.cancel()
        for machine in list(context.shard.machines.values()):
            self._processor.unload(machine)
        context.shard.on_unloaded()

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR and cancel all timers."""
        for partition in list(self._contexts):
            self.unload(partition)

    def check(self, partition: int) -> ErrorCode:
        """Whether this broker serves a partition; NONE if it does."""
        context = self._contexts.get(partition)
        return context.state.value if context is not None and context.is_led else ErrorCode.NOT_COORDINATOR

    @property
    def is_loading(self) -> bool:
        """Whether a partition is loading."""
        return any(context.state is CoordinatorState.LOADING for context in self._contexts.values())

    def shard(self, partition: int) -> Shard | None:
        """The shard of a partition that is loading or active."""
        context = self._contexts.get(partition)
        if context is None or not context.is_led or context.state is CoordinatorState.FAILED:
            return None
        shard: Any = context.shard
        return shard  # type: ignore[no-any-return]

    def _load_more(self, context: CoordinatorContext[Machine]) -> None:
        context.timer = None
        try:
            for _ in range(RECORDS_AT_A_TIME):
                found = next(context.records, None)
                if found is None:
                    self._loaded(context)
                    return
                self._replay(context, *found)
        except (KafkaError, ProtocolError, OSError):
            log.exception("cannot load coordinator topic=%s partition=%d", self._topic, context.partition)
            context.state = CoordinatorState.FAILED
            return
        context.timer = self._set_timer(self._clock.monotonic_ms(), partial(self._load_more, context))

    def _replay(self, context: CoordinatorContext[Machine], header: Header, record: Record) -> None:
        try:
            context.shard.replay(header, record)
        except ProtocolError as error:
            log.warning(
                "skipping invalid record topic=%s partition=%d offset=%d error=%s",
                self._topic,
                context.partition,
                record.offset,
                error,
            )

    def _loaded(self, context: CoordinatorContext[Machine]) -> None:
        context.shard.on_loaded(self.now())
        context.state = CoordinatorState.ACTIVE
        found = list(context.shard.machines.items())
        for key, machine in found:
            self._processor.host(context, key, machine)
        resume = partial(self._resume, context, found)
        if self._awaits_replication:
            self._log.when_replicated(context.partition, resume)
        else:
            resume()

    def _resume(self, context: CoordinatorContext[Machine], found: list[tuple[str, Machine]]) -> None:
        now = self.now()
        for key, machine in found:
            if self._contexts.get(context.partition) is context and context.shard.machines.get(key) is machine:
                self.perform(machine, machine.loaded(now))

    # --- state machines ---

    def find(self, partition: int, key: str) -> Machine | None:
        """The state machine of a key, whose partition has to be active."""
        return self._contexts[partition].shard.machines.get(key)

    def put(self, partition: int, key: str, machine: Machine) -> None:
        """Add the state machine of a new key to an active partition."""
        context = self._contexts[partition]
        context.shard.machines[key] = machine
        self._processor.host(context, key, machine)

    def machines(self) -> Iterator[Machine]:
        """Every state machine, without those that are removed while the caller iterates."""
        return self._processor.machines()

    def now(self) -> Now:
        """The time of an event."""
        return self._processor.now()

    def perform(self, machine: Machine, effects: Effects) -> None:
        """Perform the effects of an event in order."""
        self._processor.perform(machine, effects)

    def release(self, machine: Machine) -> None:
        """Remove a state machine of which nothing is left."""
        self._processor.release(machine)
