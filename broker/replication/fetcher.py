"""Replica fetchers: replicate partitions from their leaders (Kafka: ReplicaFetcherThread, AbstractFetcherThread).

A `LeaderFetcher` fetches all partitions of one leader (or a share of them, see num.replica.fetchers) with one request
in flight at a time. It appends the records of a response to the logs from the receive buffer, then sends the next
request; the offsets in that request acknowledge the appended records to the leader. The fetcher handles an error of one
partition (a leader epoch that only one side has received, a diverged log, an offset that the leader no longer has) for
that partition alone and continues with the others. If the connection to the leader is lost, the fetcher waits
`replica.fetch.backoff.ms` and connects again. If there is another leader, the controller sends a LeaderAndIsr request.

`replication/state/follower.py` determines truncation offsets and the contents of fetch requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from mmap import mmap
from typing import Final, NamedTuple
from zlib import crc32

from odradek.broker.network.inter_broker_connection import Network, Peer, PeerLostError
from odradek.broker.quota.replication_quota_manager import ReplicationQuotaManager
from odradek.broker.replication.follower_replica import FollowerReplica
from odradek.broker.replication.partition import Replica, Worker
from odradek.broker.replication.state.follower import FetchPosition, FetchSessionHandler
from odradek.broker.runtime.timers import Clock, Timer
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.staged import STAGED_BYTES
from odradek.storage.validation import ReceivedRun

log = logging.getLogger(__name__)

FIRST_BACKOFF_MS: Final = 20
"""Backoff of a partition after a first error; each further error doubles it, up to replica.fetch.backoff.ms."""
MOST_DOUBLINGS: Final = 16
THROTTLED_MS: Final = 100
"""The time until the next fetch while all partitions are throttled. (Kafka waits for replica.fetch.backoff.ms.)"""
LATEST: Final = -1
EARLIEST: Final = -2
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
ListTopic = m.ListOffsetsRequest.ListOffsetsTopic
ListPartition = m.ListOffsetsRequest.ListOffsetsPartition
Key = tuple[bytes, int]
"""Topic id and index."""
_Loop = tuple[int, int]
"""Broker id of the leader, and the index of the fetcher among those of that leader."""


class FetchSettings(NamedTuple):
    """Kafka's replica.fetch.* properties, and the id and epoch of this broker."""

    broker_id: int
    broker_epoch: Callable[[], int]
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000
    fetchers: Callable[[], int] = lambda: 1
    """Fetchers, each with its own connection, for each leader (num.replica.fetchers)."""
    quota: ReplicationQuotaManager | None = None
    """Limits what throttled replicas fetch."""
    worker: Worker | None = None
    """Its threads write large batches."""


class _Followed:
    """The state of one fetched partition (Kafka: PartitionFetchState)."""

    __slots__ = ("asking", "errors", "follower", "is_in_sync", "lag", "leader_epoch", "not_before_ms")

    def __init__(self, replica: Replica, leader_epoch: int, clock: Clock) -> None:
        self.follower = FollowerReplica(replica, clock)
        self.leader_epoch = leader_epoch
        self.not_before_ms = 0
        self.errors = 0
        """Number of errors in a row that the leader has returned for the partition."""
        self.lag = 0
        """Number of records below the leader's high watermark that this replica does not have yet."""
        self.is_in_sync = False
        """Whether the last response had everything below the leader's high watermark."""
        self.asking = False
        """Whether a ListOffsets request is in flight because the fetch offset was out of range."""

    @property
    def replica(self) -> Replica:
        """The replica of the partition."""
        return self.follower.replica


