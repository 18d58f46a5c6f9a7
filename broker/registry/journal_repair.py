"""Reads a damaged journal as far as it can be read, and writes a journal anew from a tree (`journal`).

`Journal.load` rejects a journal that has lost acknowledged writes. Here everything that is whole is read: the newest
readable snapshot, and every whole record of the logs, also behind damage. Changes of nodes whose creation is lost are
skipped; parents of created nodes are created. So the tree may have nodes as they were at different times, and lacks
what only the damaged bytes had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from odradek.broker.registry.interface import RegistryError
from odradek.broker.registry.journal import OWNER_ONLY, VERSION_FOLDER, JournalDisk, LogEnd, numbers_of
from odradek.broker.registry.jute import JuteError
from odradek.broker.registry.transactions import LOG_HEADER, decode_snapshot, encode_snapshot, read_record
from odradek.broker.registry.tree import (
    CheckStep,
    CloseSessionStep,
    CreateStep,
    DeleteStep,
    JournalTransaction,
    SetAclStep,
    SetStep,
    Step,
    Tree,
    parent_of,
)

_ASIDE: Final = ".damaged-"


class RepairDisk(JournalDisk, Protocol):
    """A disk that also renames and searches. Everything raises OSError."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory at `path`."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory."""


@dataclass(slots=True)
class Salvage:
    """The result of reading a damaged journal: the tree, the problems, and the number of whole records in the logs."""

    tree: Tree
    problems: list[str] = field(default_factory=list)
    records: int = 0


def salvage(disk: JournalDisk, folder: str) -> Salvage:
    """Read the journal below `folder`, whose lock the caller holds. Writes nothing. Raises OSError."""
    path = f"{folder}/{VERSION_FOLDER}"
    names = [entry.name for entry in disk.list(path)]
    found = _newest_snapshot(disk, path, numbers_of(names, "snapshot."))
    in_snapshot = found.tree.zxid
    logs, ends = numbers_of(names, "log."), numbers_of(names, "end.")
    if not found.problems and logs and not numbers_of(names, "snapshot."):
        found.problems.append(f"{path} has a log and no snapshot")
    for index, number in enumerate(logs):
        if index + 1 < len(logs) and logs[index + 1] <= in_snapshot + 1:
            continue
        noted = LogEnd.decode(disk.read(f"{path}/end.{number:x}")) if number in ends else None
        needed = noted if noted is not None and noted.zxid > in_snapshot else None
        _read_log(disk, f"{path}/log.{number:x}", found, needed, is_last=index + 1 == len(logs))
    for number in ends:
        noted = None if number in logs else LogEnd.decode(disk.read(f"{path}/end.{number:x}"))
        if noted is not None and noted.zxid > in_snapshot:
            found.problems.append(f"{path}/log.{number:x} is missing")
    return found


def write_anew(disk: RepairDisk, folder: str, tree: Tree) -> str:
    """Set the journal below `folder` aside and write one that has `tree`, durably; the caller holds the lock of the
    old one. Returns the path of the old one, which the caller may remove. Raises OSError.
    """
    path, new = f"{folder}/{VERSION_FOLDER}", f"{folder}/{VERSION_FOLDER}.new"
    number = 1
    while disk.exists(aside := f"{path}{_ASIDE}{number}"):
        number += 1
    if disk.exists(new):
        for entry in disk.list(new):
            disk.remove(f"{new}/{entry.name}")
    disk.make_directory(new, OWNER_ONLY)
    disk.replace(f"{new}/snapshot.{tree.zxid:x}", encode_snapshot(tree), sync=True)
    disk.rename(path, aside)
    disk.rename(new, path)
    disk.sync_directory(folder)
    return aside


def _newest_snapshot(disk: JournalDisk, path: str, numbers: Sequence[int]) -> Salvage:
    problems: list[str] = []
    for number in reversed(numbers):
        name = f"{path}/snapshot.{number:x}"
        try:
            return Salvage(decode_snapshot(disk.read(name), number), problems)
        except JuteError as error:
            problems.append(f"{name} cannot be read: {error}")
    return Salvage(Tree(), problems)


def _read_log(disk: JournalDisk, path: str, found: Salvage, noted: LogEnd | None, *, is_last: bool) -> None:
    """Replay every whole record. The problems are those for which `Journal.load` rejects the log."""
    content = disk.read(path)
    buffer = memoryview(content)
    position = len(LOG_HEADER) if content[:8] == LOG_HEADER[:8] else 0
    damaged_at: int | None = None
    synced_behind = False
    while content[position:].strip(b"\0"):
        try:
            record = read_record(buffer, position)
        except JuteError:
            record, synced_behind = None, True
        if record is None:
            damaged_at = position if damaged_at is None else damaged_at
            position = _next_record(buffer, position + 1)
            continue
        found.records += 1
        synced_behind |= damaged_at is not None and record.batch_position == 0
        if record.transaction is not None and record.transaction.zxid > found.tree.zxid:
            _replay(found.tree, record.transaction)
        position = record.end
    if damaged_at is not None and (synced_behind or not is_last):
        found.problems.append(f"{path} is damaged at {damaged_at}")
    elif noted is not None:
        problem = noted.problem(content, position if damaged_at is None else damaged_at)
        if problem is not None:
            found.problems.append(f"{path} {problem}")


def _next_record(buffer: memoryview, position: int) -> int:
    """The position of the next whole record, or the end."""
    while position < len(buffer):
        try:
            if read_record(buffer, position) is not None:
                return position
        except JuteError:
            pass
        position += 1
    return position


def _replay(tree: Tree, transaction: JournalTransaction) -> None:
    """Apply what fits the tree."""
    for step in transaction.steps:
        for fitting in _fitting(tree, step):
            try:
                tree.replay(transaction._replace(steps=(fitting,), multi=False))
            except RegistryError:
                continue
    if not transaction.steps:
        tree.replay(transaction)


def _fitting(tree: Tree, step: Step) -> list[Step]:
    """The step as it can be applied, with the creation of missing parents before it."""
    match step:
        case CreateStep(path, data):
            if tree.exists(path) is not None:
                return [SetStep(path, data, 0)]
            missing: list[Step] = []
            above = parent_of(path)
            while tree.exists(above) is None:
                missing.append(CreateStep(above, None, False, 1))
                above = parent_of(above)
            return [*reversed(missing), step]
        case SetStep(path) | SetAclStep(path) | CheckStep(path):
            return [step] if tree.exists(path) is not None else []
        case DeleteStep(path):
            return [step] if _is_leaf(tree, path) else []
        case CloseSessionStep(paths):
            return [CloseSessionStep(tuple(path for path in paths if _is_leaf(tree, path)))]
        case _:
            return [step]


def _is_leaf(tree: Tree, path: str) -> bool:
    stat = tree.exists(path)
    return stat is not None and not stat.num_children
