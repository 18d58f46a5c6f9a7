"""Takes samples of a cluster at an interval, in a thread of its own.

Reading a large cluster takes time, so the pause after a sample is at least `IDLE_FACTOR` times as long as the sample
took: the sampler uses no more than a tenth of a core, and no more of the brokers' time. Sizes on disk, which are the
most data, and metrics pages are read less often.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

from odradek.admin import log_dirs
from odradek.admin.client import AdminClient
from odradek.console.history import ClusterHistory, DiskUsage
from odradek.console.request_metrics import broker_metrics
from odradek.console.sample import CLIENT_ERRORS, ClusterSample, take_sample
from odradek.metrics_source import MetricsSource, PageError

LOG = logging.getLogger(__name__)
INTERVAL_S: Final = 2.0
IDLE_FACTOR: Final = 9
DISK_INTERVAL_S: Final = 10.0
METRICS_INTERVAL_S: Final = 10.0


class ClusterSampler:
    """Keeps a `ClusterHistory` up to date until it is closed."""

    def __init__(
        self,
        connect: Callable[[], AdminClient],
        *,
        interval_s: float = INTERVAL_S,
        metrics: Sequence[MetricsSource] = (),
        history: ClusterHistory | None = None,
    ) -> None:
        """`connect` makes the client of the sampler; `metrics` are the metrics pages of brokers, if there are any."""
        self._connect = connect
        self._interval_s = interval_s
        self._metrics = tuple(metrics)
        self.history = history if history is not None else ClusterHistory()
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._disk_due_s = 0.0
        self._metrics_due_s = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin to take samples."""
        self._thread = threading.Thread(target=self._run, name="cluster-sampler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the request that it awaits."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def refresh(self) -> ClusterSample | None:
        """Take a sample now, in the calling thread; None where the cluster cannot be read, with the reason in
        `history.error`.
        """
        with self._lock:
            return self._take()

    def ensure(self) -> None:
        """Wait for the first sample; nothing where there is one, or where the cluster cannot be read."""
        if self.history.sample is None and self.history.error is None:
            with self._lock:  # where the thread takes it already, only wait
                if self.history.sample is None and self.history.error is None:
                    self._take()

    def _take(self) -> ClusterSample | None:
        try:
            if self._client is None:
                self._client = self._connect()
            sample = take_sample(self._client, time.time())
        except CLIENT_ERRORS as error:
            self.history.fail(str(error))
            return None
        self.history.add(sample)
        return sample

    def refresh_disk(self) -> None:
        """Read the sizes of all replicas."""
        with self._lock:
            sample = self.history.sample
            if self._client is None or sample is None:
                return
            try:
                self.history.disk = disk_usage(self._client, sorted(sample.broker_ids))
            except CLIENT_ERRORS as error:
                LOG.info("cannot read log directories error=%s", error)

    def refresh_metrics(self) -> None:
        """Read the metrics pages."""
        found = {}
        for source in self._metrics:
            try:
                found[source.url] = broker_metrics(source.read())
            except (PageError, ValueError) as error:
                LOG.info("cannot read metrics page url=%s error=%s", source.url, error)
        self.history.metrics = found

    def _run(self) -> None:
        while not self._closed.is_set():
            begin_s = time.monotonic()
            sample = self.refresh()
            if sample is not None and begin_s >= self._disk_due_s:
                self.refresh_disk()
                self._disk_due_s = begin_s + DISK_INTERVAL_S
            if self._metrics and begin_s >= self._metrics_due_s:
                self.refresh_metrics()
                self._metrics_due_s = begin_s + METRICS_INTERVAL_S
            taken_s = time.monotonic() - begin_s
            self._closed.wait(max(self._interval_s - taken_s, IDLE_FACTOR * taken_s))


def disk_usage(client: AdminClient, broker_ids: Sequence[int]) -> DiskUsage:
    """What replicas take on the disks of brokers; a broker that does not answer is left out."""
    by_topic: dict[str, int] = {}
    by_broker: dict[int, int] = {}
    offline = []
    for broker_id, found in log_dirs.describe_log_dirs(client, broker_ids).items():
        if isinstance(found, Exception):
            continue
        for directory in found:
            if directory.error is not None:
                offline.append(f"broker {broker_id}: {directory.path}: {directory.error}")
            for replica in directory.replicas:
                by_topic[replica.topic] = by_topic.get(replica.topic, 0) + replica.size
                by_broker[broker_id] = by_broker.get(broker_id, 0) + replica.size
    return DiskUsage(by_topic, by_broker, tuple(offline))
