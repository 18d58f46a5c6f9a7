"""Events for the job dedup_sink, its command line, and the events that it has stored."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.event_oracles import EPOCH_MS, Event, numbered

if TYPE_CHECKING:
    pass


LATENESS_MS: Final = 3_000
Kept = Counter[tuple[int, int, int, bytes | None, int]]
"""batch, partition, offset, id, time."""


def drawn(count: int, seed: int) -> list[Event]:
    """Events that are sent again soon, and after more than the lateness; some late, some without an id."""
    draw = random.Random(seed)
    rows: list[tuple[int, bytes | None, int]] = []
    for number in range(count):
        at = 60_000 + number * 100
        if rows and draw.random() < 0.4:
            partition, key, before = draw.choice(rows[-80:])
            rows.append((partition, key, draw.choice([before, before, at, before + LATENESS_MS])))
        else:
            late = draw.choice([0, 0, 0, 500, 2 * LATENESS_MS])
            key = None if draw.random() < 0.1 else f"id-{number}".encode()
            rows.append((draw.randrange(2), key, at - late))
    return numbered(rows)


def arguments(bootstrap: str, topic: str, folder: Path, sink: str) -> list[str]:
    return [
        *("--bootstrap", bootstrap, "--topic", topic, "--once", "--batch-records", "72"),
        *("--lateness", f"{LATENESS_MS}ms", "--id", "key"),
        *("--checkpoint", str(folder / f"checkpoint-{sink}"), "--output", str(folder / sink)),
    ]


def written(folder: Path, sink: str, query_id: str) -> Kept:
    """The contents of the sink, by readers independent of Spark."""
    names = ("batch_id", "partition", "offset", "event_id", "event_time")
    if sink == "events":
        return Counter(oracle.parquet_rows(folder / sink, *names))
    with closing(sqlite3.connect(folder / sink)) as database:
        pairs = database.execute("SELECT query_id, batch_id FROM batches").fetchall()
        rows = database.execute(f"SELECT query_id, {', '.join(names)} FROM events").fetchall()
    assert {query for query, *_ in rows} | {query for query, _ in pairs} == {query_id}
    assert {batch for _, batch, *_ in rows} <= {batch for _, batch in pairs}
    return Counter((*row[1:-1], row[-1] - EPOCH_MS) for row in rows)
