"""A table of versions in a folder: each version is complete, never changed, and published by the rename of one file.

    OUTPUT/versions/00000007.json    the manifest of version 7: its topics, its end offsets, its folder
    OUTPUT/data/00000007-3f…/        its rows, Parquet
    OUTPUT/.lock                     held by the job that writes

A version exists when its manifest does. The job writes the rows, and syncs them to the disk, before; so a reader that
begins with the newest manifest finds all files that it names, and a killed job leaves a folder that no manifest names,
which the next run removes. A reader of a version is not disturbed as long as the version is kept. The folder is in a
file system that is mounted on every machine where Spark runs.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.spark_jobs.command import Offsets
from odradek.spark_jobs.committed import sync, sync_folder, uri
from odradek.spark_jobs.errors import JobError, NotThereError
from odradek.spark_jobs.source import local_path, write_atomically

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The contents of a version. `offsets` are those to be read next; `topics` are names and ids."""

    version: int
    data: str
    cluster: str
    topics: dict[str, str]
    offsets: Offsets
    isolation: str
    written_ms: int
    rows: int
    """The number of keys that have a value."""


class SnapshotTable:
    """The versions in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = local_path(folder).absolute()
        self._versions = self._folder / "versions"
        self._data = self._folder / "data"

    def versions(self) -> list[int]:
        """The versions, the oldest first."""
        return sorted(int(path.stem) for path in self._versions.glob("[0-9]*.json"))

    def manifest(self, version: int | None = None) -> Manifest:
        """The manifest of a version, by default the newest. Raises NotThereError."""
        found = self.versions()
        wanted = version if version is not None else found[-1] if found else None
        if wanted is None or wanted not in found:
            there = f"there are {', '.join(map(str, found))}" if found else "there is none"
            raise NotThereError(f"{self._folder} has no version{'' if wanted is None else f' {wanted}'}: {there}")
        return self._parsed(self._path(wanted))

    def read(self, spark: SparkSession, version: int | None = None) -> DataFrame:
        """topic, partition, key, value, offset, timestamp, headers of a version. Raises NotThereError."""
        return spark.read.parquet(uri(self._folder / self.manifest(version).data))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Locks out other jobs, and removes the files of a killed one. Raises JobError where another one writes."""
        self._data.mkdir(parents=True, exist_ok=True)
        with open(self._folder / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise JobError(f"another job is writing to {self._folder}") from None
            self._sweep()
            yield

    def publish(self, rows: DataFrame, manifest: dict[str, Any], keep: int) -> Manifest:
        """Writes `rows` as the next version, with the entries of `manifest`; keeps `keep` versions. Raises OSError."""
        version = max(self.versions(), default=0) + 1
        place = self._data / f"{version:08}-{uuid.uuid4().hex}"
        rows.write.parquet(uri(place))
        sync_folder(place)
        sync(self._data)
        data = str(place.relative_to(self._folder))
        count = rows.sparkSession.read.parquet(uri(place)).count()
        made = Manifest(version=version, data=data, rows=count, **manifest)
        write_atomically(self._path(version), json.dumps(asdict(made), indent=1))
        for old in self.versions()[:-keep]:
            self._path(old).unlink()
        self._sweep()
        return made

    def _sweep(self) -> None:
        """Removes the folders that no version names."""
        named = {self._folder / self.manifest(version).data for version in self.versions()}
        for folder in set(self._data.iterdir()) - named:
            shutil.rmtree(folder)

    def _path(self, version: int) -> Path:
        return self._versions / f"{version:08}.json"

    def _parsed(self, path: Path) -> Manifest:
        try:
            entries = json.loads(path.read_text())
            entries["offsets"] = {
                topic: {int(n): at for n, at in places.items()} for topic, places in entries["offsets"].items()
            }
            return Manifest(**entries)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise JobError(f"cannot read {path}: {error}") from None
