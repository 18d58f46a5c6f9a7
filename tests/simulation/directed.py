"""Compaction under a script in place of drawn faults: for sequences that random draws hardly ever produce.

The brokers, their disks and the checks are those of the simulation with compaction; a seed still draws the leader, the
amount of data, latencies, and the writes that survive a loss of power. One topic has one partition, which one client
writes to, and segments end where the script ends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, Final

from odradek.broker.controller.controller import NewTopic
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import Role
from odradek.storage.checkpoints import CLEANER_OFFSETS, decode_offsets
from tests.simulation.clients import BACKOFF_S, Producer
from tests.simulation.compaction import CLEANED_S, CompactionSimulation, Keyed
from tests.simulation.compaction_monitor import CompactionMonitor
from tests.simulation.processes import EPOCH_MS, Process
from tests.simulation.unclean import UncleanMonitor
from tests.simulation.world import REST_S, START_S, TOPIC
from tests.storage.disks import MemoryDisk, at_random

PARTITION: Final = (TOPIC, 0)
ANY_ORDER: Final = 0
"""The first draw of a loss of power (`MemoryDisk.lose_power`)."""
LOST: Final = 15
"""The least number of batches that a leader writes and loses."""


class KeyedProducer(Keyed, Producer):
    """Writes batches of a record or two, without a producer id."""


class Directed(CompactionSimulation):
    """One run of a script, `_break_things`."""

    MONITOR: type[CompactionMonitor] = CompactionMonitor
    REPLICAS = 1
    CONFIGS: ClassVar[dict[str, str]] = {}
    """The topic's configuration."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.script_draws = random = Random(f"directed {seed}")
        self.transactions = None
        self.partitions = [PARTITION]
        self.assigned = tuple(random.sample(range(len(self.processes)), self.REPLICAS))
        self._watch(self.MONITOR(self.processes, self.ensemble, self.partitions))
        self._writer: KeyedProducer

    def _properties(self) -> dict[str, str]:
        return {
            **super()._properties(),
            "log.segment.bytes": str(1 << 20),
            "log.cleaner.backoff.ms": "300",
            "log.cleaner.min.cleanable.ratio": "0",
            "log.cleaner.min.compaction.lag.ms": "0",
            "leader.imbalance.check.interval.seconds": "300",
        }

    def _topic(self) -> NewTopic:
        configs = {"min.insync.replicas": "1", **self.CONFIGS}
        return NewTopic(TOPIC, assignments={0: self.assigned}, configs=configs)

    def _start_clients(self) -> list[Any]:
        bootstrap = [(process.name, 9092) for process in self.processes]
        random = Random(self.script_draws.getrandbits(64))
        self._writer = KeyedProducer(self.network, random, self.history, bootstrap, "writer")
        return [self._writer]

    # ---- steps of scripts

    def _until(self, condition: Callable[[], Any], what: str, within_s: float = START_S) -> None:
        self._wait(condition, within_s, what)

    def _write(self, batches: int) -> None:
        """Write this many acknowledged batches."""
        written = 0

        async def work() -> None:
            nonlocal written
            while written < batches:
                if await self._writer.write(PARTITION):
                    written += 1
                else:
                    await asyncio.sleep(BACKOFF_S)

        self._spawn(work())
        self._until(lambda: written == batches, f"{batches} batches are acknowledged", REST_S)

    def _replica(self, process: Process) -> Replica | None:
        return None if process.broker is None else process.broker.replicas.get(*PARTITION)

    def _roll(self, process: Process) -> None:
        replica = self._replica(process)
        assert replica is not None
        replica.log.roll(EPOCH_MS + round(self.loop.time() * 1000))

    def _isr(self) -> set[int]:
        state = self.monitor._state(PARTITION)
        return set() if state is None else set(state.isr)

    def _leads(self, process: Process) -> bool:
        replica, state = self._replica(process), self.monitor._state(PARTITION)
        is_leader = replica is not None and replica.machine.role is Role.LEADER
        return is_leader and process.ready and state is not None and state.leader == process.broker_id

    def _has_compacted(self, process: Process) -> bool:
        """Whether a broker has compacted everything except the active segment."""
        replica = self._replica(process)
        return replica is not None and replica.log.cleaned_to >= replica.log.active.base_offset

    def _has_checkpointed(self, process: Process) -> bool:
        """Whether what a broker has compacted is in its checkpoint, which a thread writes."""
        replica, path = self._replica(process), f"/{process.name}/{CLEANER_OFFSETS}"
        if replica is None or not process.disk.exists(path):
            return False
        return decode_offsets(process.disk.read(path)).get(PARTITION, 0) >= replica.log.cleaned_to

    # ---- rest

    def _in_sync(self) -> bool:
        return all(process.ready for process in self.processes) and self._isr() == set(self.assigned)

    def _rest(self, clients: list[Any]) -> None:
        self._until(self._in_sync, "every replica is in the ISR", REST_S)
        self._write(1)
        for each in self.assigned:
            self._roll(self.processes[each])
        self._until(self._equal, "all replicas are equal", REST_S)
        for each in self.assigned:
            process = self.processes[each]
            self._until(lambda process=process: self._has_compacted(process), f"{process.name} compacts", CLEANED_S)
        self._check_acknowledged()


