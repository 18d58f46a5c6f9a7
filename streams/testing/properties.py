"""Properties of stream applications, each a whole test: hypothesis draws the records, a driver runs the application.

    def test_totals_do_not_depend_on_the_order_of_the_topics():
        bought, returned = records(STRING, LONG), records(STRING, LONG)
        same_result_for_any_interleaving(topology, {"bought": bought, "returned": returned})

A property fails as a test of hypothesis does: with the smallest records that it finds. `settings` are those of
hypothesis, by default the ones of the profile; there is no deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from odradek.streams.driver import Span
from odradek.streams.records import Record
from odradek.streams.stores.interface import StateStore
from odradek.streams.testing.driver import StreamsDriver, TestedApplication
from odradek.streams.testing.strategies import hypothesis_module, interleavings

if TYPE_CHECKING:
    from hypothesis import settings as Settings  # noqa: N812
    from hypothesis.strategies import DataObject, SearchStrategy

Inputs = Mapping[str, "SearchStrategy[list[Record[Any, Any]]]"]
"""Strategies of records by topic."""
Result = Callable[[StreamsDriver], Any]
"""What to compare, of a driver that has processed all records."""
Order = Sequence[tuple[str, Record[Any, Any]]]


def tables(driver: StreamsDriver) -> dict[str, dict[str, Any]]:
    """Every output topic as a table: the latest value of each key (as its repr), without deleted ones."""
    found: dict[str, dict[str, Any]] = {}
    for topic in driver.output_topics():
        rows = {repr(key): value for key, value in driver.read(topic)}
        found[topic] = {key: value for key, value in rows.items() if value is not None}
    return found


def same_result_for_any_interleaving(
    application: TestedApplication,
    inputs: Inputs,
    *,
    result: Result = tables,
    config: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
) -> None:
    """The result does not depend on the order in which records of different topics are processed.

    Each topic keeps its order. That holds for aggregations of several topics, and for joins of tables; not for a join
    of a stream with a table, whose row is that of the moment. Raises AssertionError with both orders and results.
    """

    def check(data: DataObject) -> None:
        drawn = _draw(data, inputs)
        one = [(topic, record) for topic, sequence in drawn.items() for record in sequence]
        other = data.draw(interleavings(drawn), label="another order")
        _require_same(application, config, result, one, other)

    _for_all(check, settings)


def same_result_despite_disorder(
    application: TestedApplication,
    inputs: Inputs,
    disorder: Span,
    *,
    result: Result = tables,
    config: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
) -> None:
    """The result does not depend on the order of records whose timestamps are at most `disorder` apart.

    That holds for windowed aggregations whose function does not depend on the order, with a grace of `disorder` or
    more. The strategies draw records in the order of their timestamps. Raises AssertionError with both orders and
    results.
    """
    disorder_ms = disorder // timedelta(milliseconds=1) if isinstance(disorder, timedelta) else disorder

    def check(data: DataObject) -> None:
        st = hypothesis_module("hypothesis.strategies", "odradek.streams.testing")
        drawn = _draw(data, inputs)
        merged = [(topic, record) for topic, sequence in drawn.items() for record in sequence]
        in_order = sorted(merged, key=lambda each: each[1].timestamp)
        delays = st.lists(st.integers(0, disorder_ms), min_size=len(in_order), max_size=len(in_order))
        arrivals = [
            (topic_and_record[1].timestamp + delay, number, topic_and_record)
            for number, (topic_and_record, delay) in enumerate(
                zip(in_order, data.draw(delays, label="delays in ms"), strict=True)
            )
        ]
        _require_same(application, config, result, in_order, [each for _, _, each in sorted(arrivals)])

    _for_all(check, settings)


def no_state_leak(
    application: TestedApplication,
    inputs: Inputs,
    *,
    stores: Iterable[str] | None = None,
    closing: Callable[[StreamsDriver, str, Any], None] | None = None,
    after: Span = 0,
    most: int = 0,
    config: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
) -> None:
    """No rows are left once every key is finished.

    After the records of a draw the time advances by `after`, and each key of each topic is finished by `closing`, a
    function of driver, topic and key; by default it sends a tombstone. The time then advances by `after` again.
    `stores` (by default all that measure their size, which the buffers of suppress do not) may have `most` rows then,
    each. Raises AssertionError.
    """

    def check(data: DataObject) -> None:
        drawn = _draw(data, inputs)
        with StreamsDriver(application, config) as driver:
            for topic, sequence in drawn.items():
                driver.topic(topic).send_records(sequence)
            latest = max((each.timestamp for sequence in drawn.values() for each in sequence), default=0)
            driver.advance(max(0, latest - driver.now_ms))
            driver.advance(after)
            for topic, sequence in drawn.items():
                for key in {repr(each.key): each.key for each in sequence}.values():
                    (closing or _send_tombstone)(driver, topic, key)
            driver.advance(after)
            left = _rows(driver, stores)
        assert all(count <= most for count in left.values()), f"rows that are left, by store: {left}"

    _for_all(check, settings)


def _send_tombstone(driver: StreamsDriver, topic: str, key: Any) -> None:
    driver.topic(topic).send(key, None)


def _rows(driver: StreamsDriver, stores: Iterable[str] | None) -> dict[str, int]:
    """The number of rows of each store that measures its size."""
    names = driver.topology.stores if stores is None else stores
    stores_by_name = {name: driver.driver.get_state_store(name) for name in names}
    sizes = {name: store.store_size() for name, store in stores_by_name.items() if isinstance(store, StateStore)}
    return {name: size.keys for name, size in sizes.items() if size is not None}


def _draw(data: DataObject, inputs: Inputs) -> dict[str, list[Record[Any, Any]]]:
    return {topic: data.draw(strategy, label=topic) for topic, strategy in inputs.items()}


def _require_same(
    application: TestedApplication, config: Mapping[str, Any] | None, result: Result, one: Order, other: Order
) -> None:
    expected, found = (_run(application, config, result, order) for order in (one, other))
    assert found == expected, f"{_shown(one)}\nhas the result {expected!r}, and\n{_shown(other)}\nhas {found!r}"


def _run(application: TestedApplication, config: Mapping[str, Any] | None, result: Result, order: Order) -> Any:
    with StreamsDriver(application, config) as driver:
        topics = {topic: driver.topic(topic) for topic, _ in order}
        for topic, record in order:
            topics[topic].send_records([record])
        return result(driver)


def _shown(order: Order) -> str:
    return "\n".join(f"  {topic} <- {record.key!r}: {record.value!r} at {record.timestamp}" for topic, record in order)


def _for_all(check: Callable[[DataObject], None], given: Settings | None) -> None:
    """Run a property for drawn data."""
    hypothesis = hypothesis_module("hypothesis", "a property of odradek.streams.testing")
    st = hypothesis_module("hypothesis.strategies", "a property of odradek.streams.testing")
    slow = {hypothesis.HealthCheck.too_slow, *(given.suppress_health_check if given is not None else ())}
    # A driver opens stores, so that one example may take longer than hypothesis' deadline.
    settings = hypothesis.settings(given, deadline=None, suppress_health_check=list(slow))
    settings(hypothesis.given(st.data())(check))()
