"""A network in which single requests come late: after their sender has given them up and gone on.

A connection may stall: bytes that are written to it wait, in order, and arrive some seconds later, although its owner
has closed it meanwhile and has sent the request again on another connection. A response may stall in the same way. TCP
allows both; a broker has to recognize such a request, or refuse it.

Only requests are delayed that do no harm by the guarantees of the protocol. A client of transactions version 1 has one
epoch for many transactions, so a coordinator cannot distinguish a late EndTxn or TxnOffsetCommit from one of the next
transaction (KIP-890 states this, and Kafka 3.9 cannot either). A leader can distinguish late batches, because such a
client takes another epoch after a batch with an unknown outcome.
"""

from __future__ import annotations

import contextvars
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from odradek.protocol.dial import Channel, OnFrame, OnLost
from tests.simulation.loop import OWNER, Owner, SimulatedLoop
from tests.simulation.network import SIZE_BYTES, Network

PRODUCE, END_TXN, ADD_PARTITIONS, WRITE_MARKERS, TXN_OFFSET_COMMIT = 0, 26, 24, 27, 28
HEAD_BYTES = 8
"""Key, version and correlation id of a request."""


class Rule(NamedTuple):
    """How often a request or its response is late, and by how much."""

    oldest: int
    """The first version of the request that may be late."""
    chance: float
    most_s: float


REQUESTS = {
    PRODUCE: Rule(0, 0.06, 3.0),
    END_TXN: Rule(5, 0.25, 2.5),
    TXN_OFFSET_COMMIT: Rule(5, 0.1, 3.0),
    WRITE_MARKERS: Rule(0, 0.06, 4.0),
}
ANSWERS = {ADD_PARTITIONS: Rule(4, 0.1, 2.5)}
"""The responses to leaders that verify a transaction."""


class LateNetwork(Network):
    """The network, some of whose connections stall for a while."""

    def __init__(self, loop: SimulatedLoop, random: Random, latency_s: float, lateness: Random) -> None:
        """Draws of its own come from `lateness`; nothing is late before `on`."""
        super().__init__(loop, random, latency_s)
        self.lateness = lateness
        self.on = False
        self.requests, self.answers = dict(REQUESTS), dict(ANSWERS)
        self.on_late: Callable[[Owner, int], None] = lambda owner, key: None
        """Called with each late request: its client, and its API key."""
        self.late: Counter[int] = Counter()

    def connect(self, owner: Owner) -> Callable[..., Any]:
        at_once = super().connect(owner)

        async def connect(
            host: str, port: int, *, on_frame: OnFrame, on_lost: OnLost, frame_bytes: int, tls: Any = None
        ) -> Channel:
            channel = LateChannel(self, owner, on_frame)
            channel.inner = await at_once(
                host, port, on_frame=channel.arrived, on_lost=on_lost, frame_bytes=frame_bytes
            )
            return channel

        return connect

    def lateness_of(self, rules: dict[int, Rule], key: int, version: int) -> float:
        """The delay of this one in seconds, 0 for none."""
        rule = rules.get(key) if self.on else None
        if rule is None or version < rule.oldest or self.lateness.random() >= rule.chance:
            return 0.0
        self.late[key] += 1
        return self.lateness.random() * rule.most_s


class LateChannel:
    """A `protocol.dial.Channel` that may stall in either direction, and keeps the order."""

    inner: Channel

    def __init__(self, network: LateNetwork, owner: Owner, on_frame: OnFrame) -> None:
        self._network, self._owner, self._on_frame = network, owner, on_frame
        self._out: deque[bytes] = deque()
        self._in: deque[bytes] = deque()
        self._late_answers: dict[int, float] = {}
        self._closed = False
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, owner)

    def write(self, data: bytes) -> None:
        stall_s, key = 0.0, -1
        place = 0
        while place + SIZE_BYTES + HEAD_BYTES <= len(data):
            head = data[place + SIZE_BYTES : place + SIZE_BYTES + HEAD_BYTES]
            stall_s, key = max((stall_s, key), self._look(head))
            place += SIZE_BYTES + int.from_bytes(data[place : place + SIZE_BYTES], "big")
        if not stall_s and not self._out:
            self.inner.write(data)
            return
        self._out.append(bytes(data))
        if len(self._out) == 1:
            # The network holds it, not its owner, which may be dead or paused by then.
            self._network.loop.call_later(stall_s, self._flow_out, context=contextvars.Context())
            self._network.on_late(self._owner, key)

    def _look(self, head: bytes) -> tuple[float, int]:
        key, version = int.from_bytes(head[:2], "big"), int.from_bytes(head[2:4], "big")
        answer_s = self._network.lateness_of(self._network.answers, key, version)
        if answer_s:
            self._late_answers[int.from_bytes(head[4:8], "big")] = answer_s
        return self._network.lateness_of(self._network.requests, key, version), key

    def _flow_out(self) -> None:
        held, self._out = self._out, deque()
        for data in held:
            self.inner.write(data)
        if self._closed:
            self.inner.close()

    def arrived(self, frame: memoryview) -> None:
        """A response has arrived."""
        stall_s = self._late_answers.pop(int.from_bytes(frame[:4], "big"), 0.0)
        if not stall_s and not self._in:
            self._on_frame(frame)
            return
        self._in.append(bytes(frame))
        if len(self._in) == 1:
            self._network.loop.call_later(stall_s, self._flow_in, context=self._context)

    def _flow_in(self) -> None:
        held, self._in = self._in, deque()
        for frame in held:
            if not self._closed:
                self._on_frame(memoryview(bytearray(frame)))

    def close(self) -> None:
        self._closed = True
        if not self._out:
            self.inner.close()
