"""The simulation with compaction on: everything is small, so that every seed compacts hundreds of times.

Topics are compacted, segments a kilobyte, keys few; values, tombstones and transactions are written by clients that
live long, so that a producer's last batch is often compacted away under it. The cleaner's map holds a handful of keys,
so a pass ends in mid-segment and a log takes several passes. Brokers stay away for longer than delete.retention.ms, and
die while they write compacted segments or swap them in, with or without a loss of power.

A pass takes three steps here in place of one: the cleaner starts it, the worker carries it out, and the cleaner
receives its result. Other events come in between, as they do beside a worker process.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final
from unittest import mock

from odradek.broker.replication.log_cleaner import CleanDone, CleanersHere
from odradek.protocol import messages as m
from odradek.protocol.batch import Record, read_header
from odradek.protocol.errors import KafkaError
from odradek.protocol.offset_map import ENTRY_BYTES
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.compaction import Cleaned, CleanRequest, clean
from odradek.storage.folder_changes import FolderChange
from odradek.storage.log import Log
from tests.simulation.classic_groups import ClassicMember
from tests.simulation.clients import BACKOFF_S, Client, LostError
from tests.simulation.committed import VALUE, Transaction, records_of, value_of
from tests.simulation.compaction_monitor import CompactionMonitor
from tests.simulation.disk_faults import DISK_FAULTS
from tests.simulation.groups import GroupMember
from tests.simulation.monitor import ViolationError
from tests.simulation.processes import EPOCH_MS, Process, SimulatedWorker
from tests.simulation.transactions import IdempotentProducer, TransactionalProducer
from tests.simulation.verdict import Verdict, batches
from tests.simulation.world import REST_S, Simulation
from tests.storage.disks import MemoryDisk

SKEW_MS: Final = 20
"""How far clocks are off: a delete horizon is a time of day, so delete.retention.ms holds only up to this error."""
CLEANED_S: Final = 20.0
INTERNAL: Final = (("__consumer_offsets", 0), ("__transaction_state", 0))
COMPACTED: Final = (
    "swaps",
    "tombstones dropped",
    "markers dropped",
    "maps read",
    "away",
    "dies while it compacts",
    "dies in a swap",
)
"""Events that this many seeds must have drawn."""


class CompactionSimulation(Simulation):
    """One run."""

    monitor: CompactionMonitor

    def __init__(self, seed: int, *, duration_s: float = 8.0, script: Any = None, disks: bool = False) -> None:
        self._draws = random = Random(f"compaction {seed}")
        self.retention_ms = random.choice((0, 0, 300, 1000, 2500))
        self._map_keys = random.choice((3, 5, 5, 12, 1000))
        self._keys = [f"key-{number}".encode() for number in range(random.choice((2, 5, 12, 30)))]
        self._tombstones = random.choice((0.1, 0.3, 0.6))
        self._deaths = random.choice((0.0, 0.1, 0.3))
        self._returns_s: dict[int, float] = {}
        super().__init__(seed, duration_s=duration_s, script=script, transactions=True, disks=disks)
        if self.disks is not None:
            # C1 checks every byte, including those that no broker has read since a fault flipped them.
            self.disks.kinds = [kind for kind in DISK_FAULTS if kind != "bit flip"]
        self._watch(CompactionMonitor(self.processes, self.ensemble, self.partitions))
        self.readers: list[MapReader] = []
        for process in self.processes:
            process.skew_ms = SKEW_MS

    def _watch(self, monitor: CompactionMonitor) -> None:
        self.monitor = monitor
        monitor.retention_s = (self.retention_ms - 2 * SKEW_MS) / 1000
        monitor.now_s = self.loop.time

    def _properties(self) -> dict[str, str]:
        random = self._draws
        small = {
            "offsets.topic.segment.bytes": "700",
            "transaction.state.log.segment.bytes": "700",
        }
        return {
            **super()._properties(),
            "log.cleaner.enable": "true",
            "log.cleaner.backoff.ms": str(random.choice((100, 300, 1000))),
            "log.cleanup.policy": "compact",
            "log.segment.bytes": str(random.choice((500, 1000, 3000))),
            "log.cleaner.min.cleanable.ratio": random.choice(("0", "0", "0.3")),
            "log.cleaner.delete.retention.ms": str(self.retention_ms),
            "log.cleaner.min.compaction.lag.ms": str(random.choice((0, 0, 0, 500))),
            "log.cleaner.max.compaction.lag.ms": str(random.choice((2**63 - 1, 1000))),
            "log.segment.delete.delay.ms": str(random.choice((0, 1000))),
            **(small if random.random() < 0.5 else {}),
        }

    # ---- clients

    def _start_clients(self) -> list[Any]:
        random, history = self._draws, self.transactions
        assert history is not None
        bootstrap = [(process.name, 9092) for process in self.processes]
        clients: list[Any] = []

        def make(kind: Any, name: str) -> Any:
            client = kind(self.network, Random(random.getrandbits(64)), self.history, bootstrap, name)
            clients.append(client)
            return client

        for number in range(random.randint(1, 2)):
            producer = make(KeyedTransactional, f"transactional-{number}")
            producer.write_to(self._keys, self._tombstones)
            producer.begin(history, newest=random.random() < 0.5)
            self._spawn(producer.run(self.partitions, self._spawn_more))
        for number in range(random.randint(1, 3)):
            once = make(KeyedIdempotent, f"idempotent-{number}")
            once.write_to(self._keys, self._tombstones)
            self._spawn(once.run(self.partitions, random.choice((0.1, 0.3))))
        for partition in self.partitions:
            for number in range(2):
                reader = make(MapReader, f"reader-{partition[1]}-{number}")
                self.readers.append(reader)
                self._spawn(reader.run(partition, self.monitor, random.choice((0.0, 0.02, 0.1))))
        for number in range(random.choice((0, 0, 2))):
            self._spawn(make(GroupMember, f"member-{number}").run(self.groups))
        for number in range(random.choice((0, 0, 2))):
            self._spawn(make(ClassicMember, f"classic-{number}").run(self.classics))
        return clients

    # ---- faults

    def run(self) -> Any:
        with self._in_steps():
            result = super().run()
        monitor = self.monitor
        result.faults["swaps"] += monitor.swaps
        result.faults["tombstones dropped"] += monitor.tombstones
        result.faults["markers dropped"] += monitor.markers
        result.faults["maps read"] += sum(reader.maps for reader in self.readers)
        return result

    @contextmanager
    def _in_steps(self) -> Iterator[None]:
        simulation = self

        def clean_in_steps(cleaners: CleanersHere, request: CleanRequest, done: CleanDone) -> None:
            process = next(each for each in simulation.processes if each.disk is cleaners._disk)
            simulation._begin_pass(process, request, done)

        real_start, real_run = Log.start_swap, SimulatedWorker.run
        swaps: dict[Any, tuple[Process, int]] = {}

        def start_swap(log: Log, cleaned: Cleaned, *, now_ms: int) -> FolderChange | None:
            change = real_start(log, cleaned, now_ms=now_ms)
            if change is not None:
                calls = 4 + sum(8 + 4 * len(group.replaces) for group in cleaned.groups)
                swaps[change] = simulation._process_of(log), calls
            return change

        def run(worker: SimulatedWorker, work: Any, done: Any) -> None:
            process, calls = swaps.pop(getattr(work, "__self__", None), (None, 0))
            if process is None:
                real_run(worker, work, done)
                return

            def swap() -> None:
                work()
                done(None)

            simulation.loop.call_later(
                simulation._draws.random() * 0.01,
                lambda: simulation._dies("dies in a swap", process, swap, calls),
            )

        with (
            mock.patch.object(CleanersHere, "clean", clean_in_steps),
            mock.patch.object(Log, "start_swap", start_swap),
            mock.patch.object(SimulatedWorker, "run", run),
        ):
            yield

    def _process_of(self, log: Log) -> Process:
        return next(
            each
            for each in self.processes
            if each.broker is not None and any(replica.log is log for replica in each.broker.replicas)
        )

    def _begin_pass(self, process: Process, request: CleanRequest, done: CleanDone) -> None:
        disk, random = process.disk, self._draws
        keys = self._map_keys if self._is_breaking else 1000
        request = replace(request, map_bytes=ENTRY_BYTES * keys, load_factor=1.0)
        assert process.broker is not None
        self.monitor.begun(next(each for each in process.broker.replicas if each.log.directory == request.path))
        made: list[Cleaned] = []
        failed: list[Exception] = []

        def work() -> None:
            try:
                made.append(clean(disk, request))
            except (OSError, KafkaError) as error:
                failed.append(error)

        def finish() -> None:
            done(made[0] if made else None, failed[0] if failed else None)

        def carry_out() -> None:
            if not self._dies("dies while it compacts", process, work, 25):
                self.loop.call_later(random.random() * random.choice((0.01, 0.01, 0.3)), finish)

        self.loop.call_later(random.random() * 0.05, carry_out)

    def _dies(self, what: str, process: Process, action: Callable[[], None], calls: int) -> bool:
        """Run an action; returns whether the broker died in the middle of it, at one of so many calls of its disk.

        The action runs to its end, but the disk keeps nothing from that call on.
        """
        random = self._draws
        power = random.random() < 0.6
        may_die = self._is_breaking and self._recovered() and (self.disks is None or self.disks.sick is None)
        if random.random() >= self._deaths or not may_die or (power and not self._spared(process)):
            action()
            return False
        return self._die_at(random.randrange(calls), what, process, action, power=power)

    def _die_at(self, at: int, what: str, process: Process, action: Callable[[], None], *, power: bool) -> bool:
        """Run an action, and let the broker die before that call of its disk; False where there are fewer calls."""
        random, disk = self._draws, process.disk
        left: list[Any] = []
        seen = 0

        def before() -> None:
            nonlocal seen
            if seen == at:
                left.append(disk.fork())
            seen += 1

        forget = self.monitor.remember(process.broker_id)
        disk.plan.before = before
        try:
            action()
        finally:
            disk.plan.before = None
        if not left:
            return False
        forget()
        self._note(what, process, "with its power" if power else "")
        self._fall(process, left[0], power=power)
        if power:
            self.lost_power = process.broker_id
        elsewhere = contextvars.Context()
        self.loop.call_later(
            random.random() * 0.1, lambda: None if process.running else process.start(), context=elsewhere
        )
        return True

    def _fall(self, process: Process, disk: MemoryDisk, *, power: bool) -> None:
        process.disk = disk
        process.kill(power=power)

    def _spared(self, victim: Process) -> bool:
        """Power is lost often here, so the coordinators' records must be on other brokers as well."""
        for partition in INTERNAL:
            state = self.monitor._state(partition)
            if state is None:
                continue
            if any(self.monitor._is_new(each, state) for each in state.isr) or set(state.isr) <= {victim.broker_id}:
                return False
        return super()._spared(victim)

    def _recovered(self) -> bool:
        lost = self.lost_power
        for partition in INTERNAL if lost is not None else ():
            state = self.monitor._state(partition)
            if state is not None and lost in state.isr and self.monitor._is_new(lost, state):
                return False
        return super()._recovered()

    @property
    def _is_breaking(self) -> bool:
        return self.network.on

    def _may_start(self, process: Process) -> bool:
        return self.loop.time() >= self._returns_s.get(process.broker_id, 0.0)

    def _fault(self, kind: str, victim: Process | None = None) -> None:
        super()._fault(kind, victim)
        random = self._draws
        process = random.choice(self.processes)
        away = any(not each.running for each in self.processes)
        if random.random() < 0.15 and process.running and not away and self._recovered():
            self._note("away", process)
            process.kill()
            self._returns_s[process.broker_id] = self.loop.time() + random.choice((1.0, 3.0, 5.0))
        elif random.random() < 0.05 and process.running and self._recovered() and self._spared(process):
            self._note("wipe", process)
            process.kill()
            process.disk, process.left = MemoryDisk(), {}
            self.lost_power = process.broker_id
            process.start()

    # ---- rest

    def _rest(self, clients: list[Any]) -> None:
        self._wait(self._in_sync, REST_S, "every replica is in the ISR")
        for partition in self.partitions:
            end = self.monitor.known[partition].committed.end
            due = self._due(partition)
            self._wait(
                lambda partition=partition, end=end, due=due: self._is_compacted(partition, end, due),
                CLEANED_S,
                f"everybody has compacted {partition} up to {end}, and nothing is left of {sorted(due)}",
            )
        super()._rest(clients)
        for process in self.processes:
            given_up = process.broker.running.cleaner.metrics.uncleanable if process.broker is not None else {}
            # A log on which the disk has failed stays untouched until the broker starts again, as it must.
            if any(given_up.values()) and not process.disk.plan.failed:
                raise ViolationError(f"L1: broker {process.broker_id} no longer compacts {given_up}")

    def _due(self, partition: TopicPartition) -> set[int]:
        """The tombstones that there are, and the markers of transactions of which no data is left on any replica."""
        committed = self.monitor.known[partition].committed
        logs = [replica.log for _, replica in self.monitor._replicas(partition)]
        present = set().union(
            *(
                self.monitor.copies[process.broker_id, partition].present
                for process in self.processes
                if process.running and (process.broker_id, partition) in self.monitor.copies
            )
        )
        tombstones = {each for each, record in committed.records.items() if each in present and record.value is None}
        markers = {
            offset
            for offset, each in committed.markers.items()
            if present.isdisjoint(each.offsets) and not any(_is_held(log, each) for log in logs)
        }
        return tombstones | markers

    def _is_compacted(self, partition: TopicPartition, end: int, due: set[int]) -> bool:
        """Whether all replicas have compacted everything below `end`, and have removed everything that was due."""
        return all(
            replica.log.cleaned_to >= end and due.isdisjoint(self.monitor.copies[process.broker_id, partition].present)
            for process, replica in self.monitor._replicas(partition)
        )

    def _check_acknowledged(self) -> None:
        super()._check_acknowledged()
        for partition, values in self.history.acknowledged.items():
            written = self.monitor.known[partition].committed.records
            for offset, value in values.items():
                if offset not in written or value_of(written[offset]) != value:
                    raise ViolationError(f"R2: {value!r} was acknowledged at {offset} of {partition} and is not there")

    def _read_all(self, verdict: Verdict) -> None:
        for partition, known in self.monitor.known.items():
            verdict.read(partition, known.committed.whole())


