"""Checks every broker after every event, and raises on the first violation (VERIFICATION R1-R13, Z1).

The monitor keeps a shadow of each log, as batches of (first offset, last offset, epoch, checksum), by wrapping the
calls that change logs. It checks a partition again only when a log, a role, a high watermark or the registry has
changed since the last check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from odradek.broker.registry import znodes
from odradek.broker.registry.interface import ANY_VERSION, Check, Create, NoNodeError, Operation, Set
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import PartitionMachine, Role
from odradek.protocol.batch import Header
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log import Log
from tests.simulation.clients import History
from tests.simulation.disk_faults import check_recovered
from tests.simulation.processes import Process
from tests.simulation.registry import SimulatedEnsemble
from tests.simulation.waiting import WaitMonitor

LOG_CHANGES = ("append", "append_replicated", "truncate_to", "truncate_fully")
MACHINE_CHANGES = (
    "__init__",
    "become_leader",
    "become_follower",
    "go_offline",
    "appended",
    "truncated",
    "replicated",
    "follower_fetched",
    "isr_changed",
    "isr_refused",
)


class ViolationError(AssertionError):
    """A violated invariant."""


class Batch(NamedTuple):
    """A batch in a log."""

    first: int
    last: int
    epoch: int
    checksum: int

    @classmethod
    def of(cls, header: Header) -> Batch:
        return cls(header.base_offset, header.last_offset, header.leader_epoch, header.crc)


class State(NamedTuple):
    """A partition as the registry has it."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    mzxid: int
    version: int


