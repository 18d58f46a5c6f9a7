"""Trades: count, lowest price and average price of each symbol over the last five seconds, every second.

One command; the example generates trades:

    python -m odradek.streams.examples.stocks --seconds 20
    stocks: RUNNING
    12:00:05 to 12:00:10  KAFK    24 trades  least  99.12  average 100.04
    12:00:05 to 12:00:10  ODRA    25 trades  least  49.80  average  50.11

Windows are five seconds long and one begins every second, so that a trade is in five of them. Each window has one
result, when it is closed: after a trade with a timestamp a second (the grace) after the window's end. Trades may so be
late by a second; later ones are dropped. To write your own trades to stocks-trades, use `--rate 0` and lines such as
KAFK:{"price": 99.5, "size": 10}.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from odradek.streams import (
    JSON,
    STRING,
    Consumed,
    EmitStrategy,
    Grouped,
    Materialized,
    Produced,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
    windowed_serde,
)
from odradek.streams.examples.running import Written, configuration, make_topics, parser, run

TRADES: Final = "stocks-trades"
STATISTICS: Final = "stocks-statistics"
LENGTH: Final = timedelta(seconds=5)
EVERY: Final = timedelta(seconds=1)
GRACE: Final = timedelta(seconds=1)
WINDOW_KEYS: Final = windowed_serde(STRING, LENGTH // timedelta(milliseconds=1))

Json = dict[str, Any]


def nothing() -> Json:
    """The statistics of no trades."""
    return {"count": 0, "minimum": None, "total": 0.0}


def add(symbol: str, trade: Json, so_far: Json) -> Json:
    """The statistics with one trade more."""
    price, least = trade["price"], so_far["minimum"]
    return {
        "count": so_far["count"] + 1,
        "minimum": price if least is None else min(price, least),
        "total": so_far["total"] + price,
    }


def averaged(statistics: Json) -> Json:
    """The output record of a window."""
    count = statistics["count"]
    return {"count": count, "minimum": statistics["minimum"], "average": round(statistics["total"] / count, 4)}


def show(key: Windowed, measured: Json) -> None:
    """Print a result."""
    begin, end = (datetime.fromtimestamp(ms / 1000) for ms in key.window)
    print(
        f"{begin:%H:%M:%S} to {end:%H:%M:%S}  {key.key}  {measured['count']:4} trades  "
        f"least {measured['minimum']:6.2f}  average {measured['average']:6.2f}",
        flush=True,
    )


def topology() -> Topology:
    """Trades by symbol, in hopping windows, each with one result when it is closed."""
    builder = StreamsBuilder()
    (
        builder.stream(TRADES, Consumed(STRING, JSON))
        .group_by_key(Grouped(STRING, JSON))
        .windowed_by(TimeWindows.of_size_and_grace(LENGTH, GRACE).advance_by(EVERY))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .aggregate(nothing, add, Materialized("trade-statistics", STRING, JSON))
        .to_stream()
        .map_values(averaged)
        .peek(show)
        .to(STATISTICS, Produced(WINDOW_KEYS, JSON))
    )
    return builder.build()


def trades() -> Iterator[Written]:
    """Random-walk prices."""
    chance = random.Random(1)
    prices = {"KAFK": 100.0, "ODRA": 50.0, "SPOO": 20.0}
    while True:
        symbol = chance.choice(list(prices))
        prices[symbol] = round(prices[symbol] * (1 + chance.gauss(0, 0.002)), 2)
        trade = {"price": prices[symbol], "size": chance.randrange(1, 100)}
        yield Written(TRADES, symbol.encode(), json.dumps(trade).encode())


def main(arguments: list[str] | None = None) -> int:
    """Run the example."""
    chosen = parser(__doc__, "stocks", rate=15).parse_args(arguments)
    make_topics(chosen.bootstrap_servers, chosen.partitions, [TRADES, STATISTICS])
    return run(topology(), configuration(chosen), chosen, made_up=trades())


if __name__ == "__main__":
    sys.exit(main())
