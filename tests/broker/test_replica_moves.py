"""Replicas that move from one data directory to another, on a disk that can crash and fail at each of its calls."""

from __future__ import annotations

import errno
import itertools
import logging
import posixpath
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import pytest

from odradek.broker.replication.follower_replica import FollowerReplica
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.storage.quarantine import QUARANTINE
from tests.broker.replica_places import NAME, PATHS, Clock, Places
from tests.storage.disks import Choose, MemoryDisk, at_random, keep_all, keep_nothing
from tests.storage.r13 import batches_of, check_files


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def opened(*, paths: int = 2) -> Places:
    places = Places(MemoryDisk(), PATHS[:paths])
    places.open()
    places.lead(is_new=True)
    return places


def content(places: Places) -> list[bytes]:
    """The batches that the log serves."""
    log = places.log()
    return [each.data for each in batches_of(log) if each.header.next_offset > log.start_offset]


# ---- crashes

Step = Callable[[Places], None]


def delete_records(places: Places) -> None:
    replica = places.replicas.get(*NAME)
    assert replica is not None
    replica.delete_records(5)


def exhaust(parts: Iterator[object]) -> None:
    deque(parts, 0)


STEPS: list[Step] = [
    *[lambda places: places.append(2500)] * 3,
    lambda places: places.append(900, producer=7),
    delete_records,
    *[lambda places: places.append(2500)] * 3,
    lambda places: places.log().flush(now_ms=0),
    lambda places: exhaust(places.host.write_recovery_points()),
    lambda places: exhaust(places.host.write_start_offsets()),
    lambda places: exhaust(places.host.write_high_watermarks()),
    Places.settle,
    lambda places: places.append(1200),
    lambda places: places.move("/b"),
    *[lambda places: places.hands.turn() and None] * 2,
    lambda places: places.append(900, producer=7, sequence=2),
    lambda places: exhaust(places.host.write_recovery_points()),
    lambda places: places.append(3000),
    Places.settle,
    lambda places: places.append(2500),
    lambda places: exhaust(places.host.write_recovery_points()),
    lambda places: exhaust(places.host.write_start_offsets()),
    lambda places: places.carry_out(places.host.purge()),
    lambda places: places.move("/a"),
    Places.settle,
    lambda places: places.append(600),
]


@dataclass
class Crash:
    """A disk just before a call in a step; the end of the log and the synced part before and after that step."""

    disk: MemoryDisk
    step: int
    call: int
    end: int
    synced: int


def live() -> tuple[list[Crash], dict[int, bytes]]:
    """A crash for each call to the disk, and one for the end of each step; and every written batch, by offset."""
    places = opened()
    crashes: list[Crash] = []
    written: dict[int, bytes] = {}
    for number, step in enumerate(STEPS):
        here: list[Crash] = []
        end, synced = places.log().end_offset, places.log().recovery_point

        def before_call(here: list[Crash] = here, number: int = number, end: int = end, synced: int = synced) -> None:
            here.append(Crash(places.disk.fork(), number, places.disk.plan.calls, end, synced))

        places.disk.plan.before = before_call
        step(places)
        before_call()
        places.disk.plan.before = None
        for crash in here:
            crash.synced = min(crash.synced, places.log().recovery_point)
        crashes += here
        written |= {each.header.base_offset: each.data for each in batches_of(places.log())}
    assert places.where() == ("/a", None)
    return crashes, written


CRASHES, WRITTEN = live()


def check_left(crash: Crash, disk: MemoryDisk, *, power: bool) -> Places:
    """Start on the remaining files: there is one log, valid and with everything that it had; then a move can finish."""
    places = Places(disk)
    places.epoch = 50
    places.open()
    assert not places.directories.offline
    log = places.log()
    found = [each.header for each in batches_of(log)]
    where = f"step {crash.step}, call {crash.call}"
    assert all(one.next_offset == other.base_offset for one, other in itertools.pairwise(found)), where
    assert all(each.data == WRITTEN[each.header.base_offset] for each in batches_of(log)), where
    assert log.start_offset <= 5
    assert log.end_offset >= (crash.synced if power else crash.end), where
    assert not found or found[0].base_offset <= 5
    check_files(log, start=log.start_offset)
    return places


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_any_call_of_a_move_leaves_one_whole_log(part: int) -> None:
    for crash in CRASHES[part::4]:
        left: list[tuple[Choose | None, MemoryDisk]] = []
        other = keep_all if crash.call % 2 else at_random(Random(crash.call), 1)
        for choose in (None, keep_nothing, at_random(Random(crash.call)), other)[crash.call % 3 :]:
            disk = crash.disk.fork()
            if choose is None:
                disk.kill()
            else:
                disk.lose_power(choose)
            left.append((choose, disk))
        for choose, disk in left:
            places = check_left(crash, disk, power=choose is not None)
            before, (here, there) = content(places), places.where()
            places.lead()
            places.settle()
            assert places.where() == (there or here, None), "a started move is finished"
            assert content(places) == before
            places.append(800)
            places.host.retire()
            places.host.close()
            places.open()
            assert content(places)[:-1] == before
            names = {entry.name for path in places.paths for entry in disk.list(path) if entry.is_directory}
            names.discard(posixpath.dirname(QUARANTINE))  # a copy that was torn
            assert {name for name in names if not name.endswith("-delete")} == {"topic-0"}


