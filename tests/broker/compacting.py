"""A broker in a process that compacts its topics soon, seen by its files, its client and its metrics."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker_process import BrokerProcess
from odradek.ports import free_port

TIMEOUT_S = 30.0


class Compacting(BrokerProcess):
    """A broker that looks for dirty logs ten times a second, with a page of metrics."""

    def __init__(self, folder: Path, overrides: dict[str, str]) -> None:
        super().__init__(folder, {"log.cleaner.backoff.ms": "100", "file.delete.delay.ms": "60000", **overrides})
        self.metrics_port = free_port()

    def _arguments(self) -> list[str]:
        return [*super()._arguments(), f"--metrics=127.0.0.1:{self.metrics_port}"]

    def metrics(self) -> dict[str, float]:
        """The metrics on the page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def uncleanable(self) -> float:
        return self.metrics()[
            f'kafka_log_logcleanermanager_uncleanable_partitions_count{{logDirectory="{self.data_dir}"}}'
        ]

    @property
    def folder(self) -> Path:
        return self.data_dir / "t-0"


def create(broker: Compacting, *topics: str, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {"cleanup.policy": "compact", "segment.bytes": "10000", "min.cleanable.dirty.ratio": "0.01"}
    settings |= {name.replace("_", "."): value for name, value in config.items()}
    for created in admin.create_topics([NewTopic(topic, 1, 1, config=settings) for topic in topics]).values():
        created.result(TIMEOUT_S)
    return admin
