"""How long a restart and a kill of one of three instances stop a stream application: Odradek's beside Java's.

    python -m tests.benchmarks.rebalances [--rounds 3] [--instances odradek java] [--broker odradek|kafka]

Both count records by their key, on the same broker, with six partitions, static members and a standby of each store.
The load is one record every few ms in each partition, whose number is the key. The topic of the results has
LogAppendTime, so the broker's clock decides when a partition made progress, and the longest time without a result is
its outage. In each round:

- calm     the longest outage of any partition for some seconds without an event: the resolution of the measurement
- restart  the first instance closes and starts again; the outage of its partitions, and the longest of the others'
- kill     the first instance is killed; the outage of its partitions, which standbys take over after the end of its
           session (session.timeout.ms), and the longest of the others'
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.contestants import contestant
from tests.benchmarks.streams_applications import JAVA_RELEASE
from tests.benchmarks.streams_cases import JAVA, OURS
from tests.jvm.process import QUIET, java_command

INSTANCES: Final = 3
JAVA_OPTIONS: tuple[str, ...] = ("-Xmx256m",)
PARTITIONS: Final = 6
TIMEOUT_S: Final = 120.0
_LOOK_S: Final = 0.05
_STATIC_SESSION_MS: Final = 30_000
_KILLED_SESSION_MS: Final = 6_000
_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Pace:
    """The load of a run, and how long it lasts around each event."""

    pause_s: float = 0.005
    """Between two records of a partition."""
    calm_s: float = 5.0
    after_s: float = 3.0
    """After the last partition made progress again."""


@dataclass(frozen=True, slots=True)
class Outages:
    """The results of one round in seconds. Those of a kill include the killed member's session."""

    instances: str
    calm: float
    restarted: float
    others_restart: float
    killed: float
    others_kill: float


class Instance:
    """A process of the application; it closes with its standard input."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        self.name = name
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process. Its standard error is this process's."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def close(self) -> None:
        """Close the application, and wait for the end of its process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(TIMEOUT_S)
            self._process = None

    def restart(self) -> None:
        """Close the application and start it again."""
        self.close()
        self.start()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = None


class Load(threading.Thread):
    """Writes a record to each partition, again and again."""

    def __init__(self, bootstrap: str, topic: str, pause_s: float) -> None:
        super().__init__(name="load", daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 2})
        self._topic = topic
        self._pause_s = pause_s
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Write until `stop`."""
        due = time.monotonic()
        while not self._stop_event.wait(max(0.0, due - time.monotonic())):
            for partition in range(PARTITIONS):
                self._producer.produce(self._topic, b"x" * 84, b"%d" % partition, partition)
            self._producer.poll(0)
            due += self._pause_s

    def stop(self) -> None:
        """End the thread; all records are written."""
        self._stop_event.set()
        self.join()
        self._producer.flush(TIMEOUT_S)


class Results(threading.Thread):
    """Reads the topic of the results: when each partition of the input made progress, by the broker's clock."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="results", daemon=True)
        self.seen: list[list[float]] = [[] for _ in range(PARTITIONS)]
        """Times in seconds since the epoch for each partition, ascending."""
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rebalances", "log_level": 2})
        self._topic = topic
        self._stop_event = threading.Event()

    def run(self) -> None:
        """Read until `stop`."""
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        while not self._stop_event.is_set():
            for message in self._consumer.consume(1_000, 0.1):
                if message.error() is None:
                    self.seen[int(message.key() or b"0")].append(message.timestamp()[1] / 1000)
        self._consumer.close()

    def stop(self) -> None:
        """End the thread."""
        self._stop_event.set()
        self.join()

    def await_progress(self, partitions: Sequence[int], since_s: float) -> None:
        """Wait until all these partitions have made progress after a time. Raises TimeoutError."""
        _await(
            lambda: all(self.seen[each] and self.seen[each][-1] > since_s for each in partitions),
            f"no progress of partitions {partitions} after {since_s}",
        )


def longest_outage(seen: Sequence[float], began_s: float, ended_s: float) -> float:
    """The longest time without a result, of those that overlap the time from `began_s` to `ended_s`."""
    before = [at for at in seen if at <= began_s]
    inside = [at for at in seen if began_s < at <= ended_s]
    moments = [before[-1] if before else began_s, *inside]
    return max((after - at for at, after in itertools.pairwise(moments)), default=ended_s - began_s)


