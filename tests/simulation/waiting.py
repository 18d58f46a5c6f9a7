"""Checks after every event that no request waits for a condition that holds already (VERIFICATION L2).

A request that cannot complete (Kafka: DelayedOperation) registers with the replicas that it waits for, and a replica
wakes it when it moves. A move between the check of the condition and the registration wakes no request: the request
would then wait for its timeout, or for the next move. A waiting fetch must not be able to read a record, an append that
waits for its acknowledgement must not be settled, and a high watermark must not stay below what every replica has.

A replica is checked when its state has changed or a request has registered with it since the last check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from odradek.broker.coordinator.log import DelayedCoordinatorAppend
from odradek.broker.replication.delayed_append import DelayedAppend
from odradek.broker.replication.delayed_fetch import DelayedFetch, DelayedPlainFetch
from odradek.broker.replication.delayed_produce import NOT_YET, DelayedProduce, HeldProduce
from odradek.broker.replication.partition import ACKS_ALL, READ_COMMITTED, Replica
from odradek.broker.replication.state.partition import PartitionMachine, Role
from odradek.broker.runtime.purgatory import DelayedOperation
from odradek.protocol.errors import KafkaError
from tests.simulation.processes import Process

MACHINE_CHANGES = (
    "become_leader",
    "become_follower",
    "go_offline",
    "appended",
    "truncated",
    "replicated",
    "follower_fetched",
    "reconsider",
    "isr_changed",
    "isr_refused",
)


class WaitMonitor:
    """Watches over the waiting requests of all brokers."""

    def __init__(self, processes: list[Process]) -> None:
        self.checks = 0
        """How many waiting requests were compared with the state of a replica that they wait for."""
        self._processes = processes
        self._changed: dict[PartitionMachine, None] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note the replicas that change, and those with which a request registers, while this lasts."""
        changed, real_watch = self._changed, DelayedOperation.watch

        def noting(name: str) -> Any:
            real = getattr(PartitionMachine, name)

            def call(machine: PartitionMachine, *arguments: Any, **options: Any) -> Any:
                changed[machine] = None
                return real(machine, *arguments, **options)

            return mock.patch.object(PartitionMachine, name, call)

        def watch(operation: DelayedOperation[Replica], replicas: Collection[Replica]) -> None:
            changed.update(dict.fromkeys(replica.machine for replica in replicas))
            real_watch(operation, replicas)

        with ExitStack() as patches:
            for name in MACHINE_CHANGES:
                patches.enter_context(noting(name))
            patches.enter_context(mock.patch.object(DelayedOperation, "watch", watch))
            yield

    def look(self) -> str | None:
        """After an event: a description of the request that waits although it need not; None where there is none."""
        changed = self._changed
        if not changed:
            return None
        for process in self._processes:
            broker = process.broker
            if broker is None:
                continue
            for replica in broker.replicas:
                if replica.machine in changed:
                    found = self._check(replica)
                    if found is not None:
                        return f"broker {process.broker_id}, {replica.topic}-{replica.partition}: {found}"
        changed.clear()
        return None

    def _check(self, replica: Replica) -> str | None:
        machine = replica.machine
        if machine.role is Role.LEADER and len(machine.isr) >= machine.effective_min_isr:
            everywhere = min((machine.local_end, *machine.remote_ends.values()))
            if everywhere > machine.high_watermark:
                return f"every replica ends at {everywhere} at least, the high watermark is {machine.high_watermark}"
        for operation in replica.watchers:
            self.checks += 1
            match operation:
                case DelayedFetch():
                    found = _readable(operation, replica)
                case DelayedProduce():
                    ends = [end_offset for _, end_offset in operation._waiting.get(replica, [])]
                    if isinstance(operation, HeldProduce) and replica in operation._held:
                        ends.append(NOT_YET)
                    found = _settled(replica, ends, operation._acks)
                case DelayedAppend():
                    ends = [end_offset for end_offset, _ in operation._waiting.get(replica, [])]
                    found = _settled(replica, ends, ACKS_ALL)
                case DelayedCoordinatorAppend():
                    found = _settled(replica, [operation._end_offset], operation._acks)
                case _:
                    raise AssertionError(f"no check for {type(operation).__name__}: add it here")
            if found is not None:
                return f"{type(operation).__name__} waits although {found}"
        return None


def _readable(wait: DelayedFetch, replica: Replica) -> str | None:
    """The records that could answer a waiting fetch."""
    if wait._call.closed:
        return None
    is_unread = isinstance(wait, DelayedPlainFetch) and not wait._has_changed
    reading: Any = wait._make_reading() if is_unread else wait._reading  # type: ignore[attr-defined]
    for wanted in reading.context.partitions:
        if wanted.topic != replica.topic or wanted.partition != replica.partition:
            continue
        try:
            reading._reader.find(wanted, ids=reading._ids, leader_only=reading._leader_only)
        except KafkaError as error:
            return f"the partition answers {error.code.name}"
        if reading._follower >= 0:
            end, reader = replica.machine.local_end, f"broker {reading._follower}"
        else:
            end, reader = replica.readable_end(reading._isolation), "a consumer"
            reader += " (read_committed)" if reading._isolation == READ_COMMITTED else ""
        if wanted.fetch_offset < end:
            return f"{reader} asked for offset {wanted.fetch_offset}, and there are records up to {end}"
    return None


def _settled(replica: Replica, ends: list[int], acks: int) -> str | None:
    """The outcome that a waiting append has already."""
    for end_offset in ends:
        outcome = replica.settled(end_offset, acks)
        if outcome is not None:
            return f"the outcome of the append up to {end_offset} is {outcome.name}"
    return None
