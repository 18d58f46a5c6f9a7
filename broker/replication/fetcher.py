"""The followers' loop: one for each leader that this broker follows, fetching all its partitions in one request.

A `LeaderFetcher` has one request under way at a time. An answer is written to the logs while it stands in the receive
buffer, then the next request goes out; its offsets tell the leader what has been written. Everything that can go wrong
with one partition (a new epoch that has not got about yet, a log that has diverged, an offset that the leader no longer
has) is settled for that partition while the others go on. When the leader is lost, the loop waits
`replica.fetch.backoff.ms` and connects anew; the controller will say if there is another leader.

What to cut and what to ask is decided in `replication/state/follower.py`; Kafka's classes are ReplicaFetcherThread and
AbstractFetcherThread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from zlib import crc32

from odradek.broker.network.inter_broker_connection import Network, Peer, PeerLostError
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.follower import FetchSession, Position
from odradek.broker.runtime.timers import Timer
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

FIRST_BACKOFF_MS: Final = 20
"""How long a partition is left out after a first error; twice as long with each further one, up to the property."""
MOST_DOUBLINGS: Final = 16
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
"""Leader, and which of the loops for it."""


class FetchSettings(NamedTuple):
    """Kafka's replica.fetch.* properties and who asks."""

    broker_id: int
    broker_epoch: Callable[[], int]
    max_wait_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000
    fetchers: Callable[[], int] = lambda: 1
    """Connections over which each leader is followed (num.replica.fetchers)."""


class _Followed:
    """A partition of the leader."""

    __slots__ = ("asking", "errors", "lag", "leader_epoch", "not_before_ms", "replica")

    def __init__(self, replica: Replica, leader_epoch: int) -> None:
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.not_before_ms = 0
        self.errors = 0
        """How many errors the leader has answered for it in a row."""
        self.lag = 0
        """Records below the leader's high watermark that are not here yet."""
        self.asking = False
        """Whether it waits for offsets of the leader, its own being out of range."""