class UncleanElection(Directed):
    """A log is truncated below its compacted end (KAFKA-3330), and a longer log takes its place.

    The first replica leads alone, writes, compacts and dies; the second, which has less, is elected and writes more.
    The first comes back, truncates, follows, and compacts again: below the offset that it reports as compacted no key
    may be there twice. Only the records that an unclean election loses are forgiven (`unclean.py`).
    """

    MONITOR = UncleanMonitor
    REPLICAS = 2
    CONFIGS: ClassVar = {"unclean.leader.election.enable": "true"}
    monitor: UncleanMonitor

    def _break_things(self) -> None:
        random = self.script_draws
        first, second = (self.processes[each] for each in self.assigned)
        self._lead_alone(first, second)
        for _ in range(random.randint(1, 3)):
            self._write(random.randint(LOST, 2 * LOST))
            self._roll(first)
            self._until(lambda: self._has_compacted(first) and self._has_checkpointed(first), "the first compacts")
        claimed = self._end(first)
        self._fault_of("kill", first)
        self._fault_of("start", second)
        self._until(lambda: self._leads(second), "the second is elected")
        while self._end(second) < claimed:
            self._write(1)
        self._writer.write_to([b"later"], 0.0)  # what has these keys now has no later value
        self._write(random.randint(1, 4))
        self._fault_of("start", first)
        self._until(self._in_sync, "the first follows", REST_S)
        self._write(random.randint(1, 4))
        if not self.monitor.forgiven or self.monitor.forgiven[0].offset >= claimed:
            raise AssertionError(f"the script lost no record: {self.monitor.forgiven}, {claimed} was compacted")
        for each in self.monitor.forgiven:
            self.note(f"forgiven {each}")

    def _lead_alone(self, first: Process, second: Process) -> None:
        """Have both write a little, and then the second die."""
        self._writer.write_to([b"a", b"b", b"c", b"d"], 0.1)
        self._until(self._in_sync, "both are in sync")
        self._write(self.script_draws.randint(1, 6))
        self._fault_of("kill", second)
        self._until(lambda: self._isr() == {first.broker_id}, "the first leads alone")

    def _end(self, process: Process) -> int:
        replica = self._replica(process)
        assert replica is not None
        return replica.log.end_offset

    def _fault_of(self, kind: str, process: Process) -> None:
        self._note(kind, process)
        if kind == "kill":
            process.kill()
        else:
            process.start()