class LeaderFetcher:
    """Fetches partitions from one leader."""

    def __init__(self, network: Network, settings: FetchSettings, peer: Peer) -> None:
        """Sends no request before a partition is added."""
        self._network = network
        self._settings = settings
        self._peer = peer
        self._followed: dict[Key, _Followed] = {}
        self._in_flight: dict[Key, tuple[_Followed, FetchPosition]] | None = None
        self._session: FetchSessionHandler[Key] = FetchSessionHandler()
        self._timer: Timer | None = None
        self._lost_before = False
        self._backing_off = False
        self._writing = 0
        """Partitions of the last response whose batches threads write; the next request follows them."""
        self._closed = False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the leader."""
        return self._peer.host, self._peer.port

    def __len__(self) -> int:
        return len(self._followed)

    # ---- fetched partitions

    def follow(self, replica: Replica, leader_epoch: int) -> None:
        """Fetch this partition from the end of its log, in this leader epoch."""
        self._followed[replica.topic_id, replica.partition] = _Followed(replica, leader_epoch, self._network.clock)
        self._wake()

    def leave(self, replica: Replica) -> None:
        """Stop fetching this partition; discard its part of a response in flight."""
        key = (replica.topic_id, replica.partition)
        if key in self._followed and self._followed[key].replica is replica:
            del self._followed[key]

    def replicas(self) -> list[Replica]:
        """The replicas of the fetched partitions."""
        return [each.replica for each in self._followed.values()]

    def lags(self) -> list[tuple[str, int, int]]:
        """Topic, partition and lag in records of each fetched partition."""
        return [(each.replica.topic, each.replica.partition, each.lag) for each in self._followed.values()]

    def close(self) -> None:
        """Stop fetching and close the connection."""
        self._closed = True
        self._followed.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._peer.close()

    # ---- fetch requests

    def _wake(self) -> None:
        """Schedule the next fetch, unless a request is in flight or the fetcher backs off."""
        if self._in_flight is None and not self._backing_off and not self._writing:
            self._after(0)

    def _after(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._network.timers.at(self._network.clock.monotonic_ms() + delay_ms, self._next)

    def _next(self) -> None:
        self._timer = None
        self._backing_off = False
        if self._closed or self._in_flight is not None or self._writing:
            return
        now_ms = self._network.clock.monotonic_ms()
        wanted: dict[Key, FetchPosition] = {}
        flight: dict[Key, tuple[_Followed, FetchPosition]] = {}
        soonest: int | None = None
        throttles = self._settings.quota is not None and self._settings.quota.is_active
        for key, followed in self._followed.items():
            if followed.not_before_ms > now_ms:
                soonest = min(soonest or followed.not_before_ms, followed.not_before_ms)
            elif not followed.asking and not (throttles and self._is_throttled(followed)):
                position = followed.follower.fetch_position(followed.leader_epoch)
                wanted[key] = position
                flight[key] = (followed, position)
        if not wanted:
            if soonest is not None:
                self._after(soonest - now_ms)
            elif throttles and any(map(self._is_throttled, self._followed.values())):
                self._after(THROTTLED_MS)
            return
        self._in_flight = flight
        # The leader has to answer before the next delayed partition can be fetched.
        most_wait_ms = self._settings.max_wait_ms if soonest is None else soonest - now_ms
        request = self._request(wanted, most_wait_ms)
        self._peer.send_request(request, self._answered, self._lost, self._settings.socket_timeout_ms)

    def _is_throttled(self, followed: _Followed) -> bool:
        """Whether a replica has to wait: it is throttled and not in sync (Kafka: shouldFollowerThrottle)."""
        quota = self._settings.quota
        if quota is None or followed.is_in_sync:
            return False
        return quota.is_throttled(followed.replica.topic, followed.replica.partition) and quota.is_exceeded()

    def _count(self, replica: Replica, size: int) -> None:
        """Count fetched bytes of a throttled replica, in sync or not, so that the quota is that of all of them."""
        quota = self._settings.quota
        if quota is not None and quota.is_active and quota.is_throttled(replica.topic, replica.partition):
            quota.record(size)

    def _request(self, wanted: dict[Key, FetchPosition], most_wait_ms: int) -> m.FetchRequest:
        settings, session = self._settings, self._session
        changed, forgotten = session.next(wanted)
        topics: dict[bytes, m.FetchRequest.FetchTopic] = {}
        for key in changed:
            topic_id, index = key
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = m.FetchRequest.FetchTopic(topic_id=topic_id)
            position = wanted[key]
            topic.partitions.append(
                m.FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=settings.partition_max_bytes,
                    cleaned_to=position.cleaned_to,
                )
            )
        gone: dict[bytes, m.FetchRequest.ForgottenTopic] = {}
        for key in forgotten:
            topic_id, index = key
            gone.setdefault(topic_id, m.FetchRequest.ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        return m.FetchRequest(
            replica_state=m.FetchRequest.ReplicaState(
                replica_id=settings.broker_id, replica_epoch=settings.broker_epoch()
            ),
            max_wait_ms=min(settings.max_wait_ms, most_wait_ms),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(gone.values()),
        )

    def _lost(self, error: PeerLostError) -> None:
        self._in_flight = None
        if self._closed:
            return
        if not self._lost_before:
            self._lost_before = True
            log.warning(
                "connection to leader lost host=%s port=%d partitions=%d error=%s",
                *self.address,
                len(self._followed),
                error,
            )
        self._session.lost()
        self._back_off()

    def _back_off(self) -> None:
        self._backing_off = True
        self._after(self._settings.backoff_ms)

    def _answered(self, response: m.FetchResponse) -> None:
        flight, self._in_flight = self._in_flight or {}, None
        if self._closed:
            return
        self._lost_before = False
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            log.warning("leader rejected fetch request host=%s port=%d error=%s", *self.address, code.name)
            self._session.reset()
            if code in SESSION_ERRORS:
                self._next()
            else:
                self._back_off()
            return
        self._session.answered(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                found = flight.get((topic.topic_id, data.partition_index))
                if found is not None:
                    self._take(found[0], found[1], data)
        if not self._writing:
            self._next()

    def _take(self, followed: _Followed, asked: FetchPosition, data: m.FetchResponse.PartitionData) -> None:
        """Handle one partition of a fetch response."""
        replica = followed.replica
        if self._followed.get((replica.topic_id, replica.partition)) is not followed:
            return  # the partition is not fetched any more, or in another leader epoch
        code = ErrorCode(data.error_code)
        try:
            if code is ErrorCode.NONE:
                followed.errors = 0
                diverging = data.diverging_epoch
                if diverging is not None and diverging.epoch >= 0:
                    followed.follower.truncate_to_divergence(diverging.epoch, diverging.end_offset, asked)
                elif not self._writes_in_thread(followed, asked, data):
                    bounds = data.high_watermark, data.log_start_offset, data.compacted_everywhere
                    epochs = [(each.epoch, each.start_offset) for each in data.leader_epochs]
                    followed.follower.replicate(asked, data.records, *bounds, epochs)
                    followed.lag = max(0, data.high_watermark - replica.log.end_offset)
                    followed.is_in_sync = followed.lag == 0
                    if data.records:
                        self._count(replica, len(data.records))
                return
        except KafkaError as error:
            if replica.log.failure is not None:
                self.leave(replica)
                return
            code = _logged(error, replica)
        self._refused(followed, code)

    def _writes_in_thread(self, followed: _Followed, asked: FetchPosition, data: m.FetchResponse.PartitionData) -> bool:
        """Let a thread check and write the batches of a large response, and take them then. The fetcher waits, as
        Kafka's thread does while it writes.
        """
        records, worker = data.records, self._settings.worker
        if worker is None or not isinstance(records, memoryview) or not isinstance(records.obj, mmap):
            return False
        if len(records) <= STAGED_BYTES:
            return False
        folder = followed.replica.log.folder
        made: list[ReceivedRun] = []

        def written(error: BaseException | None) -> None:
            self._writing -= 1
            if self._closed:
                return
            if error is None:
                data.records = made.pop()
                self._take(followed, asked, data)
            else:
                self._refused(followed, _logged(error, followed.replica))
            if not self._writing:
                self._next()

        self._writing += 1
        try:
            worker.run(lambda: made.append(ReceivedRun(records, asked.leader_epoch, folder)), written)
        except RuntimeError:  # the threads are closed, because the broker is stopping
            self._writing -= 1
        return True

    def _refused(self, followed: _Followed, code: ErrorCode) -> None:
        """Handle an error of one partition, of the leader or of its records."""
        replica = followed.replica
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._list_offset(followed, LATEST)
        elif code is ErrorCode.FENCED_LEADER_EPOCH:
            self.leave(replica)  # the controller sends this broker a LeaderAndIsr request with the newer leader epoch
        else:
            self._hold(followed, code)

    def _hold(self, followed: _Followed, code: ErrorCode) -> None:
        """Delay the next fetch of a partition.

        A first error usually means that the control request with a new leader epoch has reached this broker before the
        leader. Writes with acks=all wait for this follower, so it fetches again soon. (Kafka waits for the whole
        replica.fetch.backoff.ms.)
        """
        replica = followed.replica
        log.info(
            "delaying fetch of partition topic=%s partition=%d error=%s", replica.topic, replica.partition, code.name
        )
        backoff_ms = min(self._settings.backoff_ms, FIRST_BACKOFF_MS << min(followed.errors, MOST_DOUBLINGS))
        followed.errors += 1
        followed.not_before_ms = self._network.clock.monotonic_ms() + backoff_ms
        self._session.renew([(replica.topic_id, replica.partition)])

    # ---- fetch offset out of range

    def _list_offset(self, followed: _Followed, which: int) -> None:
        """Request the end or start offset of the leader's log (AbstractFetcherThread.fetchOffsetAndTruncate)."""
        followed.asking = True
        replica = followed.replica
        wanted = ListPartition(
            partition_index=replica.partition, current_leader_epoch=followed.leader_epoch, timestamp=which
        )
        request = m.ListOffsetsRequest(
            replica_id=self._settings.broker_id, topics=[ListTopic(name=replica.topic, partitions=[wanted])]
        )
        self._peer.send_request(
            request,
            lambda response: self._offset_received(followed, which, response),
            lambda error: self._offset_unknown(followed, ErrorCode.NETWORK_EXCEPTION),
            self._settings.socket_timeout_ms,
        )

    def _offset_unknown(self, followed: _Followed, code: ErrorCode) -> None:
        followed.asking = False
        self._hold(followed, code)
        self._wake()

    def _offset_received(self, followed: _Followed, which: int, response: m.ListOffsetsResponse) -> None:
        replica = followed.replica
        if self._closed or self._followed.get((replica.topic_id, replica.partition)) is not followed:
            return
        received = _only(response.topics)
        if received is None or received.error_code:
            self._offset_unknown(followed, ErrorCode(received.error_code if received is not None else -1))
            return
        try:
            if which == LATEST and received.offset >= replica.log.end_offset:
                self._list_offset(followed, EARLIEST)
                return
            if which == LATEST:
                log.warning(
                    "truncating log to leader end offset topic=%s partition=%d end_offset=%d leader_end_offset=%d",
                    replica.topic,
                    replica.partition,
                    replica.log.end_offset,
                    received.offset,
                )
                followed.follower.truncate_to(received.offset)
            else:
                followed.follower.truncate_fully_and_start_at(received.offset)
        except KafkaError as error:
            log.error(
                "failed to truncate log, fetching stopped topic=%s partition=%d error=%s",
                replica.topic,
                replica.partition,
                error.message,
            )
            self.leave(replica)
            return
        followed.asking = False
        self._wake()