class LeaderFetcher:
    """Follows one leader."""

    def __init__(self, network: Network, settings: FetchSettings, peer: Peer) -> None:
        """Does nothing before a partition is added."""
        self._network = network
        self._settings = settings
        self._peer = peer
        self._followed: dict[Key, _Followed] = {}
        self._in_flight: dict[Key, tuple[_Followed, Position]] | None = None
        self._session: FetchSession[Key] = FetchSession()
        self._timer: Timer | None = None
        self._lost_before = False
        self._backing_off = False
        self._closed = False

    @property
    def address(self) -> tuple[str, int]:
        """Where the leader is."""
        return self._peer.host, self._peer.port

    def __len__(self) -> int:
        return len(self._followed)

    # ---- who is followed

    def follow(self, replica: Replica, leader_epoch: int) -> None:
        """Fetch this partition from its end on, in this epoch."""
        self._followed[replica.topic_id, replica.partition] = _Followed(replica, leader_epoch)
        self._wake()

    def leave(self, replica: Replica) -> None:
        """Fetch this partition no more; what is under way for it is not written."""
        key = (replica.topic_id, replica.partition)
        if key in self._followed and self._followed[key].replica is replica:
            del self._followed[key]

    def replicas(self) -> list[Replica]:
        """The partitions that are followed."""
        return [each.replica for each in self._followed.values()]

    def lags(self) -> list[tuple[str, int, int]]:
        """Topic, partition, and how many records it lacks here, of each partition."""
        return [(each.replica.topic, each.replica.partition, each.lag) for each in self._followed.values()]

    def close(self) -> None:
        """Fetch nothing more."""
        self._closed = True
        self._followed.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._peer.close()

    # ---- the loop

    def _wake(self) -> None:
        """Fetch soon, unless a request is under way."""
        if self._in_flight is None and not self._backing_off:
            self._after(0)

    def _after(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._network.timers.at(self._network.clock.monotonic_ms() + delay_ms, self._next)

    def _next(self) -> None:
        self._timer = None
        self._backing_off = False
        if self._closed or self._in_flight is not None:
            return
        now_ms = self._network.clock.monotonic_ms()
        wanted: dict[Key, Position] = {}
        flight: dict[Key, tuple[_Followed, Position]] = {}
        soonest: int | None = None
        for key, followed in self._followed.items():
            if followed.not_before_ms > now_ms:
                soonest = min(soonest or followed.not_before_ms, followed.not_before_ms)
            elif not followed.asking:
                position = followed.replica.fetch_position(followed.leader_epoch)
                wanted[key] = position
                flight[key] = (followed, position)
        if not wanted:
            if soonest is not None:
                self._after(soonest - now_ms)
            return
        self._in_flight = flight
        # The answer must be there when the next partition that is left out now can be fetched.
        most_wait_ms = self._settings.max_wait_ms if soonest is None else soonest - now_ms
        request = self._request(wanted, most_wait_ms)
        self._peer.ask(request, self._answered, self._lost, self._settings.socket_timeout_ms)

    def _request(self, wanted: dict[Key, Position], most_wait_ms: int) -> m.FetchRequest:
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
            log.warning("%s; %d partitions wait for it", error, len(self._followed))
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
            log.warning("broker %s refuses to be followed: %s", self._peer.host, code.name)
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
        self._next()

    def _take(self, followed: _Followed, asked: Position, data: m.FetchResponse.PartitionData) -> None:
        """One partition's part of an answer."""
        replica = followed.replica
        if self._followed.get((replica.topic_id, replica.partition)) is not followed:
            return  # it is not followed any more, or in another epoch
        code = ErrorCode(data.error_code)
        try:
            if code is ErrorCode.NONE:
                followed.errors = 0
                diverging = data.diverging_epoch
                if diverging is not None and diverging.epoch >= 0:
                    replica.cut_divergence(diverging.epoch, diverging.end_offset, asked)
                else:
                    bounds = data.high_watermark, data.log_start_offset, data.compacted_everywhere
                    epochs = [(each.epoch, each.start_offset) for each in data.leader_epochs]
                    replica.replicate(asked, data.records, *bounds, epochs)
                    followed.lag = max(0, data.high_watermark - replica.log.end_offset)
                return
        except KafkaError as error:
            if replica.log.failure is not None:
                self.leave(replica)
                return
            log.error("%s-%d cannot take what the leader sent: %s", replica.topic, replica.partition, error.message)
            code = error.code
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._ask_offset(followed, LATEST)
        elif code is ErrorCode.FENCED_LEADER_EPOCH:
            self.leave(replica)  # the controller has spoken, or will, of a newer epoch
        else:
            self._hold(followed, code)

    def _hold(self, followed: _Followed, code: ErrorCode) -> None:
        """Leave a partition out for a while.

        A first error mostly means that the control request of a new leader epoch has reached this broker before the
        leader: writes with acks=all wait for this follower, so it asks again soon. (Kafka waits for the whole
        replica.fetch.backoff.ms.)
        """
        replica = followed.replica
        log.info("%s-%d waits for its leader: %s", replica.topic, replica.partition, code.name)
        backoff_ms = min(self._settings.backoff_ms, FIRST_BACKOFF_MS << min(followed.errors, MOST_DOUBLINGS))
        followed.errors += 1
        followed.not_before_ms = self._network.clock.monotonic_ms() + backoff_ms
        self._session.renew([(replica.topic_id, replica.partition)])

    # ---- an offset that the leader does not have

    def _ask_offset(self, followed: _Followed, which: int) -> None:
        """Ask the leader where its log ends or begins (AbstractFetcherThread.fetchOffsetAndTruncate)."""
        followed.asking = True
        replica = followed.replica
        wanted = ListPartition(
            partition_index=replica.partition, current_leader_epoch=followed.leader_epoch, timestamp=which
        )
        request = m.ListOffsetsRequest(
            replica_id=self._settings.broker_id, topics=[ListTopic(name=replica.topic, partitions=[wanted])]
        )
        self._peer.ask(
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
                self._ask_offset(followed, EARLIEST)
                return
            if which == LATEST:
                log.warning(
                    "%s-%d ends at %d, its leader at %d: cut there, as after an unclean election",
                    replica.topic,
                    replica.partition,
                    replica.log.end_offset,
                    received.offset,
                )
                replica.cut(received.offset)
            else:
                replica.begin_at(received.offset)
        except KafkaError as error:
            log.error("%s-%d cannot follow: %s", replica.topic, replica.partition, error.message)
            self.leave(replica)
            return
        followed.asking = False
        self._wake()


def _only(
    topics: Iterable[m.ListOffsetsResponse.ListOffsetsTopicResponse],
) -> m.ListOffsetsResponse.ListOffsetsPartitionResponse | None:
    return next((partition for topic in topics for partition in topic.partitions), None)


class Fetchers:
    """All leaders that this broker follows."""

    def __init__(self, network: Network, settings: FetchSettings) -> None:
        self._network = network
        self._settings = settings
        self._fetchers: dict[_Loop, LeaderFetcher] = {}
        self._leader_of: dict[Replica, _Loop] = {}

    def follow(self, replica: Replica, leader: int, leader_epoch: int, address: tuple[str, int] | None) -> None:
        """Follow this leader, and no other, with this partition. Without an address it waits for the next order."""
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
        """Which of the loops for its leader has this partition: the partitions of a topic take turns."""
        return (crc32(replica.topic.encode()) + replica.partition) % max(1, self._settings.fetchers())

    def resize(self) -> None:
        """There may be more or fewer loops for each leader now: partitions go where they belong."""
        for replica, loop in list(self._leader_of.items()):
            if loop[1] != self._share(replica) and loop in self._fetchers:
                epoch, address = replica.machine.leader_epoch, self._fetchers[loop].address
                self.follow(replica, loop[0], epoch, address)
        self.close_idle()

    def leave(self, replica: Replica) -> None:
        """Follow nobody with this partition."""
        loop = self._leader_of.pop(replica, None)
        if loop is not None and loop in self._fetchers:  # a loop that was left by all has been ended
            self._fetchers[loop].leave(replica)

    def lags(self) -> list[tuple[str, int, int]]:
        """Topic, partition, and how many records it lacks here, of each partition that is followed."""
        return [lag for fetcher in self._fetchers.values() for lag in fetcher.lags()]

    def close_idle(self) -> None:
        """End the loops that have no partition left (ReplicaFetcherManager.shutdownIdleFetcherThreads)."""
        for loop, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                fetcher.close()
                del self._fetchers[loop]

    def close(self) -> None:
        """Follow nobody."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leader_of.clear()

    def _make(self, loop: _Loop, address: tuple[str, int]) -> LeaderFetcher:
        client_id = f"broker-{self._settings.broker_id}-fetcher-{loop[1]}"
        peer = Peer(self._network, f"broker {loop[0]}", *address, client_id)
        return LeaderFetcher(self._network, self._settings, peer)

    def _move(self, loop: _Loop, old: LeaderFetcher, address: tuple[str, int]) -> None:
        """The leader has come back at another address."""
        new = self._fetchers[loop] = self._make(loop, address)
        for replica in old.replicas():
            new.follow(replica, replica.machine.leader_epoch)
        old.close()
