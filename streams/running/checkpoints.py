"""Checkpoints: the positions of the stores on disk, in the file `.checkpoint` of a task's directory (Kafka:
OffsetCheckpoint).

    0                                  version
    1                                  the number of lines that follow
    app-counts-changelog 3 4711        topic, partition, offset of the last record that is in the store

Each write replaces the whole file, which is synced before it is renamed. It contains changelog offsets, so it may only
be written after the stores have been flushed and their changelog records are acknowledged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.errors import StreamsError

FILE: Final = ".checkpoint"
VERSION: Final = 0
OFFSET_UNKNOWN: Final = -4
"""The store exists, but its changelog position is unknown."""

Offsets = Mapping[TopicPartition, int]


class CheckpointError(StreamsError):
    """A checkpoint that cannot be read. Its stores have to be restored from the beginning."""


def read(directory: Path) -> dict[TopicPartition, int]:
    """The offsets by topic and partition; empty where there is no file. Raises CheckpointError."""
    path = directory / FILE
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    try:
        if int(lines[0]) != VERSION:
            raise CheckpointError(f"{path} has version {lines[0]}; {VERSION} is supported")
        found = {}
        for line in filter(None, lines[2:]):
            topic, partition, offset = line.split()
            found[topic, int(partition)] = int(offset)
        if len(found) != int(lines[1]):
            raise CheckpointError(f"{path} declares {lines[1]} lines and has {len(found)}")
    except (ValueError, IndexError) as error:
        raise CheckpointError(f"{path} is malformed: {error}") from error
    return found


def write(directory: Path, offsets: Offsets) -> None:
    """Replace the file. Without offsets it is removed. Raises OSError."""
    if not offsets:
        remove(directory)
        return
    path, fresh = directory / FILE, directory / f"{FILE}.tmp"
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    with fresh.open("w") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync(directory)


def remove(directory: Path) -> None:
    """Remove the file: the positions of the stores are unknown from now on. Raises OSError."""
    path = directory / FILE
    if path.exists():
        path.unlink()
        _sync(directory)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
