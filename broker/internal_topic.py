"""A topic of the broker's own as its coordinator sees it: records in, records out.

`__consumer_offsets` is one, `__transaction_state` the other. Appends have the rules of acks=all, and hear of their
outcome when the in-sync replicas have them, or why they have not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from odradek.broker.machines.effects import KeyValue
from odradek.broker.replica import ACKS_ALL, Replica, Replicas
from odradek.broker.waiting import Clock, Timer, Timers
from odradek.protocol.batch import LOG_OVERHEAD, Header, Record, build, read_header, records
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError

LOAD_BYTES: Final = 5 << 20


class InternalTopic:
    """The partitions of such a topic on this broker."""

    def __init__(
        self,
        name: str,
        replicas: Replicas,
        clock: Clock,
        timers: Timers,
        *,
        timeout_ms: int,
        codec: Codec = Codec.NONE,
        acks: int = ACKS_ALL,
        load_bytes: int = LOAD_BYTES,
    ) -> None:
        """`timeout_ms` is how long an append may take to reach the in-sync replicas.

        With `acks` of 0 or more it need not reach them; `load_bytes` are read at a time when a coordinator loads.
        """
        self._acks = acks
        self._load_bytes = load_bytes
        self._name = name
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._replicas = replicas
        self._clock = clock
        self._timers = timers

    def append(self, partition: int, entries: list[KeyValue], done: Callable[[ErrorCode], None]) -> None:
        """Append one batch; `done` hears when it is durable on the in-sync replicas, or why it is not.

        The codes are those of a produce; what they mean to a client, the machines know.
        """
        replica = self._replicas.get(self._name, partition)
        if replica is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        now_ms = self._clock.now_ms()
        batch = build(
            [Record(offset, now_ms, key, value, []) for offset, (key, value) in enumerate(entries)],
            codec=self._codec,
        )
        try:
            end_offset = replica.write(batch, now_ms)
        except KafkaError as error:
            done(error.code)
            return
        self._await(replica, end_offset, done, self._acks)

    def when_replicated(self, partition: int, done: Callable[[], None]) -> None:
        """Call `done` once all that stands here now is on the in-sync replicas; never if this broker leads no more."""
        replica = self._replicas.get(self._name, partition)
        if replica is not None:
            end_offset = replica.log.end_offset
            self._await(replica, end_offset, lambda code: self._replicated(replica, end_offset, code, done))

    def _replicated(self, replica: Replica, end_offset: int, code: ErrorCode, done: Callable[[], None]) -> None:
        if code in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            done()
        elif code is ErrorCode.REQUEST_TIMED_OUT:
            self._await(replica, end_offset, lambda code: self._replicated(replica, end_offset, code, done))

    def _await(
        self, replica: Replica, end_offset: int, done: Callable[[ErrorCode], None], acks: int = ACKS_ALL
    ) -> None:
        settled = replica.settled(end_offset, acks)
        if settled is not None:
            done(settled)
            return
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        _Wait(replica, end_offset, acks, done).start(self._timers, deadline_ms)

    def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
        """Every record of a partition in order, each with the header of its batch.

        Raises KafkaError when the log cannot be read, ProtocolError when a batch cannot.
        """
        replica = self._replicas.get(self._name, partition)
        if replica is None:
            return
        offset, end = replica.log.start_offset, replica.log.end_offset
        while offset < end:
            part = replica.read(offset, self._load_bytes, upper=end, at_least_one=True).records
            data = part if isinstance(part, bytes) else part.read()
            position = 0
            while position + LOG_OVERHEAD <= len(data):
                header = read_header(data, position)
                if position + header.size > len(data):
                    break
                if header.last_offset >= offset:
                    for record in records(data, position):
                        yield header, record
                offset = max(offset, header.next_offset)
                position += header.size
            if position == 0:
                return


class _Wait:
    """An append of the coordinator that waits for followers or an fsync."""

    __slots__ = ("_acks", "_done", "_end_offset", "_replica", "_timer")

    def __init__(self, replica: Replica, end_offset: int, acks: int, done: Callable[[ErrorCode], None]) -> None:
        self._acks = acks
        self._replica = replica
        self._end_offset = end_offset
        self._done = done
        self._timer: Timer | None = None

    def start(self, timers: Timers, deadline_ms: int) -> None:
        """Begin to wait, until the deadline at most."""
        self._timer = timers.at(deadline_ms, lambda: self._finish(ErrorCode.REQUEST_TIMED_OUT))
        self._replica.watch(self)

    def wake(self, replica: Replica) -> None:
        settled = replica.settled(self._end_offset, self._acks)
        if settled is not None:
            self._finish(settled)

    def _finish(self, code: ErrorCode) -> None:
        self._replica.unwatch(self)
        if self._timer is not None:
            self._timer.cancel()
        self._done(code)