def _is_held(log: Log, transaction: Transaction) -> bool:
    """Whether an empty batch of a transaction is kept in the log for its sequence; if so, its marker stays."""
    return any(
        header.is_transactional
        and header.producer_id == transaction.producer_id
        and min(transaction.offsets, default=transaction.marker) <= header.last_offset < transaction.marker
        for segment in log.segments
        for _, header in segment.headers()
    )


class Keyed(Client):
    """Writes records with keys, some of them tombstones."""

    _keys: list[bytes]
    _tombstones: float

    def write_to(self, keys: list[bytes], tombstones: float) -> None:
        """`tombstones` is their share of the records."""
        self._keys, self._tombstones = keys, tombstones

    def record(self, number: int, value: bytes) -> Record:
        key = self._keys[int(self.random.random() ** 2 * len(self._keys))]  # some keys are written rarely
        now_ms = EPOCH_MS + round(asyncio.get_running_loop().time() * 1000)
        if self.random.random() < self._tombstones:
            return Record(number, now_ms, key, None, [(VALUE, value)])
        return Record(number, now_ms, key, value)


class KeyedTransactional(Keyed, TransactionalProducer):
    """One transactional id."""


class KeyedIdempotent(Keyed, IdempotentProducer):
    """Continues with its sequences, however many of its records compaction has removed."""


