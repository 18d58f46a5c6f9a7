"""A program in which type checkers must find nothing, and in which they find the type of each stream."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, assert_type

from odradek.streams import (
    LONG,
    STRING,
    Consumed,
    FixedKeyProcessor,
    Grouped,
    JoinWindows,
    KafkaStreams,
    KStream,
    KTable,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    ReadOnlyStoreMap,
    Record,
    StoreMap,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    TopologyTestDriver,
    Windowed,
    json_serde,
    topic,
    windowed_serde,
)
from odradek.streams import aggregations as agg


@dataclass
class Order:
    customer: str
    pieces: int


class Totals(Processor[str, Order, str, float]):
    """A processor with types of its input and output, and a store as a mapping."""

    def init(self, context: ProcessorContext[str, float]) -> None:
        self.context = context
        self.totals = StoreMap[str, int](context.state_store("totals"))

    def process(self, record: Record[str, Order]) -> None:
        self.totals[record.key] = self.totals.get(record.key, 0) + record.value.pieces
        self.context.forward(record.with_value(float(self.totals[record.key])))


class Halves(FixedKeyProcessor[str, float, float]):
    """A processor of values."""

    def process(self, record: Record[str, float]) -> None:
        self.context.forward(record.with_value(record.value / 2))


async def priced(order: Order) -> float:
    return order.pieces * 0.5


async def customer_of(key: str, order: Order) -> tuple[str, int]:
    return order.customer, order.pieces


ORDER = json_serde(Order)
builder = StreamsBuilder()
orders = builder.stream("orders", Consumed(STRING, ORDER))
assert_type(orders, KStream[str, Order])
assert_type(orders.filter(lambda order: order.pieces > 1).filter_not(lambda key, order: key == ""), KStream[str, Order])
assert_type(orders.map_values(lambda order: order.pieces), KStream[str, int])
assert_type(orders.map_values(lambda key, order: f"{key} {order.pieces}").map_values(str.upper), KStream[str, str])
assert_type(orders.map(lambda key, order: (order.pieces, key)), KStream[int, str])
assert_type(orders.map_values_async(priced), KStream[str, float])
assert_type(orders.map_async(customer_of, concurrency=10, timeout=timedelta(seconds=1)), KStream[str, int])
assert_type(builder.interval(timedelta(minutes=5), catch_up="all"), KStream[str, int])
assert_type(builder.cron("0 6 * * *", timezone="Europe/Berlin", name="breakfast"), KStream[str, int])
assert_type(orders.flat_map_values(lambda order: range(order.pieces)), KStream[str, int])
assert_type(orders.select_key(lambda order: order.customer), KStream[str, Order])
assert_type(orders.process(Totals, "totals"), KStream[str, float])
assert_type(orders.process(Totals, "totals").process_values(Halves), KStream[str, float])
orders.peek(lambda order: order.pieces).foreach(print)
orders.to(lambda key, order, source: f"orders-{order.customer}", Produced(STRING, ORDER))
branches = orders.split().branch(lambda order: order.pieces > 10).default_branch()
assert_type(branches["x"], KStream[str, Order])

by_customer = orders.group_by(lambda order: order.customer, Grouped(STRING, ORDER))
counts = by_customer.count(Materialized("counts", STRING, LONG))
assert_type(counts, KTable[str, int])
assert_type(by_customer.aggregate(lambda: 0, lambda key, order, total: total + order.pieces), KTable[str, int])
assert_type(by_customer.sum(lambda order: order.pieces), KTable[str, int])
assert_type(by_customer.max(lambda order: order.customer, "last-names"), KTable[str, str])
assert_type(by_customer.min(), KTable[str, Order])
assert_type(by_customer.mean(lambda order: order.pieces), KTable[str, float])
assert_type(by_customer.mean(lambda order: Decimal(order.pieces)), KTable[str, Decimal])
assert_type(by_customer.collect(lambda order: order.pieces, limit=10), KTable[str, list[int]])
assert_type(by_customer.top_k(3, by="pieces"), KTable[str, list[Order]])
assert_type(by_customer.count_distinct(lambda order: order.pieces, Materialized("distinct", STRING)), KTable[str, int])
assert_type(by_customer.agg("all", total=agg.sum("pieces"), orders=agg.count()), KTable[str, dict[str, Any]])
windows = TimeWindows.of_size_with_no_grace(timedelta(minutes=1))
windowed = by_customer.windowed_by(windows).count()
assert_type(windowed, KTable[Windowed[str], int])
in_windows = by_customer.windowed_by(windows)
assert_type(in_windows.sum(lambda order: order.pieces), KTable[Windowed[str], int])
assert_type(in_windows.late(), KStream[Windowed[str], Order])
windowed.to_stream().to("counts", Produced(windowed_serde(STRING, 60_000), LONG))
assert_type(windowed.to_stream(lambda window, count: window.key), KStream[str, int])

names = builder.table("names", Consumed(STRING, STRING))
assert_type(orders.join(names, lambda order, name: (name, order.pieces)), KStream[str, tuple[str, int]])
assert_type(orders.left_join(names, lambda order, name: name or order.customer), KStream[str, str])
near = JoinWindows.of_time_difference_with_no_grace(1000)
paired = orders.join(orders, lambda left, right: left.pieces + right.pieces, near, StreamJoined(STRING, ORDER, ORDER))
assert_type(paired, KStream[str, int])
assert_type(counts.join(names, lambda count, name: name * count), KTable[str, str])
assert_type(counts.map_values(float).filter(lambda key, value: value > 1.0), KTable[str, float])
assert_type(names.join(counts, lambda name, count: count, foreign_key=lambda name: name.upper()), KTable[str, int])

untyped = builder.stream("anything")
untyped.map_values(lambda value: value["field"].anything).to("elsewhere")

streams = KafkaStreams(builder.build(), {})
view = ReadOnlyStoreMap[str, int](streams.store("counts"))
assert_type(view["anna"], int)
assert_type(view.get("anna"), int | None)
assert_type(dict(view), dict[str, int])
with TopologyTestDriver(builder.build()) as driver:
    piped = driver.create_input_topic("orders", STRING, ORDER)
    piped.pipe_key_value_list([("a", Order("anna", 1))])
    assert_type(driver.create_output_topic("counts", STRING, LONG).read_key_values_to_map(), dict[str, int | None])
    assert_type(driver.create_output_topic("counts", STRING, LONG).read_record(), Record[str | None, int | None])

declared = StreamsBuilder()
assert_type(declared.stream(topic("declared", partitions=2), Consumed(STRING, LONG)), KStream[str, int])
assert_type(declared.table(topic("rows", config={"retention.ms": 1}), Consumed(STRING, LONG)), KTable[str, int])