def _await(condition: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{problem} within {TIMEOUT_S:g} s")
        time.sleep(_LOOK_S)


class Round:
    """One application of three instances on a broker, with its load."""

    def __init__(self, bootstrap: str, application: str, kind: str, folder: Path, session_ms: int, pace: Pace) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._application = application
        self._pace = pace
        source, output = f"{application}-in", f"{application}-out"
        topics = [
            NewTopic(source, PARTITIONS, 1),
            NewTopic(output, 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
        ]
        for done in self._admin.create_topics(topics).values():
            done.result(TIMEOUT_S)
        topics_and_id = [f"input={source}", f"output={output}", "table=none", f"application.id={application}"]
        self.instances = [
            Instance(_command(kind, bootstrap, topics_and_id, folder / str(number), number, session_ms), f"i{number}")
            for number in range(INSTANCES)
        ]
        self._load = Load(bootstrap, source, pace.pause_s)
        self.results = Results(bootstrap, output)

    @contextmanager
    def running(self) -> Iterator[None]:
        """All instances run, have their partitions, and make progress."""
        with ExitStack() as stack:
            for each in self.instances:
                each.start()
                stack.callback(each.kill)
            self._load.start()
            stack.callback(self._load.stop)
            self.results.start()
            stack.callback(self.results.stop)
            _await(self._shared, "the instances do not share the partitions")
            self.results.await_progress(range(PARTITIONS), time.time())
            yield

    def _members(self) -> Mapping[str, Sequence[int]]:
        """The partitions of the input that each instance has."""
        described = self._admin.describe_consumer_groups([self._application])[self._application].result(TIMEOUT_S)
        return {
            member.group_instance_id or "": [each.partition for each in member.assignment.topic_partitions]
            for member in described.members
        }

    def _shared(self) -> bool:
        counts = [len(partitions) for partitions in self._members().values()]
        return counts == [PARTITIONS // INSTANCES] * INSTANCES

    def of(self, instance: Instance) -> Sequence[int]:
        """The partitions of an instance."""
        return next(found for name, found in self._members().items() if name.startswith(instance.name))

    def calm(self) -> float:
        """The longest outage without an event."""
        began_s = time.time()
        time.sleep(self._pace.calm_s)
        self.results.await_progress(range(PARTITIONS), time.time())
        return self._longest(range(PARTITIONS), began_s)

    def event(self, instance: Instance, action: Callable[[], None]) -> tuple[float, float]:
        """The longest outages of the partitions of `instance` after an action on it, and of all others."""
        its = self.of(instance)
        others = [each for each in range(PARTITIONS) if each not in its]
        began_s = time.time()
        action()
        self.results.await_progress(range(PARTITIONS), time.time())
        time.sleep(self._pace.after_s)
        self.results.await_progress(range(PARTITIONS), time.time())
        return self._longest(its, began_s), self._longest(others, began_s)

    def _longest(self, partitions: Sequence[int], began_s: float) -> float:
        return max(longest_outage(self.results.seen[each], began_s, time.time()) for each in partitions)


def _command(
    kind: str, bootstrap: str, names: Sequence[str], folder: Path, number: int, session_ms: int
) -> Sequence[str]:
    config = {
        "bootstrap.servers": bootstrap,
        "state.dir": folder,
        "group.instance.id": f"i{number}",
        "num.standby.replicas": 1,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": 1_000,
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
        "producer.linger.ms": 0,
    }
    settings = ["kind=wordcount", *names, *(f"{name}={value}" for name, value in config.items())]
    if kind == JAVA:
        return java_command(JAVA_RELEASE, str(_HERE / "StreamsLoad.java"), settings, (*JAVA_OPTIONS, *QUIET))
    return [sys.executable, "-m", "tests.benchmarks.streams_ours", *settings]


def measure(bootstrap: str, kind: str, name: str, folder: Path, pace: Pace) -> Outages:
    """One round of one contestant; `name` begins the names of its topics. Raises TimeoutError."""
    restart = Round(bootstrap, f"{name}-restart", kind, folder / "restart", _STATIC_SESSION_MS, pace)
    with restart.running():
        calm = restart.calm()
        first = restart.instances[0]
        restarted, others_restart = restart.event(first, first.restart)
    kill = Round(bootstrap, f"{name}-kill", kind, folder / "kill", _KILLED_SESSION_MS, pace)
    with kill.running():
        kill.calm()
        killed, others_kill = kill.event(kill.instances[0], kill.instances[0].kill)
    return Outages(kind, calm, restarted, others_restart, killed, others_kill)


def report(outages: Sequence[Outages]) -> str:
    """A row for each contestant: medians in ms, and the range."""
    rows = ["| ms, median (range) | " + " | ".join(_COLUMNS.values()) + " |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for kind in dict.fromkeys(each.instances for each in outages):
        found = [each for each in outages if each.instances == kind]
        cells = [[round(getattr(each, column) * 1000) for each in found] for column in _COLUMNS]
        shown = [f"{statistics.median(cell):,.0f} ({min(cell):,} to {max(cell):,})" for cell in cells]
        rows.append(f"| {kind} | {' | '.join(shown)} |")
    return "\n".join(rows)


_COLUMNS: Final = {
    "calm": "calm",
    "others_restart": "restart: others",
    "restarted": "restart: itself",
    "others_kill": "kill: others",
    "killed": "kill: its partitions",
}


def main(arguments: Sequence[str]) -> int:
    """Run the rounds, the contestants in turn, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.rebalances")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--instances", nargs="+", choices=(OURS, JAVA), default=[OURS, JAVA])
    parser.add_argument("--broker", choices=("odradek", "kafka"), default="odradek")
    options = parser.parse_args(arguments)
    outages = []
    with tempfile.TemporaryDirectory(prefix="rebalances-") as name:
        folder = Path(name)
        broker = contestant(options.broker, folder / "broker")
        try:
            broker.start()
            for number in range(1, options.rounds + 1):
                for kind in options.instances:
                    outages.append(
                        measure(broker.bootstrap, kind, f"{kind}-{number}", folder / f"{kind}{number}", Pace())
                    )
                    print(outages[-1], f"load average {os.getloadavg()[0]:.1f}", flush=True)
        finally:
            broker.close()
    print(report(outages))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
