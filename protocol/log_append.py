"""Append in C: the usual batch of a log, from its validation to its place in the log, with few Python calls.

`append_usual` validates a batch (`plain_batch`), sets its base offset and leader epoch, writes it with `write` of the
segment's file, and adds it to the segment, to the log and to the batches of its producer, as `Log.append` does. It
leaves every batch to that function that is not usual: one of more than 4 KiB, a transactional one, one that begins a
segment or an epoch, one that takes an entry of the indexes, one that is not the next of its producer, and any that the
leader refuses. It decides this before the write, and has changed nothing by then but offset and epoch in the batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class LogClasses(NamedTuple):
    """The classes whose slots the extension reads and writes, and the tuple that is the result of an append."""

    log: type
    segments: type
    segment: type
    config: type
    epochs: type
    producers: type
    recent: type
    result: type


def not_in_c(log: Any, batch: memoryview, is_prepared: bool, leader_epoch: int, now_ms: int) -> Any:
    """Append a client's batch, or with `is_prepared` one that is valid already, as the leader of `leader_epoch`.
    Returns its result, or None where it is not a usual one: no batch is one without the extension. Raises OSError of
    the write; then only the file has changed.
    """
    return None


def prepare_in_c(classes: LogClasses) -> None:
    """Take the classes, before the first append."""
    _log_append.prepare(classes)


def prepare_nothing(classes: LogClasses) -> None:
    """The same of an installation without the extension."""


try:
    from odradek.protocol import _log_append

    append_usual = _log_append.append_usual
    prepare = prepare_in_c
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    append_usual = not_in_c
    prepare = prepare_nothing
