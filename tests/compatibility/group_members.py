"""A consumer group of clients in processes of their own, and the records that each of them has read."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from tests.compatibility import member
from tests.compatibility.brokers import Broker
from tests.compatibility.console import formatter_option
from tests.jvm.process import BackgroundProcess
from tests.jvm.tools import start_tool

PARTITIONS = 6
REBALANCE_TIMEOUT_S = 60.0


class Read(NamedTuple):
    """One record as a member printed it."""

    partition: int
    offset: int
    value: str


class Group:
    """The members of one group, alive or gone, and the rounds of records sent to their topic."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self._broker = broker
        self._group = group
        self._topic = topic
        self._members: dict[str, BackgroundProcess] = {}
        self._changed = threading.Condition()  # a member has printed a line
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        self._rounds = 0

    def join(self, name: str, kind: str) -> None:
        """Starts a member: a Python library's name, or a Kafka release for its console consumer.

        With "+consumer" behind either it uses the consumer protocol (KIP-848).
        """
        bootstrap = self._broker.bootstrap
        kind, _, protocol = kind.partition("+")
        if kind in ("confluent", "aiokafka"):
            program = str(Path(member.__file__))
            command = [
                sys.executable,
                program,
                kind,
                bootstrap,
                self._group,
                self._topic,
                *([protocol] if protocol else []),
            ]
            self._members[name] = BackgroundProcess(command, self._changed)
            return
        option = formatter_option(kind)
        consumer_option = "--command-property" if kind.startswith("4.") else "--consumer-property"
        arguments = [
            *("--bootstrap-server", bootstrap, "--topic", self._topic, "--group", self._group, "--from-beginning"),
            *(option, "print.partition=true", option, "print.offset=true"),
            *(consumer_option, "metadata.max.age.ms=1000"),
        ]
        if protocol:
            arguments += [consumer_option, f"group.protocol={protocol}"]
        else:
            arguments += [consumer_option, "session.timeout.ms=6000", consumer_option, "heartbeat.interval.ms=500"]
        self._members[name] = start_tool(kind, "kafka-console-consumer", arguments, self._changed)

    def leave(self, name: str) -> None:
        """A member commits, leaves the group and ends."""
        self._members[name].stop()
        self._members[name].stdout.wait_for_end(10)

    def die(self, name: str) -> None:
        """A member ends without leaving; the coordinator removes it when the session times out."""
        self._members[name].kill()
        self._members[name].stdout.wait_for_end(10)

    def settle_on(self, *names: str) -> None:
        """Sends rounds until exactly these members have read one, in equal shares."""
        deadline = time.monotonic() + REBALANCE_TIMEOUT_S
        share = PARTITIONS // len(names)
        while (owners := self._send_round(deadline)) != Counter(dict.fromkeys(names, share)):
            assert time.monotonic() < deadline, f"{dict(owners)} share the topic instead of {names}"

    def _send_round(self, deadline: float) -> Counter[str]:
        """Sends one record to each partition, waits until all are read, and returns how many each member read."""
        value = f"round {self._rounds}"
        self._rounds += 1
        for partition in range(PARTITIONS):
            self._producer.produce(self._topic, value.encode(), partition=partition)
        assert self._producer.flush(30) == 0
        with self._changed:
            all_read = self._changed.wait_for(
                lambda: len({read.partition for _, read in self._reads() if read.value == value}) == PARTITIONS,
                deadline - time.monotonic(),
            )
        assert all_read, f"{value} was not read by all:\n{self._state()}"
        return Counter(name for name, read in self._reads() if read.value == value)

    def assert_nothing_missed(self) -> None:
        """Each record of each round has been read, with its own offset."""
        expected = {
            Read(partition, number, f"round {number}")
            for partition in range(PARTITIONS)
            for number in range(self._rounds)
        }
        assert {read for _, read in self._reads()} == expected

    def repeated(self) -> list[Read]:
        """The records that were read more than once."""
        return [read for read, times in Counter(read for _, read in self._reads()).items() if times > 1]

    def reads_of(self, name: str) -> set[Read]:
        return {read for reader, read in self._reads() if reader == name}

    def close(self) -> None:
        for process in self._members.values():
            process.kill()

    def _reads(self) -> Iterator[tuple[str, Read]]:
        for name, process in self._members.items():
            for line in process.stdout.lines():
                partition, offset, value = line.split("\t")
                yield name, Read(int(partition.removeprefix("Partition:")), int(offset.removeprefix("Offset:")), value)

    def _state(self) -> str:
        return "\n".join(
            f"{name} ({'running' if process.running else 'ended'}) last read {process.stdout.lines()[-1:]}, "
            f"printed {process.stderr.lines()[-3:]}"
            for name, process in self._members.items()
        )
