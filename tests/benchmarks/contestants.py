"""The contestants: Apache Kafka 3.9.2, Odradek and the floor, each a server process on loopback with its own folder.

All three stay up for the whole run, so that Kafka's JVM is as warm as it gets. The floor is restarted for each topic,
which takes 0.2 s and saves it from handling topics. Kafka's ZooKeeper is a process of its own, and its CPU time is not
counted.
"""

from __future__ import annotations

import shutil
import socket
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.ports import free_port
from odradek.ready_process import OWN_COMMAND
from tests.benchmarks import usage
from tests.benchmarks.cases import TLS_CIPHER
from tests.jvm.kafka import STOCK_JVM, Kafka
from tests.jvm.process import BackgroundProcess
from tests.jvm.watchdog import watchdog
from tests.security.tls_broker import HOST, Files

READY_TIMEOUT_S = 90.0
_ADMIN_TIMEOUT_S = 30.0
_POLL_S = 0.002
# The same for both brokers: a deleted topic frees its disk at once, and a group does not wait for more members
# (group.initial.rebalance.delay.ms).
PROPERTIES: Mapping[str, str] = {"log.segment.delete.delay.ms": "0", "group.initial.rebalance.delay.ms": "0"}
_ASK_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # size, key, version, correlation id, no client id


class Contestant(Protocol):
    """A server under measurement. `start` returns seconds from the start of its process to its first answer."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def data_dir(self) -> Path: ...
    @property
    def tls(self) -> tuple[str, Path] | None:
        """The address of the TLS listener, and the properties of a client; None without one."""

    def start(self) -> float: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def make_topic(self, topic: str, partitions: int) -> None: ...
    def drop_topic(self, topic: str) -> None: ...


class _Server(Protocol):
    """The common interface of tests.jvm.kafka.Kafka and odradek.broker_process.BrokerProcess."""

    data_dir: Path

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class Broker:
    """A real broker. Its topics are created and deleted with its own admin API."""

    def __init__(self, name: str, server: _Server, tls: tuple[str, Path] | None = None) -> None:
        self.name = name
        self.tls = tls
        self._server = server
        self._watched_pid = 0

    @property
    def bootstrap(self) -> str:
        return self._server.bootstrap

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def data_dir(self) -> Path:
        return self._server.data_dir

    def start(self) -> float:
        self._server.start()
        self._watched_pid = self.pid
        watchdog().watch(self._watched_pid)
        return seconds_to_first_answer(self.pid, self.bootstrap)

    def stop(self) -> None:
        self._server.stop()
        watchdog().forget(self._watched_pid)

    def close(self) -> None:
        self._server.close()
        watchdog().forget(self._watched_pid)

    def make_topic(self, topic: str, partitions: int) -> None:
        admin = self._admin()
        for done in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            done.result(_ADMIN_TIMEOUT_S)

    def drop_topic(self, topic: str) -> None:
        """Delete `topic` and wait until its files are gone, so that this does not overlap with the next measurement."""
        admin = self._admin()
        for done in admin.delete_topics([topic]).values():
            done.result(_ADMIN_TIMEOUT_S)
        deadline = time.monotonic() + _ADMIN_TIMEOUT_S
        while any(self.data_dir.glob(f"{topic}-*")):  # Kafka renames to TOPIC-N.ID-delete first
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: files of the deleted topic {topic} are still in {self.data_dir}")
            time.sleep(0.05)

    def _admin(self) -> AdminClient:
        # A new client for each call, kept until the response is there: its threads must not run beside a measurement.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 4})


class Floor:
    """tests/benchmarks/floor.py in a process of its own."""

    name = "floor"
    tls = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: BackgroundProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Raises RuntimeError when it does not run."""
        if self._process is None:
            raise RuntimeError("the floor does not run")
        return self._process.pid

    @property
    def data_dir(self) -> Path:
        return self._folder

    def start(self, partitions: int = 1) -> float:
        command = [sys.executable, "-m", "tests.benchmarks.floor", str(self._port), str(self._folder), str(partitions)]
        self._process = BackgroundProcess(command)
        return seconds_to_first_answer(self.pid, self.bootstrap)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def close(self) -> None:
        self.stop()

    def make_topic(self, topic: str, partitions: int) -> None:
        self.stop()
        self.start(partitions)

    def drop_topic(self, topic: str) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def contestant(name: str, folder: Path, *, tls: bool = False) -> Contestant:
    """The contestant of that name, not started, with all its files under `folder`; brokers get a TLS listener beside
    the plain one with `tls`. Raises ValueError for other names.
    """
    if name == "floor":
        return Floor(folder)
    if name not in ("kafka", "odradek"):
        raise ValueError(f"no contestant {name!r}; contestants are kafka, odradek, floor")
    port, properties, secure = free_port(), dict(PROPERTIES), None
    if tls:
        secure = f"{HOST}:{free_port()}", folder / "client.properties"
        properties |= _with_tls(folder, f"PLAINTEXT://{HOST}:{port},SSL://{secure[0]}", secure[1])
    if name == "kafka":
        kafka = Kafka(folder, properties, STOCK_JVM)
        kafka.port = port
        return Broker(name, kafka, secure)
    return Broker(name, BrokerProcess(folder, properties, command=OWN_COMMAND, timeout_s=READY_TIMEOUT_S), secure)


def _with_tls(folder: Path, listeners: str, client: Path) -> dict[str, str]:
    """The properties of a broker with these listeners; writes those of a client, too."""
    files = Files(folder)
    files.issue("broker", HOST)
    cipher = f"ssl.enabled.protocols=TLSv1.3\nssl.cipher.suites={TLS_CIPHER}\n"
    client.write_text(files.java().read_text() + cipher)
    return {"listeners": listeners, "advertised.listeners": listeners, **files.stores("broker")}


def seconds_to_first_answer(pid: int, bootstrap: str) -> float:
    """Wait until the server answers ApiVersions; return the age of its process then, to 10 ms.

    Raises TimeoutError when it does not, and ProcessLookupError when it ends.
    """
    host, _, port = bootstrap.rpartition(":")
    while (age_s := usage.age_s(pid)) < READY_TIMEOUT_S:
        try:
            with socket.create_connection((host, int(port)), timeout=READY_TIMEOUT_S) as connection:
                connection.sendall(_ASK_API_VERSIONS)
                if connection.recv(4):
                    return usage.age_s(pid)
        except OSError:
            time.sleep(_POLL_S)
    raise TimeoutError(f"no answer from {bootstrap} after {age_s:.1f} s")