class Monitor:
    """Watches over one simulation."""

    def __init__(self, processes: list[Process], ensemble: SimulatedEnsemble, partitions: list[TopicPartition]) -> None:
        self.processes, self.ensemble, self.partitions = processes, ensemble, partitions
        self.history: History | None = None
        self.true_high_watermark = dict.fromkeys(partitions, 0)
        self.shadows: dict[tuple[int, TopicPartition], list[Batch]] = {}
        self.checks = 0
        self.waits = WaitMonitor(processes)
        self._dirty = self._logs_dirty = self._touched = True
        self._seen: dict[tuple[int, TopicPartition], tuple[Any, ...]] = {}
        self._epochs: dict[tuple[int, int, TopicPartition], int] = {}
        self._states: dict[TopicPartition, State | None] = {}
        self._registry_epochs: dict[TopicPartition, int] = {}
        self._controller_epoch = 0
        self._writers: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self._acknowledged = 0
        self._failed_assertion: str | None = None
        """The first failed assertion of a partition's machine: a handler's exception ends only its connection."""
        self._violation: ViolationError | None = None
        """The first one that was found inside a handler."""
        ensemble.on_write = self._written

    # ---- listening to logs

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Keep a violation for `look`: the handler that caused it may be one whose exceptions a broker logs."""
        try:
            yield
        except ViolationError as error:
            self._violation = self._violation or error
            raise

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record every change of a log while this lasts."""
        monitor = self

        def after(name: str) -> Any:
            real = getattr(Log, name)

            def call(log: Log, *arguments: Any, **options: Any) -> Any:
                before, segment = log.end_offset, log.segments[-1]
                size = segment.size
                try:
                    return real(log, *arguments, **options)
                finally:
                    grew_only = log.end_offset >= before and log.segments[-1] is segment and name.startswith("append")
                    with monitor.remembering():
                        monitor._log_changed(log, before, size if grew_only else None)

            return mock.patch.object(Log, name, call)

        real_produce = Replica.produce

        def produce(replica: Replica, *arguments: Any, **options: Any) -> Any:
            result = real_produce(replica, *arguments, **options)
            with monitor.remembering():
                monitor._produced(replica)
            return result

        def touching(name: str) -> Any:
            real = getattr(PartitionMachine, name)

            def call(machine: PartitionMachine, *arguments: Any, **options: Any) -> Any:
                monitor._touched = True
                return real(machine, *arguments, **options)

            return mock.patch.object(PartitionMachine, name, call)

        real_propose = PartitionMachine._propose

        def proposing(machine: PartitionMachine, isr: frozenset[int]) -> Any:
            monitor._touched = True
            for replica_id in sorted(isr - machine.isr):
                end = machine.remotes[replica_id].end_offset
                if end < machine.epoch_start_offset:
                    with monitor.remembering():
                        raise ViolationError(
                            f"R8: broker {machine.broker_id} requests {replica_id} in the ISR, which has reached {end};"
                            f" epoch {machine.leader_epoch} began at {machine.epoch_start_offset}"
                        )
            return real_propose(machine, isr)

        real_violation = PartitionMachine._violation

        def violation(machine: PartitionMachine, what: str) -> str:
            message = real_violation(machine, what)
            monitor._failed_assertion = monitor._failed_assertion or message
            return message

        with ExitStack() as patches:
            patches.enter_context(mock.patch.object(PartitionMachine, "_violation", violation))
            patches.enter_context(mock.patch.object(PartitionMachine, "_propose", proposing))
            for name in LOG_CHANGES:
                patches.enter_context(after(name))
            for name in MACHINE_CHANGES:
                patches.enter_context(touching(name))
            patches.enter_context(mock.patch.object(Replica, "produce", produce))
            patches.enter_context(self.waits.listening())
            yield

    def _owner_of(self, log: Log) -> int:
        return int(log.directory.split("/")[1].rpartition("-")[2])

    def _log_changed(self, log: Log, end_before: int, size_before: int | None) -> None:
        """A log has changed; where it only grew, `size_before` is the size that its last segment had."""
        partition = (log.topic, log.partition)
        if partition not in self.true_high_watermark:
            return
        broker_id = self._owner_of(log)
        if log.end_offset < end_before:
            self._truncated(broker_id, partition, log)
        shadow = self.shadows.get((broker_id, partition))
        if shadow is None or size_before is None:
            self.shadows[broker_id, partition] = self._whole(broker_id, log)
        else:
            shadow.extend(map(Batch.of, (header for _, header in log.segments[-1].headers(size_before))))
        self._dirty = self._logs_dirty = True

    def _whole(self, broker_id: int, log: Log) -> list[Batch]:
        """The shadow of a log that has to be read from its start."""
        return read_batches(log)

    def _truncated(self, broker_id: int, partition: TopicPartition, log: Log) -> None:
        state = self._state(partition)
        if state is None or broker_id not in state.isr or self._is_new(broker_id, state):
            return
        if log.end_offset < self.true_high_watermark[partition]:
            raise ViolationError(
                f"R10: broker {broker_id}, in the ISR {state.isr}, cut {partition} to {log.end_offset}, below "
                f"{self.true_high_watermark[partition]}, which was committed"
            )

    def _produced(self, replica: Replica) -> None:
        partition = (replica.topic, replica.partition)
        if partition not in self.true_high_watermark:
            return
        broker_id = self._owner_of(replica.log)
        process = self.processes[broker_id]
        key = (partition, replica.machine.leader_epoch)
        writer = self._writers.setdefault(key, (broker_id, process.incarnation))
        if writer != (broker_id, process.incarnation):
            raise ViolationError(f"R9: {key} was written by {writer} and by {(broker_id, process.incarnation)}")

    # ---- listening to the registry

    def _written(self, session_id: int, operations: Sequence[Operation], committed: Any) -> None:
        self._dirty = True
        self._states.clear()
        if committed is None:
            return
        for operation in operations:
            path = operation.path
            is_state = path.startswith(znodes.TOPICS) and path.endswith("/state")
            if not isinstance(operation, (Set, Create)) or not is_state:
                continue
            first = operations[0]
            if not (isinstance(first, Check) and first.path == znodes.CONTROLLER_EPOCH and first.version >= 0):
                raise ViolationError(f"Z1: {path} was written without a check of the controller's epoch")
            if isinstance(operation, Set) and operation.version == ANY_VERSION:
                raise ViolationError(f"Z1: {path} was written without a version")

    def _state(self, partition: TopicPartition) -> State | None:
        if partition not in self._states:
            try:
                data, stat = self.ensemble.tree.get(znodes.partition_state_path(*partition))
            except NoNodeError:
                self._states[partition] = None
            else:
                state = znodes.PartitionState.decode(data)
                self._states[partition] = State(state.leader, state.leader_epoch, state.isr, stat.mzxid, stat.version)
        return self._states[partition]

    def registered_epoch(self, broker_id: int) -> int | None:
        """The transaction that registered a broker, None where it is not registered."""
        stat = self.ensemble.tree.exists(znodes.broker_path(broker_id))
        return None if stat is None else stat.czxid

    def _is_new(self, broker_id: int, state: State) -> bool:
        """Whether this incarnation of a broker is not yet the one in the state: the controller has still to decide
        about the records that it may have lost.
        """
        process = self.processes[broker_id]
        broker = process.broker
        if broker is None or not process.ready:
            return True
        epoch = self.registered_epoch(broker_id)
        return epoch is None or epoch > state.mzxid or epoch != broker.running.broker_epoch

    # ---- looking

    def look(self) -> None:
        """After an event."""
        if self._violation is not None:
            raise self._violation
        if self._failed_assertion is not None:
            raise ViolationError(f"R7: {self._failed_assertion}")
        waits = self.waits.look()
        if waits is not None:
            raise ViolationError(f"L2: {waits}")
        if self._touched:
            self._touched = False
            self._look_at_machines()
        acknowledged = self.history.count if self.history is not None else 0
        if self._dirty or acknowledged != self._acknowledged:
            self._dirty = False
            self._acknowledged = acknowledged
            self.checks += 1
            for partition in self.partitions:
                self._check(partition)
            self._logs_dirty = False

    def _look_at_machines(self) -> None:
        for process in self.processes:
            broker = process.broker
            if broker is None:
                continue
            for partition in self.partitions:
                replica = broker.replicas.get(*partition)
                if replica is None:
                    continue
                machine = replica.machine
                now = (process.incarnation, machine.role, machine.leader_epoch, machine.high_watermark, machine.isr)
                key = (process.broker_id, partition)
                before = self._seen.get(key)
                if before != now:
                    if before is None or before[0] != process.incarnation:
                        before_it = self.shadows.get(key, [])
                        self.shadows[key] = self._whole(process.broker_id, replica.log)  # the log as recovery left it
                        check_recovered(replica.log, process, before_it, self.shadows[key])
                        self._logs_dirty = True
                    self._seen[key] = now
                    self._dirty = True

    def _replicas(self, partition: TopicPartition) -> list[tuple[Process, Replica]]:
        return [
            (process, replica)
            for process in self.processes
            if process.broker is not None and (replica := process.broker.replicas.get(*partition)) is not None
        ]

    def _check(self, partition: TopicPartition) -> None:
        state = self._state(partition)
        if state is None:
            return
        if state.epoch < self._registry_epochs.get(partition, 0):
            raise ViolationError(f"R7: the epoch of {partition} in the registry fell to {state.epoch}")
        self._registry_epochs[partition] = state.epoch
        replicas = self._replicas(partition)
        for process, replica in replicas:
            self._check_machine(process, replica, partition)
        for _, replica in replicas:
            if replica.machine.role is Role.LEADER:
                mark = replica.machine.high_watermark
                self.true_high_watermark[partition] = max(self.true_high_watermark[partition], mark)
        self._check_acknowledged(partition)
        members = {
            process.broker_id: replica
            for process, replica in replicas
            if process.broker_id in state.isr and not self._is_new(process.broker_id, state)
        }
        committed = self.true_high_watermark[partition]
        for broker_id, replica in members.items():
            if replica.log.end_offset < committed and replica.log.failure is None:
                raise ViolationError(
                    f"R3: broker {broker_id} of the ISR {state.isr} has {partition} up to {replica.log.end_offset}, "
                    f"{committed} is committed"
                )
        for process, replica in replicas:
            if replica.machine.role is Role.LEADER:
                self._check_leader(process, replica, partition, state, members)
        if self._logs_dirty:
            self._check_matching(partition, [process.broker_id for process, _ in replicas])

    def _check_machine(self, process: Process, replica: Replica, partition: TopicPartition) -> None:
        machine = replica.machine
        key = (process.broker_id, process.incarnation, partition)
        if machine.leader_epoch < self._epochs.get(key, -1):
            raise ViolationError(f"R7: broker {process.broker_id} fell back to epoch {machine.leader_epoch}")
        self._epochs[key] = machine.leader_epoch
        if not machine.high_watermark <= replica.log.end_offset:
            raise ViolationError(f"R7: the high watermark {machine.high_watermark} is beyond {replica.log.end_offset}")
        for batch in self.shadows.get((process.broker_id, partition), ())[-3:]:
            if batch.first >= replica.log.start_offset and replica.log.epochs.epoch_at(batch.first) != batch.epoch:
                raise ViolationError(
                    f"R11: broker {process.broker_id} takes {batch.first} of {partition} for epoch "
                    f"{replica.log.epochs.epoch_at(batch.first)}, it is of {batch.epoch}"
                )

    def _check_acknowledged(self, partition: TopicPartition) -> None:
        if self.history is None:
            return
        acknowledged = self.history.acknowledged.get(partition)
        if acknowledged and max(acknowledged) >= self.true_high_watermark[partition]:
            raise ViolationError(
                f"R12: {max(acknowledged)} of {partition} was acknowledged, the high watermark is "
                f"{self.true_high_watermark[partition]}"
            )

    def _check_leader(
        self,
        process: Process,
        replica: Replica,
        partition: TopicPartition,
        state: State,
        members: dict[int, Replica],
    ) -> None:
        machine: PartitionMachine = replica.machine
        own = self.shadows.get((process.broker_id, partition), [])
        below = prefix(own, machine.high_watermark)
        for broker_id in members:
            other = self.shadows.get((broker_id, partition), [])
            if other[: len(below)] != below:
                raise ViolationError(
                    f"R1: broker {process.broker_id} leads {partition} with the high watermark "
                    f"{machine.high_watermark}, broker {broker_id} of the ISR {state.isr} has something else below it: "
                    f"{below[-3:]} against {other[-3:]}"
                )
        if machine.leader_epoch != state.epoch or state.leader != process.broker_id:
            return
        if self._is_new(process.broker_id, state):
            return
        if replica.log.end_offset < self.true_high_watermark[partition]:
            raise ViolationError(f"R2: the leader of {partition} ends at {replica.log.end_offset}, more is committed")
        if not machine.maximal_isr >= set(state.isr) and machine.partition_epoch <= state.version:
            raise ViolationError(
                f"R4: the leader of {partition} counts with {sorted(machine.maximal_isr)}, the ISR is {state.isr}"
            )
        if self.history is not None:
            for offset in self.history.acknowledged.get(partition, ()):
                if offset >= replica.log.end_offset:
                    raise ViolationError(f"R2: {offset} of {partition} was acknowledged and is gone")

    def _check_matching(self, partition: TopicPartition, brokers: list[int]) -> None:
        """R5: where two logs have the same offset of the same epoch, they have the same below."""
        logs = [(broker_id, self.shadows.get((broker_id, partition), [])) for broker_id in brokers]
        for index, (one_id, one) in enumerate(logs):
            for other_id, other in logs[index + 1 :]:
                mine, theirs = len(one) - 1, len(other) - 1
                while mine >= 0 and theirs >= 0:
                    a, b = one[mine], other[theirs]
                    if a.first == b.first:
                        if a.epoch == b.epoch:
                            if one[: mine + 1] != other[: theirs + 1]:
                                raise ViolationError(
                                    f"R5: brokers {one_id} and {other_id} have different histories of {partition} up "
                                    f"to offset {a.first} of epoch {a.epoch}"
                                )
                            break
                        mine -= 1
                        theirs -= 1
                    elif a.first > b.first:
                        mine -= 1
                    else:
                        theirs -= 1


def prefix(batches: list[Batch], offset: int) -> list[Batch]:
    """The batches that lie below an offset."""
    count = len(batches)
    while count and batches[count - 1].last >= offset:
        count -= 1
    return batches[:count]


def read_batches(log: Log) -> list[Batch]:
    """The batches of a log."""
    return [Batch.of(header) for segment in log.segments for _, header in segment.headers()]
