"""`__consumer_offsets` as the group coordinator sees it: records in, records out, and who coordinates what.

Appends have the rules of acks=all, whatever `offsets.commit.required.acks` says (Kafka deprecated it). The topic is
made when the first client asks for a coordinator; until then no group has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek.broker.cluster_view import ClusterView
from odradek.broker.coordinator import partition_for
from odradek.broker.machines.effects import KeyValue
from odradek.broker.machines.group_settings import GroupSettings
from odradek.broker.machines.topics import GROUP_OFFSETS
from odradek.broker.replica import Replica, Replicas
from odradek.broker.topic_creation import TopicCreator, WantedTopic
from odradek.broker.waiting import Clock, Timer, Timers
from odradek.protocol.batch import LOG_OVERHEAD, Header, Record, build, read_header, records
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode, KafkaError

READ_BYTES = 1 << 20
ACKS_ALL = -1
GROUP_KEY = 0
CODECS = {0: Codec.NONE, 1: Codec.GZIP, 2: Codec.SNAPPY, 3: Codec.LZ4, 4: Codec.ZSTD}
"""`offsets.topic.compression.codec` by number."""


class OffsetsTopic:
    """The partitions of `__consumer_offsets` on this broker."""

    def __init__(self, settings: GroupSettings, replicas: Replicas, clock: Clock, timers: Timers) -> None:
        self._settings = settings
        self._replicas = replicas
        self._clock = clock
        self._timers = timers

    def append(self, partition: int, entries: list[KeyValue], done: Callable[[ErrorCode], None]) -> None:
        """Append one batch; `done` hears when it is durable on the in-sync replicas, or why it is not.

        The codes are those of a produce; what they mean to a member of a group, the machines know.
        """
        replica = self._replicas.get(GROUP_OFFSETS, partition)
        if replica is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        now_ms = self._clock.now_ms()
        batch = build(
            [Record(offset, now_ms, key, value, []) for offset, (key, value) in enumerate(entries)],
            codec=CODECS[self._settings.offsets_topic_compression_codec],
        )
        try:
            end_offset = replica.write(batch, now_ms)
        except KafkaError as error:
            done(error.code)
            return
        settled = replica.settled(end_offset, ACKS_ALL)
        if settled is not None:
            done(settled)
            return
        deadline_ms = self._clock.monotonic_ms() + self._settings.offsets_commit_timeout_ms
        CommitWait(replica, end_offset, done).start(self._timers, deadline_ms)

    def read_all(self, partition: int) -> Iterator[tuple[Header, Record]]:
        """Every record of a partition in order, each with the header of its batch.

        Raises KafkaError when the log cannot be read, ProtocolError when a batch cannot.
        """
        replica = self._replicas.get(GROUP_OFFSETS, partition)
        if replica is None:
            return
        offset, end = replica.log.start_offset, replica.log.end_offset
        while offset < end:
            part = replica.read(offset, READ_BYTES, upper=end, at_least_one=True).records
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


class CommitWait:
    """An append of the coordinator that waits for followers or an fsync."""

    __slots__ = ("_done", "_end_offset", "_replica", "_timer")

    def __init__(self, replica: Replica, end_offset: int, done: Callable[[ErrorCode], None]) -> None:
        self._replica = replica
        self._end_offset = end_offset
        self._done = done
        self._timer: Timer | None = None

    def start(self, timers: Timers, deadline_ms: int) -> None:
        """Begin to wait, until the deadline at most."""
        self._timer = timers.at(deadline_ms, lambda: self._finish(ErrorCode.REQUEST_TIMED_OUT))
        self._replica.watch(self)

    def wake(self, replica: Replica) -> None:
        settled = replica.settled(self._end_offset, ACKS_ALL)
        if settled is not None:
            self._finish(settled)

    def _finish(self, code: ErrorCode) -> None:
        self._replica.unwatch(self)
        if self._timer is not None:
            self._timer.cancel()
        self._done(code)


class Coordinators:
    """Which broker coordinates a group: the leader of the group's partition."""

    def __init__(
        self, settings: GroupSettings, view: ClusterView, creator: TopicCreator, replicas: Callable[[], int]
    ) -> None:
        """`replicas()` is the most that `__consumer_offsets` can have now."""
        self._replicas = replicas
        self._settings = settings
        self._view = view
        self._creator = creator

    def coordinator(self, kind: int, key: str, listener: str) -> tuple[ErrorCode, int, str, int, str | None]:
        """Error, node id, host and port of the coordinator as it is reached through a listener, and a text."""
        if kind != GROUP_KEY:
            return _unavailable("transactions are not served yet")
        topic = self._view.topics.get(GROUP_OFFSETS)
        if topic is None:
            self._create_topic()
            return _unavailable(None)
        partition = topic.partitions[partition_for(key, len(topic.partitions))]
        broker = self._view.brokers.get(partition.leader)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is None or endpoint is None:
            return _unavailable(None)
        return ErrorCode.NONE, broker.broker_id, endpoint.host, endpoint.port, None

    def _create_topic(self) -> None:
        self._creator.create([new_topic(GROUP_OFFSETS, self._settings, self._replicas())], lambda outcomes: None)


def new_topic(name: str, settings: GroupSettings, brokers: int) -> WantedTopic:
    """How to make a topic of which only the name is known (AutoTopicCreationManager): this one has its own ways."""
    if name != GROUP_OFFSETS:
        return WantedTopic(name)
    return WantedTopic(
        name,
        partitions=settings.offsets_topic_num_partitions,
        # Kafka waits until there are as many brokers as the property says; one broker alone could then never serve a
        # group with the default of 3.
        replication_factor=min(settings.offsets_topic_replication_factor, brokers),
        configs={
            "cleanup.policy": "compact",
            "segment.bytes": str(settings.offsets_topic_segment_bytes),
            "compression.type": "producer",
        },
    )


def _unavailable(message: str | None) -> tuple[ErrorCode, int, str, int, str | None]:
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1, message
