"""Environment: the external inputs of a broker.

Clocks, randomness, the disk, the network and the metadata store come in here and nowhere else. No other part of the
broker reads a clock or draws a random number, so a simulation runs the same broker over a simulated environment.
"""

from __future__ import annotations

import base64
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.broker.metadata.registry_session import OpenSession
from odradek.broker.replication.partition import Worker
from odradek.broker.runtime.timers import Clock, SystemClock
from odradek.protocol.dial import Connect, connect
from odradek.protocol.listening import Listener
from odradek.storage.disk import Disk, OsDisk


@dataclass(slots=True)
class Environment:
    """External inputs of a broker."""

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.SystemRandom)
    disk: Disk = field(default_factory=OsDisk)
    listen: Callable[..., Listener] = Listener
    """Creates a listener, with the arguments of `Listener`: the network, for incoming connections."""
    connect: Connect = connect
    """Opens connections to other brokers: the network, for outgoing connections."""
    open_session: OpenSession | None = None
    """Opens sessions of an external metadata store. None: ZooKeeper if `zookeeper.connect` is set, otherwise the
    embedded metadata store in the broker's data directory."""
    kafka_opts: str = field(default_factory=lambda: os.environ.get("KAFKA_OPTS", ""))
    """Options of Java as for Kafka's start scripts; see `odradek.broker.config.system_properties`."""
    worker: Worker | None = None
    """Runs blocking calls; None: in the broker's own threads."""

    def random_uuid(self) -> str:
        """A random UUID (version 4) as text."""
        bits = self.random.getrandbits(128)
        bits = bits & ~(0xF << 76) | 0x4 << 76
        bits = bits & ~(0x3 << 62) | 0x2 << 62
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def random_cluster_id(self) -> str:
        """A random cluster id: 16 bytes in URL-safe base64."""
        return base64.urlsafe_b64encode(self.random.randbytes(16)).rstrip(b"=").decode()
