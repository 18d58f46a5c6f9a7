"""Custom state in memory, saved together with the offsets of its input, and recovered, without a changelog.

One command; the example generates readings of sensors. Kill it (`kill -9`) and start it again, and it continues:

    python -m odradek.streams.examples.snapshot --snapshots ./snapshots
    snapshot: RUNNING
    0_0: no snapshot, begins with nothing
    sensor-3      41 readings  from  18.21 to  22.07  mean  20.02
    python -m odradek.streams.examples.snapshot --snapshots ./snapshots
    0_0: recovered 2 sensors after snapshot-readings-0@78

The state is a dict of Python objects, changed in place: no record needs serialization, and no store writes a changelog.
Instead each commit first writes the whole state to a file, together with the offset of the last record that is in it; a
rename replaces the old file. Committed offsets are therefore never ahead of the snapshot. After a crash the application
gets some records again that are in the snapshot already: it compares their offsets, and skips them. So each reading
counts once, though the application runs at_least_once.

That is right for state that is small, and costly to log for each change. Instances that share tasks need a folder that
all of them can access; the example `snapshot_topic` keeps snapshots in Kafka and needs none. A changelog (any store of
the runtime) is the better choice for everything else: it is written at each change, it moves with its task, and
standbys can follow it.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from odradek.streams import (
    JSON,
    STRING,
    Consumed,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    StreamsBuilder,
    Topology,
)
from odradek.streams.examples.running import Written, configuration, make_topics, parser, run
from odradek.streams.stores.interface import ChangelogRecord, StateStore, StoreContext

READINGS: Final = "snapshot-readings"
SUMMARIES: Final = "snapshot-summaries"
STORE: Final = "sensors"


@dataclass(slots=True)
class SensorStatistics:
    """The statistics of a sensor."""

    count: int = 0
    least: float = float("inf")
    most: float = float("-inf")
    total: float = 0.0

    def add(self, value: float) -> None:
        """Add a reading."""
        self.count += 1
        self.least = min(self.least, value)
        self.most = max(self.most, value)
        self.total += value

    def summary(self) -> dict[str, Any]:
        """The output record."""
        mean = round(self.total / self.count, 4)
        return {"count": self.count, "least": self.least, "most": self.most, "mean": mean}


@dataclass(slots=True)
class Snapshot:
    """The state of one task, and its position in each partition."""

    sensors: dict[str, SensorStatistics] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    """The offset of the last record, by "topic-partition"."""

    def save(self, path: Path) -> None:
        """Write it, atomically. Raises OSError."""
        beside = path.with_suffix(".tmp")
        with open(beside, "wb") as file:
            file.write(self.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)

    @classmethod
    def load(cls, path: Path) -> Snapshot:
        """Read it. Raises FileNotFoundError where there is none."""
        return cls.decode(path.read_bytes())

    def encode(self) -> bytes:
        """The snapshot as JSON."""
        sensors = {name: [each.count, each.least, each.most, each.total] for name, each in self.sensors.items()}
        return json.dumps({"positions": self.positions, "sensors": sensors}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Snapshot:
        """Reads the result of `encode`."""
        found = json.loads(data)
        return cls({name: SensorStatistics(*each) for name, each in found["sensors"].items()}, found["positions"])


class SnapshotStore(Protocol):
    """The store operations of `Summarize`."""

    state: Snapshot
    changed: bool
    """Whether the state has changed since the last snapshot."""


class FileSnapshotStore(StateStore):
    """A store that is one object in memory, and a file: a commit begins with `flush_cache`, which writes the file."""

    persistent = False

    def __init__(self, folder: Path) -> None:
        self.name = STORE
        self.state = Snapshot()
        self.changed = False
        self._folder = folder
        self._path: Path | None = None

    @property
    def is_open(self) -> bool:
        return self._path is not None

    def init(self, context: StoreContext) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path = self._folder / f"{context.task_id}.json"
        with suppress(FileNotFoundError):
            self.state = Snapshot.load(self._path)

    def restore(self, records: Sequence[ChangelogRecord]) -> None:
        raise NotImplementedError("there is no changelog")

    def flush_cache(self) -> None:
        if self.changed and self._path is not None:
            self.state.save(self._path)
            self.changed = False

    def flush(self) -> None:
        return

    def close(self) -> None:
        self._path = None


@dataclass(frozen=True)
class FileSnapshotStoreBuilder:
    """Builds the store of each task."""

    folder: Path
    name: str = STORE
    logging: bool = False
    persistent: bool = False

    def build(self) -> FileSnapshotStore:
        """A store that has not read its snapshot yet."""
        return FileSnapshotStore(self.folder)


class Summarize(Processor):
    """Adds each reading once."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store: SnapshotStore = context.state_store(STORE)
        state = self.store.state
        places = ", ".join(f"{place}@{offset}" for place, offset in sorted(state.positions.items()))
        recovered = f"recovered {len(state.sensors)} sensors after {places}"
        print(f"{context.task_id}: {recovered if places else 'no snapshot, begins with nothing'}", flush=True)

    def process(self, record: Record) -> None:
        source, state = self.context.record_metadata, self.store.state
        assert source is not None
        place = f"{source.topic}-{source.partition}"
        if source.offset <= state.positions.get(place, -1):
            return  # already in the snapshot, though its offset was not committed
        sensor = state.sensors.setdefault(record.key, SensorStatistics())
        sensor.add(record.value)
        state.positions[place] = source.offset
        self.store.changed = True
        self.context.forward(record.with_value(sensor.summary()))


def show(sensor: str, summary: dict[str, Any]) -> None:
    """Print a summary."""
    print(
        f"{sensor:10} {summary['count']:5} readings  from {summary['least']:6.2f} to {summary['most']:6.2f}  "
        f"mean {summary['mean']:6.2f}",
        flush=True,
    )


def topology(folder: Path) -> Topology:
    """Readings to summaries, with snapshots in `folder`."""
    return summarizing(FileSnapshotStoreBuilder(folder), READINGS, SUMMARIES)


def summarizing(store: Any, readings: str, summaries: str) -> Topology:
    """The topology from one topic to the other; `store` builds the SnapshotStore of each task."""
    builder = StreamsBuilder()
    builder.add_state_store(store)
    (
        builder.stream(readings, Consumed(STRING, JSON))
        .process(Summarize, STORE)
        .peek(show)
        .to(summaries, Produced(STRING, JSON))
    )
    return builder.build()


def made_up_readings(topic: str) -> Iterator[Written]:
    """Temperatures around twenty degrees."""
    chance = random.Random()
    while True:
        sensor, value = f"sensor-{chance.randrange(1, 5)}", round(chance.gauss(20, 1), 2)
        yield Written(topic, sensor.encode(), json.dumps(value).encode())


def main(arguments: list[str] | None = None) -> int:
    """Run the example."""
    options = parser(__doc__, "snapshot", rate=10)
    options.add_argument(
        "--snapshots", type=Path, default=Path("snapshots"), metavar="FOLDER", help="default: ./%(default)s"
    )
    chosen = options.parse_args(arguments)
    make_topics(chosen.bootstrap_servers, chosen.partitions, [READINGS, SUMMARIES])
    return run(topology(chosen.snapshots), configuration(chosen), chosen, made_up=made_up_readings(READINGS))


if __name__ == "__main__":
    sys.exit(main())
