"""Leader elections: equal to those of Kafka, and with invariants of every election."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.controller.state import election
from odradek.broker.controller.state.election import Elected
from tests.machines.kafka_decides import ask, numbers

KINDS = ("offline", "unclean", "preferred", "reassigned", "leaving")


class Case(NamedTuple):
    """A partition, and its live brokers, including those that are shutting down."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    live: tuple[int, ...]
    leaving: tuple[int, ...]


def elect(kind: str, case: Case) -> Elected | None:
    able = [each for each in case.live if each not in case.leaving]
    if kind == "preferred":
        return election.preferred(case.replicas, case.isr, able)
    if kind == "reassigned":
        return election.reassigned(case.replicas, case.isr, able)
    if kind == "leaving":
        return election.controlled_shutdown(case.replicas, case.isr, case.live, case.leaving)
    return election.offline(case.replicas, case.isr, able, allow_unclean=kind == "unclean")


def subsets(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for size in range(len(items) + 1):
        yield from combinations(items, size)


def all_cases() -> Iterator[Case]:
    """Every state of partitions with one to three replicas; the ISR in the order in which its members joined."""
    for replicas in ((1,), (2, 1), (1, 2), (1, 2, 3), (3, 1, 2)):
        for isr, live in product(subsets(tuple(reversed(replicas))), subsets(replicas)):
            if isr:
                yield from (Case(replicas, isr, live, leaving) for leaving in subsets(live))


@pytest.mark.jvm
def test_kafka_elects_the_same() -> None:
    given_ = [(kind, case) for case in all_cases() for kind in KINDS]
    answers = ask([f"elect {kind} {' '.join(map(numbers, case))}" for kind, case in given_])
    wrong = []
    for (kind, case), answer in zip(given_, answers, strict=True):
        elected = elect(kind, case)
        recovery = "RECOVERING" if elected is not None and elected.is_unclean else "RECOVERED"
        ours = "none" if elected is None else f"{elected.leader}/{numbers(elected.isr)}/{recovery}"
        if ours != answer:
            wrong.append((kind, case, ours, answer))
    assert wrong == []
    assert len(given_) > 1000


CASES = st.sampled_from(sorted(all_cases()))


@given(CASES, st.sampled_from(KINDS))
def test_a_live_leader_stays_and_is_in_its_isr(case: Case, kind: str) -> None:
    elected = elect(kind, case)
    if elected is not None:
        assert elected.leader in elected.isr
        assert elected.leader in case.live
        assert elected.leader in case.replicas
        assert elected.leader not in case.leaving


@given(CASES, st.sampled_from(KINDS))
def test_only_an_unclean_election_leaves_the_isr(case: Case, kind: str) -> None:
    elected = elect(kind, case)
    if elected is not None and not elected.is_unclean:
        assert set(elected.isr) <= set(case.isr)
    if elected is not None and elected.is_unclean:
        assert kind == "unclean"
        assert elected.isr == (elected.leader,)
        assert not set(case.isr) & (set(case.live) - set(case.leaving)), "a member of the ISR could have led"


@given(CASES)
def test_a_live_in_sync_replica_is_always_found(case: Case) -> None:
    able = set(case.isr) & set(case.live) - set(case.leaving)
    for kind in ("offline", "reassigned", "leaving"):
        assert (elect(kind, case) is not None) is bool(able)