def test_the_crashes_are_those_of_an_exchange() -> None:
    """Otherwise the test above would prove nothing."""
    seen = set()
    for crash in CRASHES:
        folders = {path: {each.name for each in crash.disk.list(path) if each.is_directory} for path in ("/a", "/b")}
        both = all("topic-0" in names for names in folders.values())
        future = any(name.endswith("-future") for names in folders.values() for name in names)
        seen.add((both, future))
    assert seen == {(False, False), (False, True), (True, False)}


# ---- steps of a move


def test_a_log_moves_with_all_its_state() -> None:
    places = opened()
    for number in range(20):
        places.append(1500, producer=3, sequence=2 * number)
    old = places.log()
    old.epochs.assign(9, old.end_offset)
    known = (old.start_offset, old.end_offset, old.epochs.entries(), old.topic_id, old.config)
    producer, before = old.producers.get(3), content(places)
    places.move("/b")
    assert places.where() == ("/a", "/b")
    places.settle()
    new = places.log()
    assert places.where() == ("/b", None)
    assert (new.start_offset, new.end_offset, new.epochs.entries(), new.topic_id, new.config) == known
    assert new.producers.get(3) is producer
    assert content(places) == before
    assert "/b/topic-0/.replaces" not in places.disk.files
    places.append(1500, producer=3, sequence=40)
    assert new.end_offset == 42
    (deleted,) = [entry.name for entry in places.disk.list("/a") if entry.is_directory]
    assert deleted.startswith("topic-0.")
    assert deleted.endswith("-delete")


def test_continuous_writes_do_not_keep_a_move_from_ending() -> None:
    places = opened()
    places.host.moves.piece_bytes = 2000
    for _ in range(30):
        places.append(900)
    places.move("/b")
    turns = 0
    while places.where() != ("/b", None):
        places.append(3000)
        places.append(900)
        assert places.hands.turn()
        turns += 1
    assert 10 < turns < 200
    assert places.log().end_offset == 2 * (30 + 2 * turns)


def test_a_truncation_also_truncates_the_future_log() -> None:
    places = opened()
    for _ in range(12):
        places.append(2000)
    places.move("/b")
    for turn in range(40):
        if turn in (1, 3, 4):
            replica = places.replicas.get(*NAME)
            assert replica is not None
            FollowerReplica(replica, Clock()).truncate_to(places.log().end_offset - 8)
            places.lead()
            for _ in range(3):
                places.append(1000 + turn)
        places.hands.turn()
    expected = content(places)
    assert places.where() == ("/b", None)
    assert places.log().end_offset == 2 * len(expected) == 2 * (12 - 3)
    check_files(places.log())


def test_a_log_whose_start_runs_ahead_is_copied_from_there() -> None:
    places = opened()
    for _ in range(20):
        places.append(2500)
    places.move("/b")
    places.hands.turn()
    replica = places.replicas.get(*NAME)
    assert replica is not None
    replica.delete_records(31)
    places.carry_out(places.host.delete_old_segments(lambda directory: False))
    places.settle()
    assert places.where() == ("/b", None)
    assert (places.log().start_offset, places.log().end_offset) == (31, 40)


def test_repeated_requests() -> None:
    places = opened(paths=3)
    for _ in range(5):
        places.append(2500)
    before = content(places)
    places.move("/b")
    places.move("/b")
    assert places.where() == ("/a", "/b")
    places.move("/c")
    assert places.where() == ("/a", "/c")
    places.move("/a")
    assert places.where() == ("/a", None)
    places.settle()
    assert places.where() == ("/a", None)
    assert content(places) == before
    places.move("/a")
    places.move("/c")
    places.settle()
    assert places.where() == ("/c", None)
    assert content(places) == before
    deleted = [entry.name for entry in places.disk.list("/b") if entry.is_directory]
    assert [name.endswith("-delete") for name in deleted] == [True]


