"""The simulation finds the mistakes of the past. `make mutants` says with how many seeds; here the quick ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.simulation.campaign import seeds_to_find

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine")
QUICK = {"KIP-101 loss": 100, "KIP-101 divergence": 100, "KIP-320": 60, "AsyncIsr": 60, "KAFKA-6082": 5} | {
    "lost ack": 20,
    "KAFKA-19999": 20,
    "KAFKA-9807": 20,
    "KAFKA-17507": 40,
    "two owners": 40,
}


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", QUICK)
def test_it_is_found(mutant: str) -> None:
    assert seeds_to_find(mutant, first=0, most=QUICK[mutant]) is not None
