"""Fetch sessions: store the partitions of a client between fetch requests (KIP-227; Kafka: FetchSession, FetchManager).

For each partition that a client fetches, a session stores the fields of the last request and of the last response. A
request then carries only changed partitions. The response does so, too: it omits a partition without records, error or
changed offsets. The number of sessions is bounded (`max.incremental.fetch.session.cache.slots`, 1000); a full cache
evicts a session that has been idle for two minutes, or one that has fewer partitions than the new one.

An Odradek follower sends the cleaned offset of a partition, and the leader returns the offset below which every replica
has compacted it. The session stores both in the same way as the other offsets.

    | session id | epoch | meaning                                                        |
    |------------|-------|----------------------------------------------------------------|
    | any        | -1    | a full fetch without a session; a session of that id ends      |
    | any        | 0     | a full fetch; a session of that id ends and a new one is made  |
    | known      | next  | an incremental fetch                                           |
    | known      | other | INVALID_FETCH_SESSION_EPOCH                                    |
    | unknown    | > 0   | FETCH_SESSION_ID_NOT_FOUND                                     |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

from odradek.protocol import constructors
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.programs import SHARED

NO_ERROR = ErrorCode.NONE
"""Python 3.11 calls a function to find a member of an enumeration."""
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
NO_TOPIC_ID = bytes(16)
EVICTION_MS = 120_000
MAX_INT32 = 2**31 - 1


@dataclass(slots=True, eq=False, kw_only=True)
class FetchPartition:
    """One partition of a fetch session: the fields of the last request, and the offsets of the last response (Kafka:
    CachedPartition).
    """

    topic: str = ""
    topic_id: bytes = NO_TOPIC_ID
    partition: int = 0
    fetch_offset: int = 0
    max_bytes: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    cleaned_to: int = -1
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    sent_compacted_everywhere: int = -1

    @property
    def key(self) -> tuple[str | bytes, int]:
        """The key of the partition in a request: from version 13 on by topic id, before by topic name."""
        return (self.topic_id if self.topic_id != NO_TOPIC_ID else self.topic, self.partition)

    def forget_bounds(self) -> None:
        """The client may not have applied the last response: include the partition in the next one."""
        self.sent_high_watermark = -1

    def must_respond(self, error: ErrorCode, size: int, high_watermark: int, log_start_offset: int) -> bool:
        """Whether an incremental response has to include this partition. Stores the offsets if it does."""
        respond = (
            size > 0
            or error is not NO_ERROR
            or high_watermark != self.sent_high_watermark
            or log_start_offset != self.sent_log_start_offset
        )
        if error is not NO_ERROR:
            # After an error the next response has to include the partition again, with or without changes.
            self.forget_bounds()
        elif respond:
            self.sent_high_watermark = high_watermark
            self.sent_log_start_offset = log_start_offset
        return respond

    def must_respond_compacted(self, compacted_everywhere: int) -> bool:
        """Whether an incremental response to a follower has to include this partition because `compacted_everywhere`
        has changed.

        Stores the value. After a response without it (-1: an error) the next response includes the partition again.
        """
        respond = compacted_everywhere != self.sent_compacted_everywhere
        self.sent_compacted_everywhere = compacted_everywhere
        return respond


constructors.install(FetchPartition, ((each.name, SHARED, each.default) for each in fields(FetchPartition)))


class FetchSession:
    """The partitions of one client, in the order in which the broker reads them."""

    __slots__ = ("epoch", "partitions", "privileged", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, *, privileged: bool, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.used_ms = now_ms
        self.partitions: OrderedDict[tuple[str | bytes, int], FetchPartition] = OrderedDict()

    def update(self, changed: Iterable[FetchPartition], forgotten: Iterable[tuple[str | bytes, int]]) -> None:
        """Apply the changed and forgotten partitions of an incremental request."""
        partitions = self.partitions
        for new in changed:
            key = new.key
            old = partitions.get(key)
            # A follower in a new leader epoch may have discarded the last response of the old one.
            if old is not None and old.current_leader_epoch == new.current_leader_epoch:
                new.sent_high_watermark = old.sent_high_watermark
                new.sent_log_start_offset = old.sent_log_start_offset
                new.sent_compacted_everywhere = old.sent_compacted_everywhere
            partitions[key] = new
        for key in forgotten:
            partitions.pop(key, None)

    def served(self, keys: Iterable[tuple[str | bytes, int]]) -> None:
        """Move partitions that had records to the end: the next fetch reads the others first, so that none starves."""
        for key in keys:
            if key in self.partitions:
                self.partitions.move_to_end(key)


class FetchContext:
    """The context of one request: its partitions, and whether the response includes all of them or only changes (Kafka:
    FetchContext).
    """

    __slots__ = ("incremental", "partitions", "session")

    def __init__(
        self, partitions: Iterable[FetchPartition], session: FetchSession | None = None, *, incremental: bool = False
    ) -> None:
        self.partitions = list(partitions)
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        """The session id of the response; 0 for none."""
        return self.session.session_id if self.session is not None else NO_SESSION

    def update(
        self,
        partition: FetchPartition,
        error: ErrorCode,
        size: int,
        high_watermark: int,
        log_start_offset: int,
        *,
        compacted_everywhere: int | None,
        diverges: bool,
    ) -> bool:
        """Whether a response includes this partition; stores its offsets (Kafka: updateAndGenerateResponseData).

        `compacted_everywhere` is None for a consumer; `diverges` means that the reader has to truncate its log.
        """
        respond = partition.must_respond(error, size, high_watermark, log_start_offset)
        if diverges:
            partition.forget_bounds()  # a reader that has to truncate first ignores the bounds
            respond = True
        if compacted_everywhere is not None and partition.must_respond_compacted(compacted_everywhere):
            respond = True
        return respond or not self.incremental


class FetchSessions:
    """All fetch sessions of a broker (Kafka: FetchManager and FetchSessionCache)."""

    __slots__ = ("_new_id", "_sessions", "_slots", "evictions")

    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        """`slots` is the largest number of sessions; `new_id()` returns a random int32 above 0."""
        self._slots = slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        """The session, None where it does not exist."""
        return self._sessions.get(session_id)

    def begin(
        self,
        session_id: int,
        epoch: int,
        partitions: list[FetchPartition],
        forgotten: list[tuple[str | bytes, int]],
        *,
        privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchContext:
        """The context of a request; creates, updates or ends its session (FetchManager.newContext).

        Raises KafkaError with FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR (a session began with names and continues with ids, or the other way).
        """
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(session_id, None)
            session = None
            if epoch == INITIAL_EPOCH:
                session = self._admit(len(partitions), privileged=privileged, ids=uses_topic_ids, now_ms=now_ms)
                if session is not None:
                    session.update(partitions, ())
            return FetchContext(partitions, session)
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session_id} is at epoch {session.epoch}, the request is for epoch {epoch}",
            )
        if uses_topic_ids != session.uses_topic_ids:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
                f"fetch session {session_id} cannot mix topic names and topic ids",
            )
        session.update(partitions, forgotten)
        session.used_ms = now_ms
        self._sessions.move_to_end(session_id)
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext(())
        session.epoch = 1 if epoch == MAX_INT32 else epoch + 1
        return FetchContext(session.partitions.values(), session, incremental=True)

    def withhold(self, context: FetchContext) -> int:
        """A response without partitions leaves, because its reader is throttled; returns its session id.

        A session that the request has created ends: the reader has not got all of its partitions (Kafka:
        FetchContext.getThrottledResponse).
        """
        if context.session is not None and not context.incremental:
            self._sessions.pop(context.session_id, None)
            return NO_SESSION
        return context.session_id

    def _admit(self, size: int, *, privileged: bool, ids: bool, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._make_room(size, privileged=privileged, now_ms=now_ms):
            return None
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = FetchSession(session_id, privileged=privileged, uses_topic_ids=ids, now_ms=now_ms)
        self._sessions[session_id] = session
        return session

    def _make_room(self, size: int, *, privileged: bool, now_ms: int) -> bool:
        """Evict the session that is idle longest if it is stale, else a smaller or less privileged one (as Kafka
        does).
        """
        if not self._sessions:
            return False
        victim = next(iter(self._sessions.values()))
        if now_ms - victim.used_ms <= EVICTION_MS:
            candidates = [s for s in self._sessions.values() if privileged or not s.privileged]
            if not candidates:
                return False
            victim = min(candidates, key=lambda s: (s.privileged, len(s.partitions)))
            if victim.privileged == privileged and len(victim.partitions) >= size:
                return False
        del self._sessions[victim.session_id]
        self.evictions += 1
        return True
