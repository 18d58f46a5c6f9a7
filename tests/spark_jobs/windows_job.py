"""Events for the job windows, its command line, and the counts that it has written."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.spark_jobs import event_oracles as oracle
from tests.spark_jobs.event_oracles import Event, Window, numbered

if TYPE_CHECKING:
    pass


SIZE_MS: Final = 10_000
ADVANCE_MS: Final = 5_000
LATENESS_MS: Final = 3_000


def drawn(count: int, seed: int, disorder_ms: int) -> list[Event]:
    """Two partitions whose time goes on, each event up to `disorder_ms` earlier than that; two keys and none."""
    draw = random.Random(seed)
    times = (60_000 + n * 200 - draw.randrange(disorder_ms) ** 4 // disorder_ms**3 for n in range(count))
    return numbered((draw.randrange(2), draw.choice([b"a", b"b", None]), at) for at in times)


def arguments(bootstrap: str, topic: str, folder: Path) -> list[str]:
    return [
        *("--bootstrap", bootstrap, "--topic", topic, "--once", "--batch-records", "72"),
        *("--size", f"{SIZE_MS}ms", "--advance", f"{ADVANCE_MS}ms", "--lateness", f"{LATENESS_MS}ms"),
        *("--checkpoint", str(folder / "checkpoint"), "--output", str(folder / "out")),
    ]


def written(folder: Path) -> Counter[tuple[Any, ...]]:
    return Counter(oracle.parquet_rows(folder / "out", "key", "window_start", "window_end", "count"))


def as_rows(counts: dict[Window, int]) -> Counter[tuple[Any, ...]]:
    return Counter((*window, count) for window, count in counts.items())
