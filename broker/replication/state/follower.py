"""Follower state: truncation offsets, fetch positions and the follower's fetch session (Kafka: AbstractFetcherThread).

With each fetch a follower sends the leader epoch of its last record. If that epoch ends earlier in the leader's log,
the leader returns the end offset instead of records. The follower truncates its log there, possibly in several steps,
before it continues to fetch (KIP-101, KIP-279, KIP-595). A follower does not truncate to its own high watermark, which
may be below acknowledged records. The only exception is a log without leader epochs (older than KIP-101), for which
there is no other offset.

`FetchSessionHandler` is the follower's side of a fetch session (KIP-227; Kafka: FetchSessionHandler): the follower
sends each partition once, and after that only partitions whose position or cleaned offset has changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

UNDEFINED: Final = -1
Key = TypeVar("Key", bound=Hashable)
"""Key of a partition."""


class EpochEnds(Protocol):
    """The epochs of a log (storage's LeaderEpochs)."""

    @property
    def latest(self) -> int:
        """The last epoch, -1 if there is none."""
        ...

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the highest epoch not above `epoch`; (-1, -1) if the log has no such epoch."""
        ...


def truncation_offset(leader_epoch: int, leader_end: int, epochs: EpochEnds, log_end: int, fallback: int) -> int:
    """The offset to which the follower truncates its log. `leader_epoch` is the leader's largest epoch that is not
    above the follower's last one; it ends at `leader_end` in the leader's log.

    If the follower does not have that epoch, it truncates to the end of its own largest epoch below, and the next fetch
    continues the comparison. `fallback` is for a leader that does not have the end offset.
    """
    if leader_end == UNDEFINED:
        return min(fallback, log_end)
    if leader_epoch == UNDEFINED:
        return min(leader_end, log_end)
    own_epoch, own_end = epochs.end_offset(leader_epoch, log_end)
    if own_end == UNDEFINED:
        return min(leader_end, log_end)
    if own_epoch != leader_epoch:
        return min(own_end, log_end)
    return min(own_end, leader_end, log_end)


class FetchPosition(NamedTuple):
    """The fields of a fetch request for one partition."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int
    cleaned_to: int = 0
    """The log is compacted below this offset. Never -1: that is the value of a broker without support for the field."""


class FetchSessionHandler(Generic[Key]):
    """The follower's side of the fetch session with one leader (Kafka: FetchSessionHandler)."""

    __slots__ = ("_sent", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        """The session epoch of the next request; 0 begins a session and ends session `session_id`."""
        self._sent: dict[Key, FetchPosition] = {}

    def next(self, wanted: dict[Key, FetchPosition]) -> tuple[list[Key], list[Key]]:
        """The partitions that the next request adds or changes, and those that it removes from the session. The caller
        sends the request or calls `reset`.
        """
        if self.epoch == 0:
            self._sent = dict(wanted)
            return list(wanted), []
        sent = self._sent
        changed = [key for key, position in wanted.items() if sent.get(key) != position]
        forgotten = [key for key in sent if key not in wanted] if len(sent) + len(changed) > len(wanted) else []
        for key in changed:
            sent[key] = wanted[key]
        for key in forgotten:
            del sent[key]
        return changed, forgotten

    def answered(self, session_id: int) -> None:
        """The leader has answered the request without an error; `session_id` is 0 if it keeps no session."""
        if session_id == 0:
            self.reset()
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == 2**31 - 1 else self.epoch + 1

    def renew(self, keys: Iterable[Key]) -> None:
        """Send these partitions with the next request, even if their position has not changed."""
        for key in keys:
            if key in self._sent:
                self._sent[key] = FetchPosition(UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED)

    def lost(self) -> None:
        """The leader may or may not have received a request: the next one begins a new session and ends the old one."""
        self.epoch = 0

    def reset(self) -> None:
        """The leader has no session for this follower."""
        self.session_id = self.epoch = 0