def _logged(error: BaseException, replica: Replica) -> ErrorCode:
    """The error code, after a log line about the batches that are not appended."""
    log.error(
        "failed to append fetched records topic=%s partition=%d error=%s", replica.topic, replica.partition, error
    )
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR


def _only(
    topics: Iterable[m.ListOffsetsResponse.ListOffsetsTopicResponse],
) -> m.ListOffsetsResponse.ListOffsetsPartitionResponse | None:
    return next((partition for topic in topics for partition in topic.partitions), None)


class Fetchers:
    """All fetchers of this broker (Kafka: ReplicaFetcherManager)."""

    def __init__(self, network: Network, settings: FetchSettings) -> None:
        self._network = network
        self._settings = settings
        self._fetchers: dict[_Loop, LeaderFetcher] = {}
        self._leader_of: dict[Replica, _Loop] = {}

    def follow(self, replica: Replica, leader: int, leader_epoch: int, address: tuple[str, int] | None) -> None:
        """Fetch this partition from this leader only. Without an address, fetch nothing until the next control request
        for the partition.
        """
        self.leave(replica)
        if address is None:
            return
        loop = leader, self._share(replica)
        fetcher = self._fetchers.get(loop)
        if fetcher is not None and fetcher.address != address:
            self._move(loop, fetcher, address)
            fetcher = self._fetchers[loop]
        if fetcher is None:
            fetcher = self._fetchers[loop] = self._make(loop, address)
        self._leader_of[replica] = loop
        fetcher.follow(replica, leader_epoch)

    def _share(self, replica: Replica) -> int:
        """The index of the fetcher for this partition: the partitions of a topic are distributed round-robin."""
        return (crc32(replica.topic.encode()) + replica.partition) % max(1, self._settings.fetchers())

    def resize(self) -> None:
        """Redistribute the partitions after a change of num.replica.fetchers."""
        for replica, loop in list(self._leader_of.items()):
            if loop[1] != self._share(replica) and loop in self._fetchers:
                epoch, address = replica.machine.leader_epoch, self._fetchers[loop].address
                self.follow(replica, loop[0], epoch, address)
        self.close_idle()

    def leave(self, replica: Replica) -> None:
        """Stop fetching this partition."""
        loop = self._leader_of.pop(replica, None)
        if loop is not None and loop in self._fetchers:  # `close_idle` may have removed the fetcher
            self._fetchers[loop].leave(replica)

    def lags(self) -> list[tuple[str, int, int]]:
        """Topic, partition and lag in records of each fetched partition."""
        return [lag for fetcher in self._fetchers.values() for lag in fetcher.lags()]

    def close_idle(self) -> None:
        """Close the fetchers that have no partition (ReplicaFetcherManager.shutdownIdleFetcherThreads)."""
        for loop, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                fetcher.close()
                del self._fetchers[loop]

    def close(self) -> None:
        """Close all fetchers."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leader_of.clear()

    def _make(self, loop: _Loop, address: tuple[str, int]) -> LeaderFetcher:
        client_id = f"broker-{self._settings.broker_id}-fetcher-{loop[1]}"
        peer = Peer(self._network, f"broker {loop[0]}", *address, client_id)
        return LeaderFetcher(self._network, self._settings, peer)

    def _move(self, loop: _Loop, old: LeaderFetcher, address: tuple[str, int]) -> None:
        """Replace a fetcher because its leader has another address."""
        new = self._fetchers[loop] = self._make(loop, address)
        for replica in old.replicas():
            new.follow(replica, replica.machine.leader_epoch)
        old.close()
