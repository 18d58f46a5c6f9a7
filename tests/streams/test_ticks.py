"""Sources of ticks in the driver: the moments, their continuation by another task, and what follows from a tick."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import given

from odradek.streams import (
    LONG,
    STRING,
    ArgumentError,
    Consumed,
    MissingExtraError,
    Produced,
    StreamsBuilder,
    Topology,
    TopologyError,
    TopologyTestDriver,
    log_and_continue,
)
from odradek.streams.commit_metadata import decode_metadata, encode_metadata
from odradek.streams.schedules import CronSchedule, IntervalSchedule, Schedule
from odradek.streams.task import Task
from tests.streams.one_task import Clock, Memory, Seen, one_task, witness

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
START_MS = 1_767_323_045_000
MINUTE = timedelta(minutes=1)


def ticking(**more: Any) -> Topology:
    builder = StreamsBuilder()
    builder.interval(MINUTE, name="minutes", **more).to("out")
    return builder.build()


def ticks(driver: TopologyTestDriver) -> list[tuple[str | None, str]]:
    """The new ticks: key and moment."""
    found = driver.create_output_topic("out", STRING, LONG).read_records_to_list()
    assert all(record.value == record.timestamp for record in found)
    return [(record.key, f"{datetime.fromtimestamp((record.value or 0) / 1000, UTC):%H:%M:%S}") for record in found]


# ---- schedules


@given(st.integers(1, 10**10), st.integers(0, 10**13), st.integers(0, 10**11))
def test_an_interval_has_every_multiple(interval_ms: int, start: int, span: int) -> None:
    schedule = IntervalSchedule(interval_ms)
    moment = schedule.after(start)
    assert moment % interval_ms == 0
    assert start < moment <= start + interval_ms
    latest = schedule.latest(start, start + span)
    assert (latest is None) == (moment > start + span)
    assert latest is None or (latest % interval_ms == 0 and latest + interval_ms > start + span)


def moments(schedule: Schedule, start: datetime, count: int) -> list[str]:
    found = []
    after: int | None = round(start.timestamp() * 1000)
    for _ in range(count):
        assert after is not None
        after = schedule.after(after)
        assert after is not None
        found.append(f"{datetime.fromtimestamp(after / 1000, UTC):%d %H:%M:%S}")
    return found


def test_cron_has_the_moments_of_its_time_zone() -> None:
    assert moments(CronSchedule("*/5 * * * *", "UTC"), START, 2) == ["02 03:05:00", "02 03:10:00"]
    assert moments(CronSchedule("*/20 * * * * *", "UTC"), START, 2) == ["02 03:04:20", "02 03:04:40"]
    assert moments(CronSchedule("30 4 * * MON", "Europe/Berlin"), START, 2) == ["05 03:30:00", "12 03:30:00"]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        # The clock skips from 2:00 to 3:00 on 29 March, and repeats 2:00 to 3:00 on 25 October.
        ("30 2 * * *", datetime(2026, 3, 28), ["28 01:30:00", "29 01:00:00", "30 00:30:00"]),
        ("30 2 * * *", datetime(2026, 10, 24, 12), ["25 00:30:00", "26 01:30:00"]),
        ("30 * * * *", datetime(2026, 10, 24, 23, 50), ["25 00:30:00", "25 01:30:00", "25 02:30:00"]),
    ],
)
def test_cron_at_a_change_of_the_clock_is_debian_s(expression: str, start: datetime, expected: list[str]) -> None:
    schedule = CronSchedule(expression, ZoneInfo("Europe/Berlin"))
    assert moments(schedule, start.replace(tzinfo=UTC), len(expected)) == expected


@given(
    st.sampled_from(["* * * * *", "*/7 3 * * *", "0 0 1 * *", "30 2 * * SUN", "0 12 29 2 *"]),
    st.integers(1_700_000_000_000, 1_800_000_000_000),
    st.sampled_from([1, 59_000, 3_600_000, 100_000_000, 3_000_000_000]),
)
def test_the_latest_moment_of_cron_is_the_last_one_of_iteration(expression: str, start: int, span: int) -> None:
    schedule = CronSchedule(expression, "America/New_York")
    found = schedule.latest(start, start + span)
    if found is None:
        following = schedule.after(start)
        assert following is not None
        assert following > start + span
    else:
        assert start < found <= start + span
        following = schedule.after(found)
        assert following is not None
        assert following > start + span
        assert schedule.after(found - 1) == found


def test_an_expression_without_moments_never_ticks() -> None:
    schedule = CronSchedule("0 0 */20 * 1L", "UTC")  # the last Monday is never the 1st or the 21st
    assert schedule.after(START_MS) is None
    assert schedule.latest(START_MS, START_MS + 10**9) is None
    builder = StreamsBuilder()
    builder.cron("0 0 */20 * 1L").to("out")
    with TopologyTestDriver(builder.build(), initial_wall_clock=START) as driver:
        driver.advance_wall_clock_time(timedelta(days=40))
        assert ticks(driver) == []


@pytest.mark.parametrize(
    ("expression", "timezone", "message"),
    [
        ("* * * *", "UTC", "'\\* \\* \\* \\*' is no cron expression: Wrong number of fields"),
        ("61 * * * *", "UTC", "Bad minute"),
        ("* * * * *", "Europe/Nowhere", "'Europe/Nowhere' is no time zone"),
        ("* * * * *", "/etc/passwd", "is no time zone"),
        (None, "UTC", "None is no cron expression"),
    ],
)
def test_wrong_expressions_and_time_zones(expression: Any, timezone: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        StreamsBuilder().cron(expression, timezone=timezone)


def test_cron_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(MissingExtraError, match=r"StreamsBuilder\.cron needs .* with its extra 'cron'"):
        StreamsBuilder().cron("* * * * *")


# ---- a source in the driver


def test_a_tick_comes_when_the_wall_clock_reaches_its_moment() -> None:
    with TopologyTestDriver(ticking(), initial_wall_clock=START) as driver:
        driver.advance_wall_clock_time(54_999)
        assert ticks(driver) == []
        driver.advance_wall_clock_time(1)
        assert ticks(driver) == [("minutes", "03:05:00")]
        driver.advance_wall_clock_time(timedelta(seconds=59))
        assert ticks(driver) == []
        driver.advance_wall_clock_time(timedelta(seconds=2))
        assert ticks(driver) == [("minutes", "03:06:00")]


def test_cron_ticks() -> None:
    builder = StreamsBuilder()
    builder.cron("0 6 * * *", timezone="Europe/Berlin", name="breakfast").to("out", Produced(STRING, LONG))
    with TopologyTestDriver(builder.build(), initial_wall_clock=START) as driver:
        for _ in range(3):
            driver.advance_wall_clock_time(timedelta(days=1))
        assert ticks(driver) == [("breakfast", "05:00:00")] * 3


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("skip", ["03:08:00"]), ("once", ["03:08:00"]), ("all", ["03:05:00", "03:06:00", "03:07:00", "03:08:00"])],
)
def test_moments_that_a_busy_thread_has_missed(catch_up: Any, expected: list[str]) -> None:
    with TopologyTestDriver(ticking(catch_up=catch_up), initial_wall_clock=START) as driver:
        driver.advance_wall_clock_time(timedelta(minutes=4))
        assert [moment for _, moment in ticks(driver)] == expected
        driver.advance_wall_clock_time(MINUTE)
        assert [moment for _, moment in ticks(driver)] == ["03:09:00"]


def test_ticks_are_records_as_others() -> None:
    """They advance stream time, merge with other streams, and may be awaited for; they have no origin."""
    seen: list[Seen] = []

    async def report(key: str, moment: int) -> tuple[str, int]:
        return f"{key}!", moment

    builder = StreamsBuilder()
    records = builder.stream("in", Consumed(STRING, LONG))
    merged = builder.interval(MINUTE, name="minutes").map_async(report).merge(records)
    merged.process(witness(seen)).to("out", Produced(STRING, LONG))
    with TopologyTestDriver(builder.build(), initial_wall_clock=START) as driver:
        driver.advance_wall_clock_time(MINUTE)
        driver.create_input_topic("in", STRING, LONG).pipe_input("k", 7, timestamp=7)
    at = START_MS + 55_000
    assert [(each.record.key, each.record.value, each.record.timestamp) for each in seen] == [
        ("minutes!", at, at),
        ("k", 7, 7),
    ]
    assert seen[0].origin is None
    assert [each.stream_time for each in seen] == [at, at]


def test_a_record_that_others_write_to_the_topic_is_dropped() -> None:
    with TopologyTestDriver(ticking(), initial_wall_clock=START) as driver:
        driver.create_input_topic(
            f"{driver.config['application.id']}-minutes-ticks-repartition", STRING, LONG
        ).pipe_input("k", 1)
        assert ticks(driver) == []
        assert driver.dropped_records == 1


def test_names() -> None:
    builder = StreamsBuilder()
    builder.interval(1)
    builder.interval(1, name="named")
    topology = builder.build()
    assert {name: topic.partitions for name, topic in topology.internal_topics.items()} == {
        "KSTREAM-TICKS-0000000001-repartition": 1,
        "named-ticks-repartition": 1,
    }
    assert list(topology.nodes) == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-TICKS-0000000001",
        "named-ticks-repartition-source",
        "named",
    ]
    with pytest.raises(TopologyError, match="illegal"):
        builder.interval(1, name="a b")
    with pytest.raises(ArgumentError, match="1 ms or more, not 0 ms"):
        builder.interval(timedelta(microseconds=3))
    with pytest.raises(
        ArgumentError, match=r"catch_up='twice' at .*test_ticks\.py:\d+; expected one of skip, once, all"
    ):
        builder.interval(1, catch_up="twice")  # type: ignore[arg-type]


# ---- a task that continues the work of another


TICKS_TOPIC = "minutes-ticks-repartition"
PLACE = (f"app-{TICKS_TOPIC}", 0)
FIRST = START_MS + 55_000


def tick(task: Task, memory: Memory) -> list[int]:
    """Call due punctuators. Returns the moments of the new ticks."""
    memory.written.clear()
    task.punctuations.run_system_time()
    return [int.from_bytes(value or b"", "big") for value in memory.of("out")]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("skip", []), ("once", [FIRST + 300_000]), ("all", [FIRST + 60_000 * number for number in range(1, 6)])],
)
def test_a_task_continues_behind_the_last_committed_tick(catch_up: Any, expected: list[int]) -> None:
    clock = Clock(START_MS)
    with one_task(ticking(catch_up=catch_up), clock=clock) as (task, memory):
        assert task.commit_needed  # the begin: a crash before the first tick does not move it
        offset, metadata = task.committable()[PLACE]
        assert (offset, decode_metadata(metadata)[1]) == (0, {TICKS_TOPIC: START_MS})
        task.committed()
        clock.now_ms += 60_000
        assert tick(task, memory) == [FIRST]
        assert task.commit_needed
        committed = task.committable()[PLACE]
    clock.now_ms += 300_000
    with one_task(ticking(catch_up=catch_up), clock=clock, commits={PLACE: committed}) as (task, memory):
        clock.now_ms += 1
        assert tick(task, memory) == expected
        clock.now_ms = FIRST + 360_000
        assert tick(task, memory) == [FIRST + 360_000]


def test_a_task_whose_clock_is_behind_repeats_no_tick() -> None:
    commit = (7, encode_metadata(-1, {TICKS_TOPIC: FIRST}))
    clock = Clock(START_MS)
    for catch_up in ("skip", "once", "all"):
        clock.now_ms = START_MS
        with one_task(ticking(catch_up=catch_up), clock=clock, commits={PLACE: commit}) as (task, memory):
            clock.now_ms = FIRST + 59_999
            assert tick(task, memory) == []
            assert task.committable()[PLACE][0] == 7
            clock.now_ms += 1
            assert tick(task, memory) == [FIRST + 60_000]


def test_many_missed_moments_are_made_up_in_parts() -> None:
    """The thread commits and polls its group in between."""
    clock = Clock(START_MS)
    commit = (0, encode_metadata(-1, {TICKS_TOPIC: FIRST - 60_000 * 2_500}))
    with one_task(ticking(catch_up="all"), clock=clock, commits={PLACE: commit}) as (task, memory):
        counts = []
        while moments := tick(task, memory) if clock.advance() else []:
            counts.append(len(moments))
        assert counts == [1_000, 1_000, 499]


def test_only_the_task_of_the_first_partition_makes_ticks() -> None:
    """A sub-topology that reads other topics, too, has more tasks."""
    clock = Clock(START_MS)
    with one_task(ticking(), clock=clock, partition=1) as (task, memory):
        clock.now_ms += 60_000
        assert tick(task, memory) == []
        assert not task.commit_needed


def test_a_failed_tick_is_not_repeated_by_its_task() -> None:
    seen: list[int] = []

    def fail_once(moment: int) -> None:
        seen.append(moment)
        if len(seen) == 1:
            raise ZeroDivisionError

    builder = StreamsBuilder()
    builder.interval(MINUTE, name="minutes").foreach(fail_once)
    clock = Clock(START_MS)
    with one_task(builder.build(), clock=clock, processing_exception_handler=log_and_continue) as (task, memory):
        for _ in range(2):
            clock.now_ms += 60_000
            tick(task, memory)
    assert seen == [FIRST, FIRST + 60_000]


def test_the_greatest_committed_number_of_a_processor_counts() -> None:
    """The partitions of a task are not always committed together: one of them may have older metadata."""
    latest, older = (encode_metadata(-1, {TICKS_TOPIC: moment}) for moment in (FIRST, FIRST - 60_000))
    for first, second in ((latest, older), (older, latest)):
        builder = StreamsBuilder()
        merged = builder.interval(MINUTE, name="minutes").merge(builder.stream("in", Consumed(STRING, LONG)))
        merged.to("out", Produced(STRING, LONG))
        commits = {("in", 0): (5, first), PLACE: (0, second)}
        with one_task(builder.build(), clock=Clock(FIRST), commits=commits) as (task, _):
            assert task.context.processor_metadata == {TICKS_TOPIC: FIRST}
