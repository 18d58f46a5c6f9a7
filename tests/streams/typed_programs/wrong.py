"""A program in which type checkers must find an error in each line with the comment `wrong`, and in no other."""

from __future__ import annotations

from odradek import streams
from odradek.streams import (
    LONG,
    STRING,
    Consumed,
    Grouped,
    KStream,
    Materialized,
    Processor,
    Produced,
    ReadOnlyStoreMap,
    Record,
    StreamsBuilder,
    TopologyTestDriver,
    connectors,
)


class Lengths(Processor[str, str, str, int]):
    """From texts to numbers."""

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)  # wrong
        self.context.forward(record.with_value(len(record.value)))


builder = StreamsBuilder()
texts = builder.stream("texts", Consumed(STRING, STRING))
numbers = builder.stream("numbers", Consumed(STRING, LONG))
names = builder.table("names", Consumed(STRING, STRING))

texts.map_values(lambda text: text.missing)  # wrong
texts.map_values(lambda: 1)  # wrong
texts.map_values(lambda a, b, c: 1)  # wrong
numbers.map_values(str.upper)  # wrong
numbers.filter(lambda number: "yes")  # wrong
numbers.map(lambda key, number: number)  # wrong
numbers.flat_map_values(lambda number: number)  # wrong
texts.map_values_async(len)  # wrong
texts.to("texts", Produced(STRING, LONG))  # wrong
texts.to(lambda key, text, source: 1)  # wrong
numbers.process(Lengths)  # wrong
texts.map_values(len).merge(texts)  # wrong
numbers.group_by(lambda number: number, Grouped(STRING, LONG))  # wrong
numbers.group_by_key(Grouped(STRING, STRING))  # wrong
numbers.group_by_key().reduce(lambda one, other: f"{one}")  # wrong
numbers.group_by_key().aggregate(lambda: 0, lambda key, number: number)  # wrong
numbers.group_by_key().count(Materialized("counts", STRING, STRING))  # wrong
texts.group_by_key().sum(lambda text: text)  # wrong
numbers.group_by_key().max(lambda number: number.missing)  # wrong
numbers.group_by_key().collect(limit="3")  # wrong
numbers.group_by_key().agg(total="amount")  # wrong
texts.join(names, lambda text, name: text + name.missing)  # wrong
texts.left_join(names, lambda text, name: text + name)  # wrong
texts.join(texts, lambda one, other: one + other)  # wrong
names.filter(lambda name: name + 1)  # wrong
as_numbers: KStream[str, int] = texts.map_values(str.upper)  # wrong
ReadOnlyStoreMap[str, int](object())  # wrong
with TopologyTestDriver(builder.build()) as driver:
    driver.create_input_topic("numbers", STRING, LONG).pipe_value_list(["text"])  # wrong
missing = (
    streams.StringSerde,  # wrong
    connectors.KafkaSource,  # wrong
)