class MapReader(Client):
    """Reads a partition from its start to its end, again and again, and makes a map of the committed records.

    A consumer that finishes within delete.retention.ms, with one leader in one epoch, has the map of the uncompacted
    history; a slower consumer has still read only records that were committed.
    """

    maps = 0

    async def run(self, partition: TopicPartition, monitor: CompactionMonitor, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        while not self.stopped:
            await self.leader(partition)
            began_s, epoch = loop.time(), self.epochs.get(partition, -1)
            found: dict[bytes, bytes] = {}
            end = await self._read(partition, epoch, monitor, found, pause_s)
            if end is None:
                self.forget(partition)
            elif loop.time() - began_s < monitor.retention_s:
                wanted = monitor.known[partition].committed.fold(end)
                if found != wanted:
                    raise ViolationError(
                        f"C1: {self.owner.name} has read {partition} up to {end} in {loop.time() - began_s:.3f} s, has "
                        f"{found}, not {wanted}"
                    )
                self.maps += 1
            await asyncio.sleep(self.random.random() * 0.5)

    async def _read(
        self,
        partition: TopicPartition,
        epoch: int,
        monitor: CompactionMonitor,
        found: dict[bytes, bytes],
        pause_s: float,
    ) -> int | None:
        """The last stable offset up to which the consumer read; None where it could not go on."""
        position = 0
        while not self.stopped:
            wanted = m.FetchRequest.FetchPartition(
                partition=partition[1], fetch_offset=position, partition_max_bytes=1000, current_leader_epoch=epoch
            )
            topic = m.FetchRequest.FetchTopic(topic=partition[0], partitions=[wanted])
            request = m.FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, isolation_level=1, topics=[topic])
            try:
                answer = (await self.ask(partition, request)).responses[0].partitions[0]
            except LostError:
                return None
            if answer.error_code:
                await asyncio.sleep(BACKOFF_S)
                return None
            aborted = [(each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()]
            position = self._take(partition, bytes(answer.records or b""), aborted, position, monitor, found)
            if position >= answer.last_stable_offset:
                return position
            await asyncio.sleep(self.random.random() * pause_s)
        return None

    def _take(
        self,
        partition: TopicPartition,
        data: bytes,
        aborted: list[tuple[int, int]],
        position: int,
        monitor: CompactionMonitor,
        found: dict[bytes, bytes],
    ) -> int:
        """Take in committed records and skip the others, as consumers do; returns the next position."""
        committed = monitor.known[partition].committed
        coming, skipped = sorted(aborted), set()
        for place in batches(data):
            header = read_header(data, place)
            while coming and coming[0][0] <= header.last_offset:
                skipped.add(coming.pop(0)[1])
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                for offset, record in records_of(data[place : place + header.size]).items():
                    if offset < position:
                        continue
                    if record != committed.records.get(offset):
                        raise ViolationError(
                            f"R6: {record} was read at {offset} of {partition}, where no client wrote it"
                        )
                    transaction = committed.transaction_of.get(offset)
                    if transaction is not None and not transaction.commits:
                        raise ViolationError(f"T2: {offset} of {partition} was read, and is not committed")
                    if record.value is None:
                        found.pop(record.key or b"", None)
                    else:
                        found[record.key or b""] = record.value
            position = max(position, header.next_offset)
        return position
