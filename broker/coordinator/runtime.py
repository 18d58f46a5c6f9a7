"""Coordinator runtime: loads, serves and unloads the partitions of a coordinator (Kafka: CoordinatorRuntime).

A coordinator stores the state of its keys (groups, transactional ids) in the partitions of an internal topic, and the
broker that leads a partition coordinates the keys of this partition. The runtime replays the records of a partition,
then it hosts a state machine for each key, and an event processor performs their effects. A load of more than AT_ONCE
records, or of a large one, continues in turns with the event loop, and so does the unload of that many keys or of a
group with that many timers.

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
from itertools import chain
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
from odradek.broker.runtime.timers import Clock, Timers
from odradek.broker.runtime.turns import Run, at_once, keep
from odradek.broker.runtime.turns import each as items_of
from odradek.protocol.batch import Header, Record
from odradek.protocol.errors import ErrorCode, KafkaError, ProtocolError

log = logging.getLogger(__name__)

AT_ONCE: Final = 250
"""Records that a load reads, and timers or keys that an unload ends, before it continues in turns: two milliseconds."""
LARGE_RECORD_BYTES: Final = 32 * 1024
"""A larger record has the members of a large group, and is read in turns."""


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


ACTIVE: Final = CoordinatorState.ACTIVE
NO_ERROR: Final = ErrorCode.NONE
"""Python 3.11 calls a function to find a member of an enumeration, and each request checks its partition."""


Shard = TypeVar("Shard", bound=CoordinatorShard[Any])


class CoordinatorContext(LedPartition[Machine]):
    """A partition that this broker leads, with the progress of its load (Kafka: CoordinatorContext)."""

    __slots__ = ("records", "state")

    def __init__(
        self, partition: int, epoch: int, shard: CoordinatorShard[Machine], records: Iterator[tuple[Header, Record]]
    ) -> None:
        super().__init__(partition, epoch, shard)
        self.state = CoordinatorState.LOADING
        self.records = records
        """The records that the load has not applied yet."""


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
        run_in_turns: Run = at_once,
    ) -> None:
        """`shards` creates the shard of a partition. `run_in_turns` runs a work in turns with the event loop.

        With `awaits_replication`, the state machines receive `loaded` only when the in-sync replicas have every record
        that the load has read; the partition serves requests before that.
        """
        self._topic = topic
        self._shards = shards
        self._log = coordinator_log
        self.run_in_turns = run_in_turns
        self._awaits_replication = awaits_replication
        self._contexts: dict[int, CoordinatorContext[Machine]] = {}
        self._processor = CoordinatorEventProcessor[Machine](
            coordinator_log, transactional_writer, clock, timers, run_in_turns
        )
        self.now = self._processor.now
        """The time of an event; bound here, because each request needs it."""
        self.append_at_once = self._processor.append_at_once
        """Append records that are committed when this returns; returns False where nothing is appended."""

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
        self._load(context)

    def unload(self, partition: int) -> None:
        """Unload a partition that this broker no longer leads."""
        context = self._contexts.pop(partition, None)
        if context is None:
            return
        context.is_led = False
        machines = context.shard.machines.values()
        if sum(map(self._processor.timers_of, machines), len(machines)) > AT_ONCE:
            self.run_in_turns(partial(self._unload, context))
        else:
            self._unload(context)

    def _unload(self, context: CoordinatorContext[Machine]) -> None:
        for machine in items_of(list(context.shard.machines.values())):
            self._processor.unload(machine)
        context.shard.on_unloaded()

    def close(self) -> None:
        """Answer every waiting request with NOT_COORDINATOR and cancel all timers."""
        while self._contexts:
            self._unload(self._contexts.popitem()[1])

    def check(self, partition: int) -> ErrorCode:
        """Whether this broker serves a partition; NONE if it does."""
        context = self._contexts.get(partition)
        if context is None or not context.is_led:
            return ErrorCode.NOT_COORDINATOR
        return NO_ERROR if context.state is ACTIVE else context.state.value

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

    def _load(self, context: CoordinatorContext[Machine]) -> None:
        """Read the first records, and the others in turns."""
        try:
            for _ in range(AT_ONCE):
                found = next(context.records, None)
                if found is None:
                    self._loaded(context)
                    return
                if len(found[1].value or b"") > LARGE_RECORD_BYTES:
                    context.records = chain((found,), context.records)
                    break
                self._replay(context, *found)
        except (KafkaError, ProtocolError, OSError):
            self._failed(context)
            return
        self.run_in_turns(partial(self._load_in_turns, context))

    def _load_in_turns(self, context: CoordinatorContext[Machine]) -> None:
        try:
            for found in items_of(context.records):
                if not self._has(context):
                    return
                self._replay(context, *found)
            if self._has(context):
                self._loaded(context)
        except Exception:
            self._failed(context)

    def _has(self, context: CoordinatorContext[Machine]) -> bool:
        """Whether the partition is not unloaded meanwhile."""
        return self._contexts.get(context.partition) is context

    def _failed(self, context: CoordinatorContext[Machine]) -> None:
        log.exception("cannot load coordinator topic=%s partition=%d", self._topic, context.partition)
        context.state = CoordinatorState.FAILED

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
        found = keep(list(context.shard.machines.items()))
        for key, machine in items_of(found):
            if not self._has(context):
                return
            self._processor.host(context, key, machine)
        context.state = CoordinatorState.ACTIVE
        if not self._awaits_replication:
            self._resume(context, found)
            return
        resume: Callable[[], None] = partial(self._resume, context, found)
        if len(found) > AT_ONCE:
            resume = partial(self.run_in_turns, resume)
        self._log.when_replicated(context.partition, resume)

    def _resume(self, context: CoordinatorContext[Machine], found: list[tuple[str, Machine]]) -> None:
        for key, machine in items_of(found):
            if self._has(context) and context.shard.machines.get(key) is machine:
                self.perform(machine, machine.loaded(self.now()))

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

    def perform(self, machine: Machine, effects: Effects) -> None:
        """Perform the effects of an event in order."""
        self._processor.perform(machine, effects)

    def find_active(self, partition: int, key: str) -> Machine | None:
        """The state machine of a key; None where it does not exist, or where `check` has an error."""
        context = self._contexts.get(partition)
        if context is None or context.state is not ACTIVE or not context.is_led:
            return None
        return context.shard.machines.get(key)

    def has(self, machine: Machine) -> bool:
        """Whether this broker still coordinates the key of a state machine."""
        return self._processor.has(machine)

    def release(self, machine: Machine) -> None:
        """Remove a state machine of which nothing is left."""
        self._processor.release(machine)
