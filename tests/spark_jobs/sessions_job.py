"""Clicks for the job sessions, its command line, and the sessions that it has written."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.event_oracles import Event, numbered

if TYPE_CHECKING:
    pass


GAP_MS: Final = 1_000
LATENESS_MS: Final = 700
KEYS: Final = (b"a", b"b", b"c")


def drawn(count: int, seed: int) -> list[Event]:
    """Two partitions; each key has pauses of exactly a gap, and just more; some clicks are late."""
    draw = random.Random(seed)
    at, rows = 60_000, []
    for _ in range(count):
        at += draw.choice([0, 100, GAP_MS // 2, GAP_MS])
        rows.append((draw.randrange(2), draw.choice(KEYS), at - draw.choice([0, 0, 0, GAP_MS, 2 * GAP_MS, 2500])))
    return numbered(rows)


def arguments(bootstrap: str, topic: str, folder: Path, engine: str) -> list[str]:
    return [
        *("--bootstrap", bootstrap, "--topic", topic, "--once", "--batch-records", "45", "--engine", engine),
        *("--gap", f"{GAP_MS}ms", "--lateness", f"{LATENESS_MS}ms"),
        *("--checkpoint", str(folder / "checkpoint"), "--output", str(folder / "out")),
    ]


def written(folder: Path) -> Counter[tuple[Any, ...]]:
    return Counter(oracle.parquet_rows(folder / "out", "key", "session_start", "session_end", "count"))
