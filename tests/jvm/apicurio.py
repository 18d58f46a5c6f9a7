"""Apicurio Registry: a schema registry that implements Confluent's REST API, with its schemas in a Kafka topic.

It is an implementation of that API by others, so the serdes of a schema registry are tested against it.
"""

from __future__ import annotations

import urllib.request
from types import TracebackType
from typing import Final

from odradek.ports import free_port
from tests.jvm.jars import APICURIO, unpacked
from tests.jvm.java import find_java
from tests.jvm.process import QUICK_START, BackgroundProcess
from tests.support.eventually import eventually

JOURNAL: Final = "kafkasql-journal"
"""The topic with the schemas."""
_START_TIMEOUT_S: Final = 180.0


class Apicurio:
    """One registry as a process, over the broker at `bootstrap`. As a context manager it runs until the exit."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._port = free_port()
        self._process: BackgroundProcess | None = None

    @property
    def url(self) -> str:
        """The address of Confluent's API."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it, and wait until it has read its topic. Raises FetchError, EOFError, TimeoutError, AssertionError."""
        folder = unpacked(APICURIO)
        properties = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self._port,
            "quarkus.log.console.enable": "true",
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": self._bootstrap,
        }
        settings = [f"-D{name}={value}" for name, value in properties.items()]
        program = folder / f"{APICURIO.name}-{APICURIO.version}-runner.jar"
        self._process = BackgroundProcess([str(find_java()), *QUICK_START, "-Xmx512m", *settings, "-jar", str(program)])
        try:
            self._process.stdout.wait_for("KafkaSQL storage bootstrapped", _START_TIMEOUT_S)
            eventually(self._answers, retry_on=(OSError,))
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/subjects", timeout=_START_TIMEOUT_S) as response:
            return bool(response.status == 200)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def __enter__(self) -> Apicurio:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