def test_invalid_requests_are_refused() -> None:
    places = opened()

    def refusal(name: tuple[str, int], path: str) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            places.move(path, name)
        return refused.value.code

    assert refusal(NAME, "/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
    assert refusal(NAME, "b") is ErrorCode.LOG_DIR_NOT_FOUND
    assert refusal(("t" * 249, 0), "/b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal(("later", 0), "/a") is ErrorCode.REPLICA_NOT_AVAILABLE
    places.host.obtain(("other", 0), bytes(16), {})
    assert places.where(("other", 0)) == ("/b", None)
    places.host.obtain(("later", 0), bytes(16), {})
    assert places.where(("later", 0)) == ("/a", None), "as requested, although both have as many"
    (_, b) = places.directories
    b.fail("test")
    assert refusal(NAME, "/b") is ErrorCode.KAFKA_STORAGE_ERROR
    assert refusal(("other", 0), "/a") is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_deleted_partition_is_gone_from_both_directories() -> None:
    places = opened()
    for _ in range(5):
        places.append(2500)
    places.move("/b")
    places.hands.turn()
    places.host.release(NAME, delete=True)
    places.settle()
    assert places.where() == (None, None)
    for path in places.paths:
        assert all(entry.name.endswith("-delete") for entry in places.disk.list(path) if entry.is_directory)
    places.lead(is_new=True)
    assert places.log().end_offset == 0


# ---- disks that fail


@pytest.mark.parametrize("failing", ["/a", "/b"])
def test_a_move_to_a_failed_directory_is_abandoned(failing: str) -> None:
    places = opened()
    for _ in range(5):
        places.append(2500)
    before = content(places)
    places.move("/b")
    places.hands.turn()
    next(each for each in places.directories if each.path == failing).fail("test")
    places.settle()
    assert places.end is None
    replica = places.replicas.get(*NAME)
    assert replica is not None
    if failing == "/a":
        assert places.lost == [replica]
    else:
        assert places.lost == []
        places.append(800)
    places.disk.kill()
    places.open()
    places.lead()
    places.settle()
    assert places.where() == ("/b", None)
    assert content(places)[:5] == before


def calls_of_a_move() -> tuple[int, int]:
    places = opened()
    for _ in range(4):
        places.append(2500)
    first = places.disk.plan.calls
    places.move("/b")
    places.settle()
    return first, places.disk.plan.calls


FIRST, LAST = calls_of_a_move()


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_no_failing_call_of_a_move_loses_records(*, lasting: bool) -> None:
    for call in range(FIRST, LAST):
        places = opened()
        for _ in range(4):
            places.append(2500)
        before = content(places)
        places.disk.plan.at, places.disk.plan.lasting = call, lasting
        with suppress(KafkaError):
            places.move("/b")
        places.settle()
        assert places.disk.plan.failed
        assert places.directories.offline, f"call {call}"
        places.disk.plan.recover()
        places.disk.kill()
        again = Places(places.disk)
        again.epoch = 50
        again.open()
        assert content(again) == before, f"call {call}"
        again.lead()
        again.settle()
        assert content(again) == before, f"call {call}"


def test_a_move_without_room_continues_when_there_is_room() -> None:
    places = opened()
    for _ in range(4):
        places.append(2500)
    places.move("/b")
    places.hands.turn()
    places.disk.plan.fail_next(errno.ENOSPC)
    places.settle()
    assert places.disk.plan.failed
    assert places.directories.offline == []
    assert places.where() == ("/a", "/b")
    places.carry_out(places.host.purge())
    places.settle()
    assert places.where() == ("/b", None)
    assert places.log().end_offset == 8


def test_a_mark_stays_while_an_old_log_may_come_back() -> None:
    places = opened(paths=3)
    for _ in range(3):
        places.append(2500)
    places.move("/b")
    a, _, _ = places.directories

    calls = 0

    def fail_the_next_rename() -> None:
        nonlocal calls
        calls += any(entry.name == "topic-0" for entry in places.disk.list("/b"))
        if calls == 2:
            places.disk.plan.fail_next()  # the first one makes the new name durable

    places.disk.plan.before = fail_the_next_rename
    places.settle()
    places.disk.plan.before = None
    places.disk.plan.recover()
    assert a.failure is not None
    assert places.where() == ("/b", None)
    for _ in range(3):
        places.append(900)
    after = content(places)
    assert {entry.name for entry in places.disk.list("/a") if entry.is_directory} == {"topic-0"}
    assert "/b/topic-0/.replaces" in places.disk.files
    places.disk.kill()
    places.open()
    assert content(places) == after
    assert "/b/topic-0/.replaces" not in places.disk.files
