"""Power is lost at every call of a compaction to the disk, and the log comes back with the old segments or the new
ones.

For any unsynced writes and renames that the disk keeps: every record in the log was written there, every synced record
is there or has a later record of its key behind it, no aborted or deleted record is back, no offset comes twice, the
indexes fit, and the log can be compacted again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest

from tests.storage.compaction_crashes import crashes, crashes_in_recovery, judged, ways
from tests.storage.disks import at_random, keep_all, keep_nothing


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("every", [pytest.param(23, id="some"), pytest.param(1, marks=pytest.mark.slow, id="all")])
def test_power_is_lost_at_every_call_of_a_compaction(every: int) -> None:
    all_crashes = crashes()
    assert sum(crash.step == "compact" for crash in all_crashes) > 150
    seen: set[object] = set()
    found = [judged(crash, way, choose, seen) for crash in all_crashes[::every] for way, choose in ways(crash).items()]
    wrong = [each for each in found if each is not None]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(found)}", *wrong[:20]])


@pytest.mark.slow
def test_power_is_lost_again_while_the_remains_of_a_compaction_are_cleaned_up() -> None:
    found: list[str | None] = []
    seen: set[object] = set()
    for crash in [each for each in crashes() if each.step == "compact"][::17]:
        for choose in (keep_all, at_random(Random(crash.call), crash.call % 2)):
            for again in crashes_in_recovery(crash, choose):
                kept = again.call % 3
                second = at_random(Random(f"{again.call} again"), kept - 1) if kept else keep_nothing
                found.append(judged(again, "a second loss", second, seen))
    assert len(seen) > 346  # 46 of them stand for the lives that were followed to their end
    wrong = [each for each in found if each is not None]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(found)}", *wrong[:20]])
