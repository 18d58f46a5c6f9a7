"""The contradictions in the offsets of consumer groups: the offsets that a group fetched against those it committed.

A group's offset of one partition is a register. One client at a time writes it, one commit after the other: alone
(OffsetCommit) or as part of a transaction (TxnOffsetCommit, effective with the transaction, KIP-98). A fetch waits for
transactions under way (require_stable, KIP-447). So a fetch returns the last commit that was acknowledged before, or
one that is not known to have failed and began since. A commit that a fetch returned counts as acknowledged.

A plain commit whose response never came may still arrive at any later time, over a connection that the client has given
up; a transaction's cannot, for the client's next transaction, or its successor's first request, has decided the one
before.

- lost-commit: the group has an older offset than one that was acknowledged or fetched, or none
- aborted-commit: it has one that only a failed transaction committed
- garbage-commit: it has one that no client committed before
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.transactions.checker import Anomaly, Outcome

NONE: Final = -1
"""The offset of a group that has none."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset that a client of `group` requested to commit, from `began` to `ended` on the clock of all
    operations.
    """

    group: str
    partition: int
    offset: int
    outcome: Outcome
    began: int
    ended: int
    transaction: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """The offset of `group` in a response to a fetch, from the request to the response."""

    group: str
    partition: int
    offset: int
    began: int
    ended: int


def offset_anomalies(commits: Iterable[Commit], fetches: Iterable[Fetched]) -> list[Anomaly]:
    """Every contradiction, register by register."""
    asked: dict[tuple[str, int], list[Commit]] = defaultdict(list)
    notified: dict[tuple[str, int], list[Fetched]] = defaultdict(list)
    for commit in commits:
        asked[commit.group, commit.partition].append(commit)
    for fetch in fetches:
        notified[fetch.group, fetch.partition].append(fetch)
    return [each for place, some in notified.items() for each in _of_one(asked[place], some)]


def _of_one(commits: Sequence[Commit], fetches: Sequence[Fetched]) -> Iterator[Anomaly]:
    known = {id(each): each.ended for each in commits if each.outcome is Outcome.OK}
    """When a commit was known to be effective."""
    for fetch in sorted(fetches, key=lambda each: each.began):
        before = [each for each in commits if each.began < fetch.ended]
        in_force = (each.began for each in before if known.get(id(each), fetch.began) < fetch.began)
        newest = max(in_force, default=None)
        allowed = [each for each in before if _may_show(each, newest)]
        matching = [each for each in allowed if each.offset == fetch.offset]
        if len(matching) == 1 and (newest is None or matching[0].began > newest):
            known.setdefault(id(matching[0]), fetch.ended)
        elif not matching and not (newest is None and fetch.offset == NONE):
            what = f"{fetch.group} has {fetch.offset} of partition {fetch.partition}"
            yield Anomaly(_kind(fetch, before), f"{what}, and not one of {sorted(each.offset for each in allowed)}")


def _may_show(commit: Commit, newest: int | None) -> bool:
    if commit.outcome is Outcome.FAIL:
        return False
    may_be_late = commit.outcome is Outcome.INFO and not commit.transaction
    return newest is None or commit.began >= newest or may_be_late


def _kind(fetch: Fetched, before: Sequence[Commit]) -> str:
    outcomes = {each.outcome for each in before if each.offset == fetch.offset}
    if fetch.offset == NONE or outcomes - {Outcome.FAIL}:
        return "lost-commit"
    return "aborted-commit" if outcomes else "garbage-commit"
