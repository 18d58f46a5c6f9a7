"""One broker's replicas over several data directories on a simulated disk, without the broker around them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.replication.partition import Replica, Replicas
from odradek.broker.replication.replicas import ReplicaHost
from odradek.broker.replication.state.partition import LeaderAndIsr, PendingIsr
from odradek.broker.runtime.scheduler import Parts
from odradek.storage.config import LogConfig
from odradek.storage.directories import Directories, open_all
from odradek.storage.directory import DirectoryRequest
from odradek.storage.log import Log
from tests.storage.batches import NOW_MS, TOPIC_ID, batch

PATHS = ("/a", "/b", "/c")
NAME = ("topic", 0)
PROPERTIES = {"segment.bytes": "9000", "index.interval.bytes": "1000", "file.delete.delay.ms": "1000"}
CONFIG = LogConfig(segment_bytes=9000, index_interval_bytes=1000, file_delete_delay_ms=1000)


class Clock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        return 0


class Hands:
    """A thread pool that runs on demand, one piece of work after the other."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._waiting.append((work, done))

    def turn(self) -> bool:
        """Run the piece that has waited longest; False where none waits."""
        if not self._waiting:
            return False
        work, done = self._waiting.pop(0)
        error: BaseException | None = None
        try:
            work()
        except Exception as raised:
            error = raised
        done(error)
        return True


class Places:
    """The data directories of one broker, its replicas, and the failures that its host was notified of."""

    def __init__(self, disk: Any, paths: tuple[str, ...] = PATHS[:2]) -> None:
        self.disk = disk
        self.paths = paths
        self.lost: list[Replica] = []
        self.end: str | None = None
        self.epoch = -1

    def open(self, cluster_id: str | None = "c") -> None:
        """Start as a broker does."""
        request = DirectoryRequest(
            broker_id=0,
            cluster_id=cluster_id,
            now_ms=NOW_MS,
            config_for=lambda topic: CONFIG,
            random=Random(self.epoch),
        )
        self.directories = Directories(open_all(self.paths, request, self.disk))
        self.replicas = Replicas()
        self.hands = Hands()
        config = BrokerConfig({"broker.id": "0", "log.dirs": ",".join(self.paths)})
        self.host = ReplicaHost(config, self.directories, self.replicas, Clock(), self.hands, self, self)
        self.host.moves.piece_bytes = 4000

    def lead(self, name: tuple[str, int] = NAME, *, is_new: bool = False, topic_id: bytes = TOPIC_ID) -> Replica:
        """Apply a control request as from the controller."""
        replica = self.host.obtain(name, topic_id, PROPERTIES, is_new=is_new)
        self.epoch += 1
        replica.lead(LeaderAndIsr(0, self.epoch, (0,), (0,), 0))
        return replica

    def move(self, path: str, name: tuple[str, int] = NAME) -> None:
        self.host.moves.alter_log_dir(name, path)

    def carry_out(self, task: Parts) -> None:
        """Carry out a scheduled task on logs; the threads work whenever it waits for one."""
        for wait in task:
            if wait is not None:
                assert self.hands.turn()

    def settle(self) -> None:
        """Run all work that waits."""
        while self.hands.turn():
            pass

    def log(self, name: tuple[str, int] = NAME) -> Log:
        directory = self.directories.holding(name)
        assert directory is not None
        return directory.logs[name]

    def append(self, size: int = 700, *, producer: int = -1, sequence: int = 0, transactional: bool = False) -> None:
        """Append two records as a producer does."""
        replica = self.replicas.get(*NAME)
        assert replica is not None
        data = batch(2, size=size // 2, producer=(producer, 0, sequence) if producer >= 0 else (-1, -1, -1))
        replica.produce(data, 1, NOW_MS, 9)

    def where(self, name: tuple[str, int] = NAME) -> tuple[str | None, str | None]:
        """The directories of the log and of the future log."""
        found = self.directories.holding(name), self.directories.expecting(name)
        return tuple(each.path if each is not None else None for each in found)  # type: ignore[return-value]

    # ---- the callbacks of the replica manager's host

    def replicas_lost(self, replicas: list[Replica]) -> None:
        self.lost += replicas

    def all_lost(self, reason: str) -> None:
        self.end = reason

    def submit(self, replica: Replica, change: PendingIsr) -> None:
        raise AssertionError("there are no followers")
