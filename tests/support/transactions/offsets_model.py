"""Good histories of group offsets, made by a register that keeps Kafka's guarantees, and faults planted in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tests.support.transactions.checker import Outcome
from tests.support.transactions.offsets import NONE, Commit, Fetched

MOST: Final = 6
"""Offsets are drawn from so few that one is often committed again, as by a client that went back."""
NO_COMMIT: Final = 1_000_000


@dataclass(slots=True)
class OffsetHistory:
    """The commits and fetches of the clients of one group for one partition."""

    commits: list[Commit] = field(default_factory=list)
    fetches: list[Fetched] = field(default_factory=list)


def good_offsets(seed: int, steps: int) -> OffsetHistory:
    """A history without a fault: commits of every kind and outcome, some that take effect late, and fetches."""
    chance = random.Random(seed)
    history = OffsetHistory()
    offset, late = NONE, list[int]()
    for began in range(0, 10 * steps, 10):
        if late and chance.random() < 0.3:
            offset = late.pop(chance.randrange(len(late)))
        if chance.random() < 0.5:
            history.fetches.append(Fetched("group", 0, offset, began, began + 5))
            continue
        wanted, transaction = chance.randrange(MOST), chance.random() < 0.7
        outcome = chance.choice((Outcome.OK, Outcome.OK, Outcome.FAIL, Outcome.INFO))
        history.commits.append(Commit("group", 0, wanted, outcome, began, began + 5, transaction))
        if outcome is Outcome.OK or (outcome is Outcome.INFO and chance.random() < 0.5):
            offset = wanted
        elif outcome is Outcome.INFO and not transaction:
            late.append(wanted)
    history.fetches.append(Fetched("group", 0, offset, 10 * steps, 10 * steps + 5))
    return history


# ---- faults

Notified: TypeAlias = Iterator[tuple[Fetched, int]]
"""A fetch, and an offset that it must not return."""


def _lost(history: OffsetHistory) -> Notified:
    """The offsets that an acknowledged commit has replaced, and that no other commit may have written again."""
    for fetch in history.fetches:
        before = [each for each in history.commits if each.ended < fetch.began]
        acknowledged = [each for each in before if each.outcome is Outcome.OK]
        if not acknowledged:
            continue
        yield fetch, NONE
        for old in acknowledged[:-1]:
            if all(each.offset != old.offset or _is_over(each, acknowledged[-1]) for each in before):
                yield fetch, old.offset


def _is_over(commit: Commit, newest: Commit) -> bool:
    if commit.outcome is Outcome.INFO and not commit.transaction:
        return False
    return commit.outcome is Outcome.FAIL or commit.began < newest.began


def _aborted(history: OffsetHistory) -> Notified:
    for fetch in history.fetches:
        before = [each for each in history.commits if each.began < fetch.began]
        failed = {each.offset for each in before if each.outcome is Outcome.FAIL}
        for offset in failed - {each.offset for each in before if each.outcome is not Outcome.FAIL}:
            yield fetch, offset


def _garbage(history: OffsetHistory) -> Notified:
    for fetch in history.fetches:
        yield fetch, NO_COMMIT


_WAYS: Final[Mapping[str, Callable[[OffsetHistory], Notified]]] = {
    "lost-commit": _lost,
    "aborted-commit": _aborted,
    "garbage-commit": _garbage,
}
OFFSET_FAULTS: Final = tuple(_WAYS)


def planted(kind: str, history: OffsetHistory) -> Iterator[OffsetHistory]:
    """All the ways to plant one of OFFSET_FAULTS in a good history."""
    for fetch, offset in _WAYS[kind](history):
        fetches = [replace(each, offset=offset) if each is fetch else each for each in history.fetches]
        yield OffsetHistory(history.commits, fetches)
