"""Scenarios of groups that a test and a planted bug share."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode
from tests.machines.group_harness import GROUP, Harness

FIRST, SECOND = ("t", 0), ("t", 1)


def commit_in_a_transaction_before_a_tombstone(harness: Harness) -> None:
    """The offsets of a transaction survive the compaction although the tombstone of their group comes after them."""
    harness.commit({FIRST: 1})
    harness.commit_in_transaction({FIRST: 5, SECOND: 6})
    assert harness.groups.delete_group(GROUP) is ErrorCode.NONE
    harness.end_transaction(commit=True)
    harness.log.compact()
    harness.fail_over()
    assert (harness.offset(FIRST), harness.offset(SECOND)) == (5, 6)
