"""What a follower does with its log when it meets a leader: where it cuts, and what it asks next.

A follower says with each fetch which epoch its last record has. A leader that knows of an earlier end of that epoch
answers with it instead of records, and the follower cuts its log there, perhaps in several steps, before it fetches on
(KIP-101, KIP-279, KIP-595; Kafka's AbstractFetcherThread). It never cuts by its own high watermark, which may lag
behind what was acknowledged; only a log without epochs, older than KIP-101, leaves nothing better.

`FetchSession` is the follower's end of a fetch session (KIP-227): it names each partition once, and after that only
those whose position changed, or of which more has been compacted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

UNDEFINED: Final = -1
Key = TypeVar("Key", bound=Hashable)
"""What names a partition."""


class EpochEnds(Protocol):
    """The epochs of a log (storage's LeaderEpochs)."""

    @property
    def latest(self) -> int:
        """The last epoch, -1 where there is none."""
        ...

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the highest epoch not above `epoch`; (-1, -1) where the log cannot say."""
        ...


def truncation_offset(leader_epoch: int, leader_end: int, epochs: EpochEnds, log_end: int, fallback: int) -> int:
    """Where to cut when the leader says that `leader_epoch`, the largest it has not above the follower's, ended at
    `leader_end`.

    Where the follower does not have that epoch it cuts at the end of its own largest one below, and the next fetch
    asks again. `fallback` is for a leader that cannot say.
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


class Position(NamedTuple):
    """What a fetch says of a partition."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int
    cleaned_to: int = 0
    """Below which the log is compacted. Never -1: in a request that is the sign of who does not know the field."""


class FetchSession(Generic[Key]):
    """The follower's end of the fetch session with one leader."""

    __slots__ = ("_sent", "epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        """Of the next request; 0 begins a session, and ends the one of `session_id`."""
        self._sent: dict[Key, Position] = {}

    def next(self, wanted: dict[Key, Position]) -> tuple[list[Key], list[Key]]:
        """Which partitions the next request names, and which it forgets. It has to be sent, or `reset` called."""
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
        """The leader took the request; `session_id` is 0 where it keeps no session."""
        if session_id == 0:
            self.reset()
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == 2**31 - 1 else self.epoch + 1

    def renew(self, keys: Iterable[Key]) -> None:
        """Name these partitions again with the next request, whatever was sent before."""
        for key in keys:
            if key in self._sent:
                self._sent[key] = Position(UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED)

    def lost(self) -> None:
        """A request may or may not have arrived: the next one begins anew and ends the old session."""
        self.epoch = 0

    def reset(self) -> None:
        """The leader knows no session."""
        self.session_id = self.epoch = 0
