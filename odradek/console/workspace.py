"""The connections of one login, or of one terminal: clients for requests, a sampler, a browser of records."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from odradek.admin.client import AdminClient
from odradek.admin.properties import librdkafka_properties
from odradek.commands.session import parse_bootstrap, security_of
from odradek.console.history import ClusterHistory
from odradek.console.messages import RecordBrowser
from odradek.console.record_schemas import RecordSchemas
from odradek.console.sampler import INTERVAL_S, ClusterSampler
from odradek.metrics_source import MetricsSource

TIMEOUT_S: Final = 10.0
"""For the requests of one page."""
SAMPLER_TIMEOUT_S: Final = 5.0
MOST_IDLE: Final = 4
"""Clients that are kept open between requests."""


class Workspace(Protocol):
    """What pages need of a cluster."""

    @property
    def history(self) -> ClusterHistory:
        """What the sampler has kept."""
        ...

    @property
    def browser(self) -> RecordBrowser:
        """Reads and writes records."""
        ...

    def client(self) -> AbstractContextManager[AdminClient]:
        """A client for one request of a page."""
        ...

    def refresh(self) -> None:
        """Take a sample now, after a change."""
        ...

    def ensure(self) -> None:
        """Wait for the first sample."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class ClusterWorkspace:
    """The connections of one login to a cluster. Any thread may use it."""

    def __init__(
        self,
        bootstrap: str,
        properties: Mapping[str, Any],
        *,
        interval_s: float = INTERVAL_S,
        metrics: Sequence[MetricsSource] = (),
        schemas: RecordSchemas | None = None,
        client_id: str = "odradek-console",
    ) -> None:
        """Starts the sampler, whose samples are `interval_s` apart. Raises SecurityConfigError.

        `properties` are those of a Kafka client; `metrics` are the metrics pages of brokers; `schemas` decode records.
        """
        self._addresses = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._security = security_of(properties)
        self._lock = threading.Lock()
        self._idle: list[AdminClient] = []
        self._browser = RecordBrowser(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "log_level": 0,
                **librdkafka_properties(properties),
            },
            schemas,
        )
        self._sampler = ClusterSampler(lambda: self._connect(SAMPLER_TIMEOUT_S), interval_s=interval_s, metrics=metrics)
        self._sampler.start()

    @property
    def history(self) -> ClusterHistory:
        """What the sampler has kept."""
        return self._sampler.history

    @property
    def browser(self) -> RecordBrowser:
        """Reads and writes records."""
        return self._browser

    @contextmanager
    def client(self) -> Iterator[AdminClient]:
        """A client for one request of a page; after an error of the connection it is not used again."""
        with self._lock:
            lent = self._idle.pop() if self._idle else None
        lent = lent or self._connect(TIMEOUT_S)
        try:
            yield lent
        except OSError:
            lent.close()
            raise
        except BaseException:
            self._give_back(lent)
            raise
        else:
            self._give_back(lent)

    def refresh(self) -> None:
        """Take a sample now, after a change."""
        self._sampler.refresh()

    def ensure(self) -> None:
        """Wait for the first sample."""
        self._sampler.ensure()

    def close(self) -> None:
        """End the sampler and close all connections."""
        self._sampler.close()
        self._browser.close()
        with self._lock:
            for client in self._idle:
                client.close()
            self._idle.clear()

    def _connect(self, timeout_s: float) -> AdminClient:
        return AdminClient(self._addresses, self._security, client_id=self._client_id, timeout_s=timeout_s)

    def _give_back(self, client: AdminClient) -> None:
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(client)
                return
        client.close()
