"""One simulated cluster, made and driven by one seed: brokers, registry, clients, faults, and the monitor over them.

A run has two phases. In the first, faults come and go: links are cut and healed, brokers killed, paused, started again,
deprived of power, sessions lost, leaders moved. In the second everything heals, and the cluster has to come to rest:
every replica in sync and equal, every acknowledged record present, every partition writable (L1). Half of the seeds
have transactional and idempotent clients, too; then every transaction has to end, each with the outcome that its client
received.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from odradek.broker.controller.controller import NewTopic
from odradek.broker.metadata.state.topics import TRANSACTION_STATE
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import Role
from odradek.protocol.batch import read_header
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.classic_groups import ClassicMember
from tests.simulation.clients import Consumer, History, Producer
from tests.simulation.disk_faults import DiskFaults
from tests.simulation.groups import GroupHistory, GroupMember
from tests.simulation.lateness import WRITE_MARKERS, LateNetwork
from tests.simulation.loop import Owner, SimulatedLoop
from tests.simulation.monitor import Monitor, ViolationError
from tests.simulation.processes import Process
from tests.simulation.registry import NAME as REGISTRY
from tests.simulation.registry import SimulatedEnsemble
from tests.simulation.transactions import (
    CommittedReader,
    IdempotentProducer,
    TransactionalProducer,
)
from tests.simulation.verdict import TransactionHistory, Verdict, batches

TOPIC = "t"
START_S = 10.0
REST_S = 60.0
MOVES = ("cut", "move", "expire")
"""The faults that change leaders within the time that a replica may lag."""
OFTEN = 2.5
"""Faults a second."""
FAULTS = ("cut", "cut one-way", "cut registry", "kill", "power", "pause", "expire", "move", "restart", "clog")


class Fault(NamedTuple):
    """An event, and its delay after the event before it."""

    after_ms: int
    kind: str
    broker: int


@dataclass
class Result:
    """The result of a run."""

    seed: int
    violation: str | None = None
    steps: int = 0
    virtual_s: float = 0.0
    checks: int = 0
    acknowledged: int = 0
    unknown: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    """A digest of the registry and of every log at the end."""
    trace: list[str] = field(default_factory=list)
    transactions: Counter[str] = field(default_factory=Counter)
    """Transactions by the outcome that their clients have, and the number of zombies."""


class Simulation:
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        duration_s: float = 6.0,
        script: Sequence[Fault] | None = None,
        transactions: bool | None = None,
        disks: bool = False,
        moves: bool = False,
    ) -> None:
        """All draws come from `seed`, except for the faults where there is a `script`; `transactions` overrides the
        seed's draw of whether there are any; with `disks` disks fail, too; with `moves` all faults are of MOVES, and
        come often.
        """
        self.script = script
        self.groups, self.classics = GroupHistory(), GroupHistory()
        self._more = Random(f"transactions {seed}")
        """Draws of seeds with transactions only, so that all other seeds keep their meaning."""
        drawn = self._more.random() < 0.5
        self.transactions = TransactionHistory() if (drawn if transactions is None else transactions) else None
        if self.transactions is not None:
            self.transactions.coordinator = self._coordinator
            self.transactions.has_old_metadata = self._has_old_metadata
        self.random = random = Random(seed)
        self.result = Result(seed)
        self.loop = SimulatedLoop(  # type: ignore[abstract]
            Random(random.getrandbits(64)), disorder=random.choice((0.0, 0.1, 0.5))
        )
        latency_s = random.choice((0.001, 0.005, 0.02))
        late = Random(f"late {seed}")
        self.network = LateNetwork(self.loop, Random(random.getrandbits(64)), latency_s, late)
        self.network.on_late = self._late
        self.ensemble = SimulatedEnsemble(self.loop, self.network, Random(random.getrandbits(64)))
        self.duration_s = duration_s
        count = random.choice((3, 3, 3, 4))
        self.partitions = [(TOPIC, index) for index in range(random.choice((1, 1, 2)))]
        properties = self._properties()
        # A broker with one disk stops when it fails; with two it continues with half of its logs.
        folders = ("/one", "/two") if disks else ("",)
        self.processes = [
            Process(each, properties, self.network, self.ensemble, Random(random.getrandbits(64)), folders)
            for each in range(count)
        ]
        self.monitor = Monitor(self.processes, self.ensemble, self.partitions)
        self.history = History()
        self.intensity = random.choice((0.3, 0.8, 1.5))
        self.kinds = random.sample(FAULTS, random.randint(2, len(FAULTS)))
        if moves:
            self.kinds, self.intensity = list(MOVES), OFTEN
        self.lost_power: int | None = None
        self.disks = DiskFaults(Random(f"disks {seed}")) if disks else None

    def _properties(self) -> dict[str, str]:
        random = self.random
        return {
            "zookeeper.connect": "simulated:2181",
            "zookeeper.session.timeout.ms": str(random.choice((600, 1500))),
            "min.insync.replicas": "2",
            "default.replication.factor": "3",
            "replica.lag.time.max.ms": str(random.choice((400, 1000, 3000))),
            "replica.fetch.wait.max.ms": str(random.choice((50, 200))),
            "replica.fetch.backoff.ms": str(random.choice((50, 300))),
            "replica.high.watermark.checkpoint.interval.ms": str(random.choice((100, 1000, 5000))),
            "leader.imbalance.check.interval.seconds": str(random.choice((2, 300))),
            "controlled.shutdown.retry.backoff.ms": "200",
            "log.segment.bytes": str(random.choice((700, 1 << 20))),
            "log.flush.scheduler.interval.ms": "1000",
            "log.cleaner.enable": "false",  # see compaction.py
            "replica.fetch.max.bytes": str(random.choice((200, 1 << 20))),
            "offsets.topic.num.partitions": "1",
            "offsets.retention.check.interval.ms": "200",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.num.partitions": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        }

    # ---- running

    def run(self) -> Result:
        """Run both phases; `violation` has the invariant that failed."""
        result = self.result
        try:
            with self.monitor.listening():
                self._run()
        except (ViolationError, AssertionError) as broken:
            result.violation = str(broken) or repr(broken)
        result.steps, result.virtual_s = self.loop.steps, self.loop.time()
        result.checks = self.monitor.checks
        result.digest = self._digest()
        result.acknowledged = sum(map(len, self.history.acknowledged.values()))
        result.unknown = self.history.unknown
        if self.transactions is not None:
            result.transactions.update(each.fate.value for each in self.transactions.transactions.values())
            result.transactions["zombies"] = self.transactions.zombies
            result.transactions["partitions given to members"] = self.groups.taken
            result.transactions["commits of members"] = self.groups.commits
            result.transactions["commits of classic members"] = self.classics.commits
        result.faults["sessions expired"] = self.ensemble.expired
        result.faults["connections lost"] = self.network.lost
        for process in self.processes:
            process.forget()
        return result

    def _run(self) -> None:
        for process in self.processes:
            process.start()
        self._wait(lambda: all(process.ready for process in self.processes), START_S, "the brokers start")
        self._create_topic()
        self.monitor.history = self.history
        self.loop.after_each = self.monitor.look
        clients = self._start_clients()
        self.network.on = self.transactions is not None
        self._break_things()
        self._heal()
        self._rest(clients)

    def _digest(self) -> str:
        whole = hashlib.sha256()
        for path, node in self.ensemble.tree.nodes():
            whole.update(f"{path} {node.data!r} {node.stat()}\n".encode())
        for process in self.processes:
            for path, content in sorted(process.disk.files.items()):
                whole.update(path.encode() + bytes(content.data))
        return whole.hexdigest()[:16]

    def _wait(self, condition: Any, within_s: float, what: str) -> None:
        if not self.loop.run(condition, deadline_s=self.loop.time() + within_s):
            raise ViolationError(f"L1: within {within_s} s not so: {what}; {self._describe()}")

    def _describe(self) -> str:
        parts = []
        for process in self.processes:
            broker = process.broker
            if broker is None:
                parts.append(f"{process.name} down ({process.refused})")
                continue
            controller = " controller" if process.ready and broker.running.controller.is_active else ""
            replica_manager = [
                f"{replica.topic}-{replica.partition} {replica.machine.role.value} e{replica.machine.leader_epoch} "
                f"hw{replica.machine.high_watermark} leo{replica.log.end_offset} isr{sorted(replica.machine.isr)}"
                f" of {replica.machine.leader_id} pending {replica.machine.pending}"
                for replica in broker.replicas
            ]
            parts.append(f"{process.name}{controller} ready={process.ready} {replica_manager}")
        states = [self.monitor._state(partition) for partition in self.partitions]
        return "; ".join([*parts, f"registry {states}"])

    def _create_topic(self) -> None:
        made: list[Any] = []

        async def create() -> None:
            while not made:
                for process in self.processes:
                    broker = process.broker
                    if broker is not None and process.ready and broker.running.controller.is_active:
                        with contextlib.suppress(KafkaError):
                            made.extend(await broker.running.controller.create_topics([self._topic()]))
                await asyncio.sleep(0.05)

        self._spawn(create())
        self._wait(lambda: made and all(map(self._is_led, self.partitions)), START_S, "the topic is made")

    def _topic(self) -> NewTopic:
        return NewTopic(TOPIC, partitions=len(self.partitions), replication_factor=3)

    def _spawn(self, work: Any) -> None:
        asyncio._set_running_loop(self.loop)
        try:
            self.loop.create_task(work)
        finally:
            asyncio._set_running_loop(None)

    def _is_led(self, partition: tuple[str, int]) -> bool:
        return any(
            process.broker is not None
            and (replica := process.broker.replicas.get(*partition)) is not None
            and replica.machine.role is Role.LEADER
            for process in self.processes
        )

    def _start_clients(self) -> list[Any]:
        bootstrap = [(process.name, 9092) for process in self.processes]
        clients: list[Any] = []
        for number in range(self.random.randint(1, 2)):
            producer = Producer(
                self.network, Random(self.random.getrandbits(64)), self.history, bootstrap, f"producer-{number}"
            )
            clients.append(producer)
            self._spawn(producer.run(self.partitions, self.random.choice((0.15, 0.6))))
        for partition in self.partitions:
            consumer = Consumer(
                self.network, Random(self.random.getrandbits(64)), self.history, bootstrap, f"consumer-{partition[1]}"
            )
            clients.append(consumer)
            self._spawn(consumer.run(partition))
        if self.transactions is not None:
            clients += self._start_transactions(self.transactions, bootstrap)
        return clients

    def _start_transactions(self, history: TransactionHistory, bootstrap: list[tuple[str, int]]) -> list[Any]:
        random = self._more
        clients: list[Any] = []
        for number in range(random.randint(1, 2)):
            name = f"transactional-{number}"
            producer = TransactionalProducer(
                self.network, Random(random.getrandbits(64)), self.history, bootstrap, name
            )
            producer.begin(history, newest=random.random() < 0.5, pauses=Random(f"pauses {number} {self.result.seed}"))
            clients.append(producer)
            self._spawn(producer.run(self.partitions, self._spawn_more))
        for number in range(random.randint(0, 1)):
            name = f"idempotent-{number}"
            once = IdempotentProducer(self.network, Random(random.getrandbits(64)), self.history, bootstrap, name)
            clients.append(once)
            self._spawn(once.run(self.partitions, 0.3))
        for partition in self.partitions:
            name = f"committed-{partition[1]}"
            reader = CommittedReader(self.network, Random(random.getrandbits(64)), self.history, bootstrap, name)
            clients.append(reader)
            self._spawn(reader.run(partition, history))
        for number in range(random.choice((0, 1, 2, 3))):
            name = f"member-{number}"
            member = GroupMember(self.network, Random(random.getrandbits(64)), self.history, bootstrap, name)
            clients.append(member)
            self._spawn(member.run(self.groups))
        for number in range(random.choice((0, 2, 3))):
            name = f"classic-{number}"
            classic = ClassicMember(self.network, Random(random.getrandbits(64)), self.history, bootstrap, name)
            clients.append(classic)
            self._spawn(classic.run(self.classics))
        return clients

    def _coordinator(self) -> tuple[int, int]:
        return self._leader((TRANSACTION_STATE, 0))

    def _leader(self, partition: TopicPartition) -> tuple[int, int]:
        """The leader of a partition and its epoch in the metadata store."""
        state = self.monitor._state(partition)
        return (-1, -1) if state is None else (state.leader, state.epoch)

    def _has_old_metadata(self, name: str, partition: TopicPartition) -> bool:
        """Whether this broker leads the partition in another epoch than that of the metadata store or not at all, or
        would verify transactions with a broker that is not the coordinator.
        """
        broker = next(each.broker for each in self.processes if each.name == name)
        replica = None if broker is None else broker.replicas.get(*partition)
        if broker is None or replica is None or replica.machine.role is not Role.LEADER:
            return True
        if replica.machine.leader_epoch != self._leader(partition)[1]:
            return True
        is_coordinator = partition == (TRANSACTION_STATE, 0)
        return not is_coordinator and broker.running.metadata_cache.leader(TRANSACTION_STATE, 0) != self._coordinator()

    def _spawn_more(self, work: Any) -> None:
        """For a task that starts another."""
        self.loop.create_task(work)

    # ---- faults

    def _break_things(self) -> None:
        if self.script is not None:
            for fault in self.script:
                self.loop.run(lambda: False, deadline_s=self.loop.time() + fault.after_ms / 1000)
                self._fault(fault.kind, self.processes[fault.broker % len(self.processes)])
            return
        end_s = self.loop.time() + self.duration_s
        while self.loop.time() < end_s:
            pause_s = self.random.expovariate(1.0) / self.intensity
            self.loop.run(lambda: False, deadline_s=min(end_s, self.loop.time() + pause_s))
            self._fault(self.random.choice(self.kinds))

    def _fault(self, kind: str, victim: Process | None = None) -> None:
        """Inject a fault, if the cluster's configuration guarantees that it survives it now."""
        random = self.random
        if self.disks is not None and self.disks.random.random() < 0.4 and self._break_disk(self.disks):
            return
        down = [process for process in self.processes if not process.running and self._may_start(process)]
        for process in down:
            if process.broker is None and not process.running and random.random() < 0.7:
                self._note("start", process)
                process.start()
                return
        for process in self.processes:
            if process.owner.paused and random.random() < 0.5:
                self._note("resume", process)
                process.resume()
        if self.network.cuts and random.random() < 0.4:
            self.note("heal")
            self.network.heal()
        if not self._recovered():
            return  # the configuration does not guarantee that the cluster survives a second fault now
        process = victim or random.choice(self.processes)
        match kind:
            case "cut" | "cut one-way":
                other = random.choice([each for each in self.processes if each is not process])
                self._note(kind, process, other.name)
                self.network.cut(process.name, other.name, both=kind == "cut")
            case "cut registry":
                self._note(kind, process)
                self.network.cut(process.name, REGISTRY)
            case "clog":
                self._note(kind, process)
                for other in self.processes:
                    if other is not process:
                        self.network.cut(process.name, other.name)
            case "kill" | "restart" if process.running:
                self._note(kind, process)
                process.kill()
                if kind == "restart":
                    process.start()
            case "power" if process.running and self._spared(process):
                self._note(kind, process)
                process.kill(power=True)
                self.lost_power = process.broker_id
                process.start()
            case "pause" if process.running and not process.owner.paused:
                self._note(kind, process)
                process.pause()
            case "expire":
                for session in list(self.ensemble.sessions.values()):
                    if session.owner is process.owner:
                        self._note(kind, process)
                        self.ensemble.expire(session)
                        session.learn()
            case "move":
                self._move()

    def _break_disk(self, disks: DiskFaults) -> bool:
        """Let a disk fail, or work again; False where neither is possible now."""
        if disks.sick is not None:
            self._cure(disks)
            return True
        victim = disks.random.choice(self.processes)
        if not victim.running or not victim.ready or not self._recovered() or not self._spared(victim):
            return False
        self._note(disks.strike(victim), victim)
        self.lost_power = victim.broker_id
        return True

    def _cure(self, disks: DiskFaults) -> None:
        process = disks.cure()
        if process is not None:
            self._note("cure", process, f"after {process.disk.plan.failed} failed calls")
            self.lost_power = process.broker_id

    def _may_start(self, process: Process) -> bool:
        """Whether a broker that is down may come back now."""
        return True

    def _late(self, owner: Owner, key: int) -> None:
        """A request stalls; a delay of a coordinator's markers may cost it its session as well (KAFKA-9144)."""
        self.result.trace.append(f"{self.loop.time():.6f} late {owner.name} request {key}")
        if key == WRITE_MARKERS and self.network.lateness.random() < 0.5:
            for process in self.processes:
                if process.owner is owner:
                    self._fault("expire", process)

    def _spared(self, victim: Process) -> bool:
        """Whether every other broker is healthy, so that records which one loses with its power are on others."""
        if self.disks is not None and self.disks.sick is not None:
            return False
        others = [process for process in self.processes if process is not victim]
        if self.network.cuts or not all(each.running and each.ready and not each.owner.paused for each in others):
            return False
        for partition in self.partitions:
            state = self.monitor._state(partition)
            if state is None or any(self.monitor._is_new(each, state) for each in state.isr):
                return False
            if not any(each != victim.broker_id for each in state.isr):
                return False
        return True

    def _recovered(self) -> bool:
        """Whether the controller has processed the restart of the broker that lost power last."""
        if self.lost_power is None:
            return True
        for partition in self.partitions:
            state = self.monitor._state(partition)
            if state is not None and self.lost_power in state.isr and self.monitor._is_new(self.lost_power, state):
                return False
        if not self.processes[self.lost_power].ready:
            return False
        self.lost_power = None
        return True

    def _move(self) -> None:
        for process in self.processes:
            broker = process.broker
            if broker is None or not process.ready or process.owner.paused:
                continue
            if broker.running.controller.is_active:
                self._note("move", process)
                self._spawn(_quietly(broker.running.controller.elect_leaders(False, None)))

    def note(self, text: str) -> None:
        self.result.faults[text.split(" ")[0]] += 1
        self.result.trace.append(f"{self.loop.time():.6f} {text}")

    def _note(self, kind: str, process: Process, other: str = "") -> None:
        self.result.faults[kind] += 1
        self.result.trace.append(f"{self.loop.time():.6f} {kind} {process.name} {other}".rstrip())

    # ---- rest

    def _heal(self) -> None:
        self.note("heal")
        if self.disks is not None:
            self._cure(self.disks)
            self.result.faults["failed calls to disks"] += sum(each.disk.plan.failed for each in self.processes)
        self.network.on = False
        self.network.heal()
        for process in self.processes:
            if process.owner.paused:
                process.resume()
            if not process.running:
                process.start()

    def _rest(self, clients: list[Any]) -> None:
        self._wait(self._in_sync, REST_S, "every replica is in the ISR")
        before = sum(map(len, self.history.acknowledged.values()))
        self._wait(
            lambda: sum(map(len, self.history.acknowledged.values())) > before, REST_S, "a write is acknowledged"
        )
        for client in clients:
            client.stopped = True
        self.loop.run(lambda: False, deadline_s=self.loop.time() + 3.0)
        if self.transactions is not None:
            self._wait(self._decided, REST_S, "every transaction has ended")
        self._wait(self._equal, REST_S, "all replicas are equal")
        self._check_acknowledged()
        if self.transactions is not None:
            self._check_transactions(self.transactions, clients)

    def _decided(self) -> bool:
        for partition in self.partitions:
            state = self.monitor._state(partition)
            for process, replica in self.monitor._replicas(partition):
                leads = state is not None and process.broker_id == state.leader
                if leads and replica.last_stable_offset != replica.log.end_offset:
                    return False
        return True

    def _check_transactions(self, history: TransactionHistory, clients: list[Any]) -> None:
        verdict = Verdict(history)
        self._read_all(verdict)
        verdict.judge()
        for client in clients:
            if isinstance(client, TransactionalProducer):
                offsets: list[int] = []
                self._spawn(client.finish(offsets.append))
                self._wait(lambda offsets=offsets: offsets, REST_S, f"{client.owner.name} can go on")
                if client.group_is_there:
                    history.judge_group(client.group, offsets[0])
        member = next((client for client in clients if isinstance(client, GroupMember)), None)
        if member is not None:
            committed: dict[int, int] = {}
            self._spawn(member.fetch_offsets([index for _, index in self.partitions], committed.update))
            self._wait(lambda: committed, REST_S, "the offsets of the group can be read")
            for partition, offset in committed.items():
                self.groups.judge(partition, offset)
        classic = next((client for client in clients if isinstance(client, ClassicMember)), None)
        if classic is not None:
            self._spawn(classic.finish())
            self._wait(lambda: self.classics.judged, REST_S, "the offsets of the classic group can be read")

    def _read_all(self, verdict: Verdict) -> None:
        for partition in self.partitions:
            for _, replica in self.monitor._replicas(partition):
                verdict.read(partition, read_whole(replica))

    def _in_sync(self) -> bool:
        if not all(process.ready for process in self.processes):
            return False
        states = [self.monitor._state(partition) for partition in self.partitions]
        return all(state is not None and len(state.isr) == 3 and state.leader >= 0 for state in states)

    def _equal(self) -> bool:
        for partition in self.partitions:
            replicas = [replica for _, replica in self.monitor._replicas(partition)]
            if len({replica.log.end_offset for replica in replicas}) != 1:
                return False
            if len({replica.machine.high_watermark for replica in replicas}) != 1:
                return False
        return True

    def _check_acknowledged(self) -> None:
        for partition, values in self.history.acknowledged.items():
            for _, replica in self.monitor._replicas(partition):
                if max(values) >= replica.log.end_offset:
                    raise ViolationError(f"R2: {max(values)} of {partition} was acknowledged and is gone in the end")
            seen = self.history.read.get(partition, {})
            for offset, value in values.items():
                if seen.get(offset, value) != value:
                    raise ViolationError(
                        f"R6: {offset} of {partition} was acknowledged as {value!r}, read {seen[offset]!r}"
                    )


def read_whole(replica: Replica) -> bytes:
    """The records of a log."""
    log, data = replica.log, b""
    offset = log.start_offset
    while offset < log.end_offset:
        part = replica.read(offset, 1 << 20, upper=log.end_offset, at_least_one=True).records
        more = part if isinstance(part, bytes) else part.read()
        data += more
        offset = max(read_header(more, place).next_offset for place in batches(more))
    return data


async def _quietly(work: Any) -> None:
    try:
        await work
    except KafkaError:
        return
