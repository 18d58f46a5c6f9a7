"""An example of the guide as a process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.streams.examples.running import Written
from tests.jvm.process import BackgroundProcess

TIMEOUT_S: Final = 120.0


class Running:
    """An example as a process."""

    def __init__(self, broker: BrokerProcess, folder: Path, name: str, *arguments: str) -> None:
        self._command = [
            *(sys.executable, "-m", f"odradek.streams.examples.{name}", "--bootstrap-servers", broker.bootstrap),
            *("--state-dir", str(folder), "--property", "session.timeout.ms=1000"),
            *("--property", "heartbeat.interval.ms=200", "--property", "poll.ms=20", *arguments),
        ]
        self.process = BackgroundProcess(self._command)

    def says(self, text: str) -> str:
        """Wait for a line with this text."""
        return self.process.stdout.wait_for(text, TIMEOUT_S)

    def kill(self) -> None:
        """Kill it as a failing machine does, and start it again."""
        self.process.kill()
        self.process = BackgroundProcess(self._command)

    def end(self) -> list[str]:
        """End it by ctrl-C. Returns its output."""
        os.kill(self.process.pid, signal.SIGINT)
        printed = self.process.stdout.wait_for_end(TIMEOUT_S)
        assert self.process.stop() == 0, self.process.stderr.lines()
        return printed

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()


def write(broker: BrokerProcess, records: list[Written]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for record in records:
        producer.produce(record.topic, record.value, record.key)
    assert producer.flush(TIMEOUT_S) == 0