class TwoUncleanElections(UncleanElection):
    """A follower has an epoch that the leader lacks, and the leader's earlier epoch ends in the middle of it (KIP-279).

    The first replica leads alone, writes, and dies; the second, which has less, is elected, writes, but not as much,
    and dies; the first is elected again, and the second follows. It has to truncate its log to where its own earlier
    epoch ends: the leader's ends later.
    """

    def _break_things(self) -> None:
        random = self.script_draws
        first, second = (self.processes[each] for each in self.assigned)
        self._lead_alone(first, second)
        written = random.randint(LOST, 2 * LOST)
        self._write(written)
        self._fault_of("kill", first)
        self._fault_of("start", second)
        self._until(lambda: self._leads(second), "the second is elected", REST_S)
        self._write(random.randint(1, written // 3))
        self._fault_of("kill", second)
        self._fault_of("start", first)
        self._until(lambda: self._leads(first), "the first is elected", REST_S)
        self._write(random.randint(1, 6))
        self._fault_of("start", second)
        self._until(self._in_sync, "the second follows", REST_S)
        self._write(random.randint(1, 4))
        for each in self.monitor.forgiven:
            self.note(f"forgiven {each}")


class PowerLossInSwap(Directed):
    """Power is lost at one call of the disk after the other while compacted segments take the places of old ones.

    The broker is the only one that has the partition, and every record is synced before it is acknowledged: a record
    that its log lacks after the restart was lost by the swap. There are several groups, each of several old segments,
    so that some of the names may be kept and others lost. Sometimes power is lost while the next pass is under way.
    """

    CONFIGS: ClassVar = {"flush.messages": "1", "file.delete.delay.ms": "0"}
    ROUNDS = 12
    SEGMENTS = (12, 30)
    """The least and the greatest number of batches before each swap."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._where = self.script_draws.random()
        self._armed = self._swapped = self._after_swap = False
        self._map_keys = self.script_draws.choice((3, 7))
        self.crashes = 0

    def _topic(self) -> NewTopic:
        wanted = super()._topic()
        size = self.script_draws.choice((500, 700, 1000))
        return wanted._replace(configs={**wanted.configs, "segment.bytes": str(size)})

    def _properties(self) -> dict[str, str]:
        return {**super()._properties(), "log.cleaner.backoff.ms": "3000", "zookeeper.session.timeout.ms": "600"}

    def _break_things(self) -> None:
        random = self.script_draws
        process = self.processes[self.assigned[0]]
        for _ in range(self.ROUNDS):
            self._writer.write_to([b"key-%d" % each for each in range(random.choice((3, 12, 40)))], 0.1)
            self._until(lambda: self._leads(process), "the only replica leads", REST_S)
            for _ in range(random.randint(*self.SEGMENTS)):
                self._write(1)
                self._roll(process)
            self._armed, self._swapped, self._after_swap = True, False, random.random() < 0.25
            before = process.incarnation
            self._until(
                lambda before=before: process.incarnation > before or self._has_compacted(process),
                "power is lost in a swap",
                REST_S,
            )
            self._armed = False

    @property
    def _is_breaking(self) -> bool:
        return self._after_swap  # a small map, so that a pass follows the other at once

    def _dies(self, what: str, process: Process, action: Callable[[], None], calls: int) -> bool:
        concerned = self._armed and process.broker_id == self.assigned[0]
        swaps = what == "dies in a swap"
        if concerned and swaps and not self._after_swap:
            # Each crash comes one step later in the swap, from its beginning to its end within a run.
            self._where = (self._where + 1 / self.ROUNDS) % 1.0
            return self._struck(int(self._where * calls), what, process, action)
        if concerned and not swaps and self._swapped:
            return self._struck(self.script_draws.randrange(calls), what, process, action)
        self._swapped |= concerned and swaps
        action()
        return False

    def _struck(self, at: int, what: str, process: Process, action: Callable[[], None]) -> bool:
        died = self._die_at(at, what, process, action, power=True)
        self.crashes += died
        self._armed = False
        return died

    def _fall(self, process: Process, disk: MemoryDisk, *, power: bool) -> None:
        """Names are kept in any order: a journal that keeps them in order would hide a missing sync."""
        if power:
            disk.lose_power(at_random(Random(self.script_draws.getrandbits(64)), ANY_ORDER))
        super()._fall(process, disk, power=power)


SCRIPTS: Final[dict[str, type[Directed]]] = {
    "unclean": UncleanElection,
    "two unclean": TwoUncleanElections,
    "swap": PowerLossInSwap,
}
"""The scripts by their names on the command line."""
