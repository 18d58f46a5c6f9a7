"""Dead letters: records that cannot be processed go to a separate topic, with the reason; all others continue.

One command; the example generates orders, and some of them are invalid:

    python -m odradek.streams.examples.dead_letters --seconds 20
    dead-letters: RUNNING
    order 7: 3 at 2.50 each, in all 7.50
    dead letter: orders-1@3, deserialization at orders: JSONDecodeError: Expecting value: line 1 column 1 (char 0)
    dead letter: orders-0@5, processing at price: ZeroDivisionError: integer division or modulo by zero
    dead letter: orders-0@9, production at totals: error: int too large to convert

Three handlers decide: one for records that cannot be read, one for records that a node cannot process, one for records
that cannot be written. Each writes the record to orders-dead-letters and returns CONTINUE. The headers contain its
origin and the error, with the names of KIP-1034 (__streams.errors.topic, .partition, .offset, .exception, .message).
The value is the input of the failing step: the original bytes, or JSON of the object.

A separate producer writes a dead letter and waits for its acknowledgment before the record is skipped, so that none is
lost. It is not part of a transaction: after a crash, a record that is read again may be written again.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import Producer

from odradek.streams import JSON, LONG, STRING, Consumed, Produced, StreamsBuilder, Topology
from odradek.streams.errors import ErrorContext, Response, StreamsError, Undelivered
from odradek.streams.examples.running import Written, configuration, make_topics, parser, run
from odradek.streams.records import Headers

ORDERS: Final = "orders"
TOTALS: Final = "orders-totals"
DEAD: Final = "orders-dead-letters"

Write = Callable[[Any, Any, Headers], None]
"""Writes one record, key, value and headers, to the dead-letter topic."""


class DeadLetters:
    """The three handlers of an application, as methods."""

    def __init__(self, write: Write) -> None:
        """`write` must have written the record when it returns: the record's offset is committed soon after."""
        self._write = write

    def deserialization(
        self, context: ErrorContext, key: bytes | None, value: bytes | None, error: Exception
    ) -> Response:
        """A record that cannot be read: its bytes unchanged."""
        return self._dead_letter("deserialization", context, key, value, error)

    def processing(self, context: ErrorContext, key: Any, value: Any, error: Exception) -> Response:
        """A record that a node cannot process: the node's input."""
        return self._dead_letter("processing", context, as_bytes(key), as_bytes(value), error)

    def production(self, context: ErrorContext, record: Undelivered, error: Exception) -> Response:
        """A record that cannot be written."""
        return self._dead_letter("production", context, as_bytes(record.key), as_bytes(record.value), error)

    def config(self) -> dict[str, Any]:
        """The properties that configure these handlers."""
        return {
            "default.deserialization.exception.handler": self.deserialization,
            "processing.exception.handler": self.processing,
            "default.production.exception.handler": self.production,
        }

    def _dead_letter(
        self, kind: str, context: ErrorContext, key: bytes | None, value: bytes | None, error: Exception
    ) -> Response:
        source, reason = context.source, f"{type(error).__name__}: {error}"
        headers: Headers = [
            *(context.headers or []),
            ("__streams.errors.topic", source.topic.encode()),
            ("__streams.errors.partition", str(source.partition).encode()),
            ("__streams.errors.offset", str(source.offset).encode()),
            ("__streams.errors.exception", type(error).__name__.encode()),
            ("__streams.errors.message", str(error).encode()),
        ]
        print(
            f"dead letter: {source.topic}-{source.partition}@{source.offset}, {kind} at {context.node}: {reason}",
            flush=True,
        )
        self._write(key, value, headers)
        return Response.CONTINUE


def as_bytes(given: Any) -> bytes | None:
    """Bytes of what may be an object: text unchanged, anything else as JSON."""
    if given is None or isinstance(given, bytes):
        return given
    return given.encode() if isinstance(given, str) else json.dumps(given, default=str).encode()


def writer(bootstrap: str) -> Write:
    """Writes to the dead-letter topic, one record after the other, each acknowledged: there are few."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})

    def write(key: Any, value: Any, headers: Headers) -> None:
        refused: list[Any] = []
        record_headers: list[tuple[str, str | bytes | None]] = [*(headers or [])]
        producer.produce(DEAD, value, key, headers=record_headers, on_delivery=lambda error, _: refused.append(error))
        if producer.flush(30) or refused != [None]:
            raise StreamsError(f"a dead letter could not be written to {DEAD}: {refused or 'no answer'}")

    return write


def priced(order: dict[str, Any]) -> dict[str, Any]:
    """An order with the price of each piece."""
    return {**order, "each": order["total"] // order["pieces"]}


def show(order: str, value: dict[str, Any]) -> None:
    """Print the order."""
    print(
        f"order {order}: {value['pieces']} at {value['each'] / 100:.2f} each, in all {value['total'] / 100:.2f}",
        flush=True,
    )


def topology() -> Topology:
    """Orders to their totals in cents."""
    builder = StreamsBuilder()
    (
        builder.stream(ORDERS, Consumed(STRING, JSON, name="orders"))
        .map_values(priced, name="price")
        .peek(show, name="show")
        .map_values(lambda order: order["total"], name="total")
        .to(TOTALS, Produced(STRING, LONG, name="totals"))
    )
    return builder.build()


def orders() -> Iterator[Written]:
    """Orders, one in four of them invalid."""
    chance = random.Random(1)
    number = 0
    while True:
        number += 1
        pieces, each = chance.randrange(1, 10), chance.randrange(100, 1000)
        good = json.dumps({"pieces": pieces, "total": pieces * each})
        poison = ["no JSON at all", '{"pieces": 0, "total": 100}', '{"pieces": 1, "total": 99999999999999999999}']
        value = chance.choice(poison) if chance.random() < 0.25 else good
        yield Written(ORDERS, str(number).encode(), value.encode())


def main(arguments: list[str] | None = None) -> int:
    """Run the example."""
    chosen = parser(__doc__, "dead-letters", rate=3).parse_args(arguments)
    make_topics(chosen.bootstrap_servers, chosen.partitions, [ORDERS, TOTALS, DEAD])
    config = configuration(chosen, DeadLetters(writer(chosen.bootstrap_servers)).config())
    return run(topology(), config, chosen, made_up=orders())


if __name__ == "__main__":
    sys.exit(main())
