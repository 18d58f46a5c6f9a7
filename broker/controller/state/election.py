"""Leader election: pure rules over assignment, ISR and live brokers (Kafka: Election and
PartitionLeaderElectionAlgorithms).

Each function returns the new leader and ISR, or None where no replica can lead. Replicas are tried in the order of the
assignment, so the preferred leader comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Elected(NamedTuple):
    """A leader with its ISR. `is_unclean` means that committed records may be missing (KIP-106)."""

    leader: int
    isr: tuple[int, ...]
    is_unclean: bool = False


def offline(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], *, allow_unclean: bool
) -> Elected | None:
    """Replace an offline leader by a live replica of the ISR, or with `allow_unclean` by any live replica."""
    leader = next((each for each in replicas if each in live and each in isr), None)
    if leader is not None:
        return Elected(leader, tuple(each for each in isr if each in live))
    if not allow_unclean:
        return None
    leader = next((each for each in replicas if each in live), None)
    return None if leader is None else Elected(leader, (leader,), is_unclean=True)


def preferred(replicas: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """Elect the first replica of the assignment, if it is live and in sync."""
    first = replicas[0]
    return Elected(first, tuple(isr)) if first in live and first in isr else None


def reassigned(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """Elect a replica of the target assignment that is live and in sync."""
    leader = next((each for each in target if each in live and each in isr), None)
    return None if leader is None else Elected(leader, tuple(isr))


def controlled_shutdown(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], leaving: Collection[int]
) -> Elected | None:
    """Elect a live, in-sync replica that is not leaving. `live` includes leaving replicas; the ISR loses them."""
    leader = next((each for each in replicas if each in live and each in isr and each not in leaving), None)
    return None if leader is None else Elected(leader, tuple(each for each in isr if each not in leaving))
