"""Thread context: the state of a stream thread, and what it shares with other threads and with its own parts."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass, field

from odradek.streams.queries import FairLock
from odradek.streams.recorded_metrics import ThreadMetrics
from odradek.streams.stores.cache import ThreadCache


class ThreadState(enum.Enum):
    """The states of a stream thread (Kafka: StreamThread.State)."""

    CREATED = enum.auto()
    STARTING = enum.auto()
    PARTITIONS_REVOKED = enum.auto()
    PARTITIONS_ASSIGNED = enum.auto()
    RUNNING = enum.auto()
    PENDING_SHUTDOWN = enum.auto()
    DEAD = enum.auto()


@dataclass(frozen=True, slots=True)
class ThreadContext:
    """The name, the signals and the measurements of one stream thread."""

    name: str
    index: int
    cache: ThreadCache
    metrics: ThreadMetrics = field(default_factory=ThreadMetrics)
    lock: FairLock = field(default_factory=FairLock)
    """The thread holds it while tasks process and commit; a query of their stores acquires it."""
    paused: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
