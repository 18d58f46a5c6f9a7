"""Aggregations by name: each equals a fold in plain Python, in every kind of group, and its state keeps its format."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker_process import BrokerProcess
from odradek.streams import (
    JSON,
    LONG,
    STRING,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyTestDriver,
    Window,
    Windowed,
    list_serde,
    versioned_key_value_store,
)
from odradek.streams import aggregations as agg
from odradek.streams.aggregations.aggregation import Aggregation
from odradek.streams.aggregations.distinct import datum_of
from odradek.streams.aggregations.state import decode, encode
from odradek.streams.errors import ArgumentError, StoreSerializationError, StreamsError
from odradek.streams.extras import MissingExtraError
from odradek.streams.queries import make_view
from odradek.streams.state_query import (
    KeyQuery,
    Query,
    RangeQuery,
    StateQueryRequest,
    TimestampedKeyQuery,
    WindowKeyQuery,
)
from tests.streams.stage import Stage
from tests.support.eventually import eventually

Value = Mapping[str, Any] | None


class Fold(NamedTuple):
    """An aggregation, and what it is of the values of a key in the order of their records."""

    make: Callable[[], Aggregation[Any]]
    of: Callable[[list[Any]], Any]


def numbers(values: list[Any]) -> list[Any]:
    """The field "n" where it is not null, by rules of its own."""
    found = [value.get("n") for value in values if value is not None]
    return [each for each in found if each is not None and not (isinstance(each, float) and math.isnan(each))]


def ranked(values: list[Any], k: int) -> list[Any]:
    """The values with the greatest numbers; equal ones in the order of their bytes."""
    rows = [value for value in values if numbers([value])]
    return sorted(rows, key=lambda row: (-row["n"], encode([row["n"], row])))[:k]


FOLDS: Final[dict[str, Fold]] = {
    "records": Fold(agg.count, len),
    "count": Fold(lambda: agg.count("n"), lambda values: len(numbers(values))),
    "sum": Fold(lambda: agg.sum("n"), lambda values: sum(numbers(values)) if numbers(values) else None),
    "min": Fold(lambda: agg.min("n"), lambda values: min(numbers(values), default=None)),
    "max": Fold(lambda: agg.max(lambda value: value.get("n")), lambda values: max(numbers(values), default=None)),
    "mean": Fold(
        lambda: agg.mean("n"),
        lambda values: sum(numbers(values)) / len(numbers(values)) if numbers(values) else None,
    ),
    "top": Fold(lambda: agg.top_k(2, "n"), lambda values: sorted(numbers(values), reverse=True)[:2]),
    "best": Fold(lambda: agg.top_k(3, by="n"), lambda values: ranked(values, 3)),
    "list": Fold(lambda: agg.collect("n"), numbers),
    "first": Fold(lambda: agg.collect("n", limit=2), lambda values: numbers(values)[:2]),
    "distinct": Fold(lambda: agg.count_distinct("n"), lambda values: len(set(numbers(values)))),
}
ORDERED: Final = ("list", "first")
"""The aggregations whose results depend on the order of the records, where sessions are merged."""

NUMBERS = st.one_of(st.integers(-3, 9), st.sampled_from([None, math.nan, 2**70, 0.5, 2.0]))
VALUES = st.fixed_dictionaries({}, optional={"n": NUMBERS, "s": st.sampled_from(["", "x"])})
RECORDS = st.lists(st.tuples(st.sampled_from("ab"), VALUES, st.integers(0, 60)), max_size=14)
GAP: Final = 5


def groups(windows: Any, records: list[tuple[str, Any, int]]) -> dict[Any, list[Any]]:
    """The values of each key, or of each key and window."""
    found: dict[Any, list[Any]] = {}
    if isinstance(windows, SessionWindows):
        for key in {key for key, _, _ in records}:
            mine = sorted((time for each, _, time in records if each == key))
            edges = [0, *(at for at in range(1, len(mine)) if mine[at] - mine[at - 1] > GAP), len(mine)]
            for low, high in itertools.pairwise(edges):
                first, last = mine[low], mine[high - 1]
                inside = [value for each, value, time in records if each == key and first <= time <= last]
                found[Windowed(key, Window(first, last))] = inside
        return found
    for key, value, time in records:
        start = time // 10 * 10
        place = key if windows is None else Windowed(key, Window(start, start + 10))
        found.setdefault(place, []).append(value)
    return found


def comparable(name: str, result: Any) -> Any:
    """Lists whose order depends on merges without their order; floats as far as the order of sums allows."""
    if name in ORDERED:
        return sorted(result, key=repr)
    return pytest.approx(result, rel=1e-12) if name in ("sum", "mean") and result is not None else result


WINDOWS: Final[dict[str, Any]] = {
    "plain": None,
    "tumbling": TimeWindows.of_size_and_grace(10, 1000),
    "sessions": SessionWindows.of_inactivity_gap_and_grace(GAP, 1000),
}


@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("caching", [True, False], ids=["cached", "uncached"])
def test_every_aggregation_equals_a_fold(kind: str, caching: bool) -> None:
    windows = WINDOWS[kind]
    names = [name for name in FOLDS if not (kind == "sessions" and name == "first")]

    def topology() -> Any:
        builder = StreamsBuilder()
        grouped: Any = builder.stream("in", Consumed(STRING, JSON)).group_by_key(Grouped(STRING, JSON))
        windowed = grouped if windows is None else grouped.windowed_by(windows)
        settled = Materialized("all", caching=caching, store_type="in_memory")
        windowed.agg(settled, **{name: FOLDS[name].make() for name in names})
        return builder.build()

    @given(RECORDS)
    @settings(max_examples=25, deadline=None)
    def run(records: list[tuple[str, Any, int]]) -> None:
        with TopologyTestDriver(topology()) as driver:
            piped = driver.create_input_topic("in", STRING, JSON)
            for key, value, time in records:
                piped.pipe_input(key, value, timestamp=time)
            read = {"plain": driver.get_key_value_store, "tumbling": driver.get_window_store}
            store: Any = read.get(kind, driver.get_session_store)("all")
            rows = (row for key in "ab" for row in store.fetch(key)) if kind == "sessions" else store.all()
            found = dict(rows)
        wanted = groups(windows, records)
        assert found.keys() == wanted.keys()
        for place, values in wanted.items():
            for name in names:
                of_fold = FOLDS[name].of(values)
                own = found[place][name]
                own = sorted(own, key=repr) if name in ORDERED else own
                assert own == comparable(name, of_fold), (place, name)

    run()


@given(st.lists(st.lists(VALUES, max_size=4), min_size=1, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_merged_states_equal_the_state_of_all_in_any_order(parts: list[list[Any]], order: random.Random) -> None:
    for name, fold in FOLDS.items():
        aggregation = fold.make()
        states = [state_of(aggregation, values) for values in parts]
        order.shuffle(states)
        merged = None
        for state in states:
            merged = aggregation.merger("k", merged, decode(encode(state)))
        result: Any = aggregation.result(merged)
        wanted = fold.of([value for part in parts for value in part])
        if name == "first":
            assert len(result) == len(wanted)
        else:
            assert (sorted(result, key=repr) if name in ORDERED else result) == comparable(name, wanted), name


def state_of(aggregation: Aggregation[Any], values: Iterable[Any]) -> Any:
    state = None
    for value in values:
        state = aggregation.aggregator("k", value, state)
    return state


def result_of(aggregation: Aggregation[Any], values: Iterable[Any]) -> Any:
    return aggregation.result(state_of(aggregation, values))


# ---- values and fields


def test_ints_stay_ints_and_decimals_decimals() -> None:
    assert result_of(agg.sum(), [2**80, 1, -1]) == 2**80
    assert type(result_of(agg.sum(), [1, 2])) is int
    assert str(result_of(agg.sum(), [Decimal("0.10"), Decimal("0.20")])) == "0.30"
    assert result_of(agg.mean(), [Decimal("0.1"), Decimal("0.2")]) == Decimal("0.15")
    assert result_of(agg.mean(), [1, 2]) == 1.5
    assert result_of(agg.mean(), [Fraction(1, 3), Fraction(2, 3)]) == Fraction(1, 2)
    with pytest.raises(TypeError):
        result_of(agg.sum(), [Decimal(1), 0.5])


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("n", [{"n": None}, {}, {"n": math.nan}, {"n": Decimal("NaN")}, None]),
        ("n.deeper", [{"n": None}, {}, {"n": {}}, {"n": {"deeper": None}}, None]),
    ],
)
def test_nulls_are_ignored_as_in_sql_and_records_counted(field: str, values: list[Any]) -> None:
    for name in ("sum", "min", "max", "mean"):
        assert result_of(getattr(agg, name)(field), values) is None
    assert result_of(agg.count(field), values) == result_of(agg.count_distinct(field), values) == 0
    assert result_of(agg.collect(field), values) == result_of(agg.top_k(2, field), values) == []
    assert result_of(agg.top_k(2, by=field), values) == []
    assert result_of(agg.count(), values) == 5
    assert result_of(agg.count(lambda value: value), values) == 4


@dataclass
class Customer:
    age: int


class Order(NamedTuple):
    customer: Customer
    lines: dict[str, int]


def test_a_field_is_a_key_an_attribute_a_path_or_a_function() -> None:
    orders = [Order(Customer(30), {"spool": 2}), Order(Customer(50), {"spool": 3, "star": 1})]
    assert result_of(agg.max("customer.age"), orders) == 50
    assert result_of(agg.sum("lines.star"), orders) == 1
    assert result_of(agg.sum(lambda order: order.customer.age), orders) == 80
    with pytest.raises(AttributeError, match="aeg"):
        result_of(agg.max("customer.aeg"), orders)  # an object has all attributes of its class
    for wrong in ("", "a..b", 3, [], b"a"):
        with pytest.raises(ArgumentError, match=r"sum\(\) at .*test_aggregations.py:\d+: the field is"):
            agg.sum(wrong)  # type: ignore[arg-type]
    for make in (lambda: agg.top_k(0), lambda: agg.collect(limit=0), lambda: agg.count_distinct(precision=6)):
        with pytest.raises(ArgumentError, match="expected"):
            make()


def test_ties_do_not_depend_on_the_order_of_the_records() -> None:
    rows = [{"n": 1, "id": "c"}, {"n": 1, "id": "a"}, {"n": 1.0, "id": "b"}, {"n": 2, "id": "d"}]
    for order in itertools.permutations(rows):
        found = result_of(agg.top_k(2, "id", by="n"), order)
        assert found == ["d", "a"]
    assert result_of(agg.top_k(3, "n"), rows) == [2, 1, 1]


@pytest.mark.parametrize("precision", [7, 12, 16])
def test_the_error_of_a_distinct_count_is_that_of_its_precision(precision: int) -> None:
    aggregation = agg.count_distinct(precision=precision)
    half = state_of(aggregation, range(900)), state_of(aggregation, range(600, 1_500))
    both = aggregation.merger("k", *half)
    assert aggregation.result(both) == pytest.approx(1_500, rel=4 * 1.04 / math.sqrt(2**precision))
    assert aggregation.result(aggregation.merger("k", both, both)) == aggregation.result(both)
    assert len(both) <= 2**precision + 100


def test_values_that_are_equal_in_python_are_one() -> None:
    assert {datum_of(each) for each in (1, 1.0, True, Decimal("1.00"), Fraction(1))} == {1}
    assert datum_of(0.5) == datum_of(Decimal("0.50")) == datum_of(Fraction(1, 2))
    assert datum_of(2**80) == datum_of(float(2**80)) == datum_of(Decimal(2**80))
    different = ["1", 1, b"1", None, (1,), 0.1, Decimal("0.1"), math.inf, -math.inf, date(2026, 1, 1), {"a": 1}]
    assert len({datum_of(each) for each in different}) == len(different)
    assert datum_of({"a": 1, "b": 2}) == datum_of({"b": 2, "a": 1})


# ---- the state


STATES: Final[list[tuple[Aggregation[Any], list[Any], str, Any]]] = [
    (agg.count(), [1, 2], "02", 2),
    (agg.sum(), [1, 2**64], "c249010000000000000001", 2**64 + 1),
    (agg.sum(), [0.5], "fb3fe0000000000000", 0.5),
    (agg.sum(), [Decimal("1.50")], "c482211896", Decimal("1.50")),
    (agg.mean(), [3, 5], "820802", 4.0),
    (agg.min(), ["b", "a"], "6161", "a"),
    (agg.max(), [date(2026, 1, 2)], "d903ec6a323032362d30312d3032", date(2026, 1, 2)),
    (agg.max(), [datetime(2026, 1, 2, tzinfo=UTC)], "c074323032362d30312d30325430303a30303a30305a", None),
    (agg.collect(), [{"a": None}, True], "82a16161f6f5", [{"a": None}, True]),
    (agg.top_k(2), [1, 2, 3], "820302", [3, 2]),
    (agg.top_k(1, "v", by="r"), [{"r": 1, "v": "x"}], "8182016178", ["x"]),
    (agg.Combined({"n": agg.count(), "m": agg.mean()}), [7], "a2616e01616d820701", {"n": 1, "m": 7.0}),
]


@pytest.mark.parametrize(
    ("aggregation", "values", "data", "result"), STATES, ids=lambda each: getattr(each, "name", None)
)
def test_the_bytes_of_a_state_are_those_of_the_first_release(
    aggregation: Aggregation[Any], values: list[Any], data: str, result: Any
) -> None:
    assert encode(state_of(aggregation, values)).hex() == data
    restored = aggregation.result(decode(bytes.fromhex(data)))
    assert restored == (values[0] if result is None else result)


SKETCH: Final = "0201070c03080308758166077b65e60834a2610e"


def test_a_sketch_of_the_first_release_can_be_read() -> None:
    sketch = bytes.fromhex(SKETCH)
    aggregation = agg.count_distinct()
    assert aggregation.result(sketch) == 3
    assert state_of(aggregation, [3, 5, 9]) == sketch
    assert aggregation.result(aggregation.aggregator("k", 9, sketch)) == 3


def test_another_set_of_aggregations_continues_with_the_states_of_the_common_ones() -> None:
    before = agg.Combined({"total": agg.sum("n"), "old": agg.count()})
    after = agg.Combined({"total": agg.sum("n"), "new": agg.collect("n")})
    state = decode(encode(state_of(before, [{"n": 2}])))
    assert after.result(state) == {"total": 2, "new": []}
    assert after.result(after.aggregator("k", {"n": 3}, state)) == {"total": 5, "new": [3]}


# ---- in topologies


def test_results_are_in_tables_topics_and_queries() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(STRING, JSON)).group_by_key(Grouped(STRING, JSON))
    means = grouped.mean("n", "means", name="averages")
    means.to_stream().to("means-out", Produced(STRING, JSON))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)).agg("sessions", mean=agg.mean("n"))
    grouped.count_distinct("n", Materialized(store=versioned_key_value_store("versions", 1000, STRING, None)))
    topology = builder.build()
    assert {"averages", "averages-result"} <= topology.nodes.keys()
    assert means.queryable_store_name == "means"
    with TopologyTestDriver(topology) as driver:
        piped = driver.create_input_topic("in", STRING, JSON)
        for time, number in enumerate((2, 4)):
            piped.pipe_input("k", {"n": number}, timestamp=time)
        assert driver.create_output_topic("means-out", STRING, JSON).read_values_to_list() == [2.0, 3.0]
        store, sessions = driver.get_key_value_store("means"), driver.get_session_store("sessions")
        assert store is not None
        assert sessions is not None
        assert (store.get("k"), store.get("none"), store.approximate_num_entries()) == (3.0, None, 1)
        assert list(sessions.fetch("k")) == [(Windowed("k", Window(0, 1)), {"mean": 3.0})]
        stamped, versions = (
            driver.get_timestamped_key_value_store("means"),
            driver.get_versioned_key_value_store("versions"),
        )
        assert stamped is not None
        assert versions is not None
        assert list(stamped.all()) == [("k", (3.0, 1))]
        found = versions.get("k")
        assert found is not None
        assert (found.value, found.timestamp) == (2, 1)
        assert driver.get_state_store("means").get("k") == ([6, 2], 1)

        def view(name: str, kind: str) -> Any:
            return make_view(topology, name, kind, lambda: [(driver.get_state_store(name), nullcontext())])

        assert list(view("means", "key-value").all()) == [("k", 3.0)]
        assert view("means", "timestamped-key-value").get("k") == (3.0, 1)
        assert view("sessions", "session").fetch_session("k", 0, 1) == {"mean": 3.0}
        assert view("versions", "versioned").get("k").value == 2


def test_a_table_is_aggregated_by_what_its_rows_say_now() -> None:
    names = ("records", "count", "sum", "mean", "list")

    def topology() -> Any:
        builder = StreamsBuilder()
        rows = builder.table("in", Consumed(STRING, JSON))
        grouped = rows.group_by(lambda key, row: (row.get("s", ""), row), Grouped(STRING, JSON))
        grouped.agg("all", "node", **{name: FOLDS[name].make() for name in names})
        grouped.sum("n", "sums")
        return builder.build()

    integers = st.fixed_dictionaries(
        {}, optional={"n": st.one_of(st.none(), st.integers(0, 9)), "s": st.sampled_from("xy")}
    )

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), integers)), max_size=12))
    @settings(max_examples=25, deadline=None)
    def run(changes: list[tuple[str, Any]]) -> None:
        rows: dict[str, Any] = {}
        with TopologyTestDriver(topology()) as driver:
            piped = driver.create_input_topic("in", STRING, JSON)
            for key, row in changes:
                rows[key] = row
                piped.pipe_input(key, row)
            found: Any = driver.get_key_value_store("all")
            for group in ("", "x", "y"):
                values = [row for row in rows.values() if row is not None and row.get("s", "") == group]
                result = found.get(group)
                if result is None:
                    assert not values
                    continue
                for name in names:
                    wanted = FOLDS[name].of(values)
                    if name == "list":
                        assert sorted(result[name]) == sorted(wanted)
                    else:  # a sum of rows that have left is 0, as the count is
                        assert (result[name] or 0) == (wanted or 0), name

    run()


@pytest.mark.parametrize(
    ("aggregate", "reason"),
    [
        (lambda table: table.min("n"), r"KTABLE-AGGREGATE-\d+: min\(\) of a table: .*the next one is unknown"),
        (lambda table: table.max("n"), r"max\(\) of a table"),
        (lambda table: table.top_k(2, "n"), r"top_k\(\) of a table"),
        (lambda table: table.collect("n", limit=2), "beyond the limit are unknown"),
        (lambda table: table.count_distinct("n"), "a sketch does not contain"),
        (lambda table: table.agg(n=agg.count(), most=agg.max("n")), r"agg\(\) of a table: most: "),
    ],
)
def test_what_cannot_be_subtracted_is_rejected_by_build(aggregate: Callable[[Any], Any], reason: str) -> None:
    builder = StreamsBuilder()
    aggregate(builder.table("in").group_by(lambda key, row: (key, row)))
    with pytest.raises(ArgumentError, match=reason):
        builder.build()


def untyped(given: Any) -> Any:
    """The same: a type checker would reject what follows as well (test_types.py)."""
    return given


def test_wrong_functions_and_parts_are_rejected() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    grouped.agg(total=agg.sum(untyped(lambda: 1)), best=agg.top_k(1, by=untyped(lambda key, value, more: 1)))
    with pytest.raises(ArgumentError) as caught:
        builder.build()
    assert "total: field is" in str(caught.value)
    assert "best: by is" in str(caught.value)
    for wrong in (grouped.agg, lambda: grouped.agg(total=untyped("amount"))):
        with pytest.raises(ArgumentError, match=r"agg\("):
            wrong()


def test_whole_values_keep_the_serde_of_the_group() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(STRING, LONG)).group_by_key(Grouped(STRING, LONG))
    grouped.max(materialized="max")
    grouped.collect(materialized="list")
    grouped.sum(materialized="sum")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        piped = driver.create_input_topic("in", STRING, LONG)
        piped.pipe_key_value_list([("k", 7), ("k", 3)])
        last = {}
        for store in ("max", "list", "sum"):
            topic = f"app-{store}-changelog"
            while (record := driver.read(topic)) is not None:
                last[store] = record.value
    assert last["max"] == LONG.serialize(7)
    assert last["list"] == list_serde(LONG).serialize([7, 3])
    assert last["sum"] == encode(10)


def test_a_value_without_cbor_is_an_error_with_its_type() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", Consumed(STRING, JSON)).map_values(lambda value: Customer(1)).group_by_key()
    grouped.collect(materialized=Materialized("list", STRING))
    with TopologyTestDriver(builder.build()) as driver:
        piped = driver.create_input_topic("in", STRING, JSON)
        with pytest.raises(StreamsError) as caught:
            piped.pipe_input("k", 1)
        assert isinstance(caught.value.__cause__, StoreSerializationError)
        assert "store list: the value serde cannot take" in str(caught.value)
        assert "give the store a serde, Materialized(value=…)" in str(caught.value)


@pytest.mark.parametrize(("module", "extra"), [("datasketches", "sketches"), ("cbor2", "streams")])
def test_without_its_library_an_aggregation_names_the_extra(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # an import of it fails
    with pytest.raises(MissingExtraError, match=f"install odradek with its extra '{extra}'"):
        agg.count_distinct("n") if module == "datasketches" else encode(1)


@pytest.mark.slow
def test_queries_of_a_running_application_show_results(streams_broker: BrokerProcess, tmp_path: Path) -> None:
    stage = Stage(streams_broker, tmp_path)
    stage.make_topics(1)
    builder = StreamsBuilder()
    words = builder.stream(stage.words, Consumed(STRING, STRING))
    grouped = words.group_by(lambda key, word: "all", Grouped(STRING, STRING))
    grouped.mean(len, "means")
    grouped.windowed_by(TimeWindows.of_size_and_grace(10**15, 0)).agg("windows", mean=agg.mean(len))
    with stage.running(builder.build()) as streams:
        stage.write(["a", "abc"])
        eventually(lambda: streams.store("means").get("all") == 2.0)

        def answer(store: str, query: Query) -> Any:
            (found,) = streams.query(StateQueryRequest(store, query)).partition_results.values()
            return list(found.result) if hasattr(found.result, "__next__") else found.result

        assert answer("means", KeyQuery("all")) == 2.0
        assert answer("means", KeyQuery("none")) is None
        assert answer("means", RangeQuery()) == [("all", 2.0)]
        (result, timestamp) = answer("means", TimestampedKeyQuery("all"))
        assert (result, timestamp > 0) == (2.0, True)

        def windows() -> Any:
            return [(start, mean) for start, (mean, _) in answer("windows", WindowKeyQuery("all", 0, 10**15))]

        # The task changes this store after the other one.
        ((start, _),) = eventually(windows, lambda found: [mean for _, mean in found] == [{"mean": 2.0}])
        assert start % 10**15 == 0
