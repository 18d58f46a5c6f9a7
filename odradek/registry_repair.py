"""`odradek registry check` and `repair`: a damaged journal of the metadata store of one broker, and the logs beside it.

The repair keeps what the journal still has, and rebuilds topics from the logs: the name and the partitions from the
names of their folders, the topic id from `partition.metadata`, the leader epoch from `leader-epoch-checkpoint`. The old
journal is set aside. What only the journal had cannot be rebuilt: configurations of topics and brokers, ACLs, SCRAM
credentials, quotas and tokens. So that the broker deletes no record because of a lost configuration, a rebuilt topic
has no retention limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from odradek.broker.composition.registry_access import REGISTRY_FOLDER
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Create, Set
from odradek.broker.registry.journal import LOCK, VERSION_FOLDER
from odradek.broker.registry.journal_repair import Salvage, salvage, write_anew
from odradek.broker.registry.tree import ROOT, Tree, parent_of
from odradek.protocol.errors import KafkaError
from odradek.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    ZERO_UUID,
    CorruptFile,
    decode_epochs,
    decode_partition_metadata,
)
from odradek.storage.directory_identity import read_identity
from odradek.storage.disk import Folder, Lock, OsDisk
from odradek.storage.log_names import parse_name
from odradek.storage.producers import SNAPSHOT_SUFFIX, decode_snapshot
from odradek.storage.read_files import base_offset_of
from odradek.storage.reading import DamagedLog, Partition

INTERNAL_CONFIGS: Final = {
    "__consumer_offsets": {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    "__transaction_state": {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}
WITHOUT_RETENTION: Final = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
_SESSION: Final = 1
_PRODUCER_ID_BLOCK_SIZE: Final = 1000


class RegistryRepairError(Exception):
    """The journal cannot be checked or repaired, with the reason."""


class LogOnDisk(NamedTuple):
    """A log: its partition, topic id (zeros where none is stored), last leader epoch (-1), and highest producer id."""

    path: str
    topic: str
    partition: int
    topic_id: bytes
    leader_epoch: int
    producer_id: int
    size: int


@dataclass(slots=True)
class Inspection:
    """A journal as far as it can be read, and the logs of the broker that it belongs to.

    `problems` are why the broker does not start, or what it does not serve; `notes` are what else a repair changed.
    `broker_id` is -1 where there are no data directories.
    """

    folder: str
    found: Salvage
    logs: list[LogOnDisk] = field(default_factory=list)
    broker_id: int = -1
    cluster_id: str | None = None
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def topics(self) -> dict[str, znodes.TopicAssignment]:
        """The topics of the registry."""
        return topics_in(self.found.tree)


def check(data: Path, log_dirs: list[Path]) -> Inspection:
    """Inspect the registry of `data`, and the logs in `log_dirs` (by default those of `data`). Writes nothing.

    Raises RegistryRepairError, OSError.
    """
    disk = OsDisk()
    folder, log_dirs = _locate(data, log_dirs)
    with _Locked(disk, folder, exists=True):
        return _inspect(disk, folder, log_dirs)


def repair(data: Path, log_dirs: list[Path]) -> Inspection:
    """Repair the registry of `data`; the returned inspection is that of before, with notes of what was done.

    Raises RegistryRepairError, OSError.
    """
    disk = OsDisk()
    folder, log_dirs = _locate(data, log_dirs)
    with _Locked(disk, folder, exists=False):
        inspection = _inspect(disk, folder, log_dirs)
        if not inspection.problems:
            inspection.notes.append("nothing to repair")
            return inspection
        tree = inspection.found.tree
        now_ms = time.time_ns() // 1_000_000
        for session in tree.sessions:
            tree.close_session(session, now_ms)
        tree.open_session(_SESSION, 10_000, now_ms)
        _Rebuild(inspection, now_ms).run()
        tree.close_session(_SESSION, now_ms)
        aside = write_anew(disk, folder, tree)
        inspection.notes.append(f"the old journal is in {aside}")
    return inspection


def topics_in(tree: Tree) -> dict[str, znodes.TopicAssignment]:
    """The topics of a tree whose nodes can be decoded."""
    topics = {}
    if tree.exists(znodes.TOPICS) is not None:
        for name in tree.children(znodes.TOPICS)[0]:
            with suppress(znodes.ZnodeError):
                topics[name] = znodes.TopicAssignment.decode(tree.get(znodes.topic_path(name))[0])
    return topics


# -- reading -----------------------------------------------------------------------------------------------------------


class _Locked:
    """The journal, held against a broker that serves it."""

    def __init__(self, disk: OsDisk, folder: str, *, exists: bool) -> None:
        path = f"{folder}/{VERSION_FOLDER}"
        if not disk.exists(path):
            if exists:
                raise RegistryRepairError(
                    f"{folder} has no journal; `odradek registry repair` writes one from the logs"
                )
            disk.make_directory(path, 0o700)
        lock = disk.lock(f"{path}/{LOCK}")
        if lock is None:
            raise RegistryRepairError(f"the metadata store in {folder} is in use: stop its broker or registry first")
        self._lock: Lock = lock

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def _locate(data: Path, log_dirs: list[Path]) -> tuple[str, list[Path]]:
    """The folder of the journal, and the data directories of its broker."""
    if (data / "meta.properties").exists():
        return str(data / REGISTRY_FOLDER), log_dirs or [data]
    for folder in (data / REGISTRY_FOLDER, data / "registry", data):
        if (folder / VERSION_FOLDER).is_dir():
            return str(folder), log_dirs
    raise RegistryRepairError(
        f"{data} has no registry: --data names the first of the broker's log.dirs, or the folder of `odradek registry`"
    )


def _inspect(disk: OsDisk, folder: str, log_dirs: list[Path]) -> Inspection:
    inspection = Inspection(folder, salvage(disk, folder))
    inspection.problems += inspection.found.problems
    identities = [read_identity(disk, str(path)) for path in log_dirs]
    ids = {identity["broker.id"] for identity in identities if "broker.id" in identity}
    if len(ids) > 1:
        raise RegistryRepairError(
            f"the directories belong to brokers {', '.join(sorted(ids))}: name those of one broker"
        )
    if ids:
        inspection.broker_id = int(ids.pop())
    inspection.cluster_id = next((each["cluster.id"] for each in identities if "cluster.id" in each), None)
    for path in log_dirs:
        inspection.logs += _logs_in(disk, path)
    wanted, present = inspection.cluster_id, _cluster_id(inspection.found.tree)
    if wanted is not None and present != wanted:
        text = "no cluster id" if present is None else f"cluster id {present}"
        inspection.problems.append(f"the registry has {text}, and the data directory belongs to cluster {wanted}")
    inspection.problems += _unknown_logs(inspection.topics, inspection.logs)
    return inspection


def _cluster_id(tree: Tree) -> str | None:
    if tree.exists(znodes.CLUSTER_ID) is not None:
        with suppress(znodes.ZnodeError):
            return znodes.decode_cluster_id(tree.get(znodes.CLUSTER_ID)[0])
    return None


def _unknown_logs(topics: Mapping[str, znodes.TopicAssignment], logs: list[LogOnDisk]) -> Iterator[str]:
    for log in logs:
        topic = topics.get(log.topic)
        if topic is None or log.partition not in topic.partitions:
            yield f"{log.path}: a log of {log.size} bytes that the registry does not have"
        elif ZERO_UUID != log.topic_id != topic.topic_id and topic.topic_id is not None:
            yield (
                f"{log.path}: a log of topic id {znodes.encode_uuid(log.topic_id)}, and the registry has "
                f"{znodes.encode_uuid(topic.topic_id)}"
            )


def _logs_in(disk: OsDisk, directory: Path) -> Iterator[LogOnDisk]:
    for path in sorted(each for each in directory.iterdir() if each.is_dir()):
        with suppress(KafkaError):
            topic, partition = parse_name(str(directory), path.name)
            if topic != "__cluster_metadata":
                yield _log(Folder(disk, str(path)), topic, partition)


def _log(folder: Folder, topic: str, partition: int) -> LogOnDisk:
    topic_id, epochs = ZERO_UUID, []
    with suppress(CorruptFile):
        topic_id = decode_partition_metadata(folder.read(PARTITION_METADATA) or b"")
    with suppress(CorruptFile):
        epochs = decode_epochs(folder.read(LEADER_EPOCHS) or b"0\n0\n")
    names = folder.list()
    snapshots = [base_offset_of(each.name) or 0 for each in names if each.name.endswith(SNAPSHOT_SUFFIX)]
    producer_ids, epoch_of_batches = [-1], -1
    for offset in snapshots:
        with suppress(CorruptFile):
            data = folder.read(f"{offset:020d}{SNAPSHOT_SUFFIX}") or b""
            producer_ids += (producer.producer_id for producer in decode_snapshot(data))
    with suppress(DamagedLog):
        for batch in Partition(folder.path).batches(max(snapshots, default=0)):
            producer_ids.append(batch.header.producer_id)
            epoch_of_batches = max(epoch_of_batches, batch.header.leader_epoch)
    return LogOnDisk(
        folder.path,
        topic,
        partition,
        topic_id,
        max([epoch_of_batches, *(epoch for epoch, _ in epochs)]),
        max(producer_ids),
        sum(each.size for each in names if each.name.endswith(".log")),
    )


# -- rebuilding --------------------------------------------------------------------------------------------------------


class _Rebuild:
    """Adds to the tree of an inspection what its logs show."""

    def __init__(self, inspection: Inspection, now_ms: int) -> None:
        self._inspection = inspection
        self._tree = inspection.found.tree
        self._now_ms = now_ms

    def run(self) -> None:
        """Add cluster id, topics, leader epochs and producer ids. Raises RegistryRepairError."""
        inspection, topics = self._inspection, self._inspection.topics
        present = _cluster_id(self._tree)
        if inspection.cluster_id is not None and present != inspection.cluster_id:
            if present is not None and topics:
                raise RegistryRepairError(f"the registry is that of cluster {present}, not of {inspection.cluster_id}")
            self._put(znodes.CLUSTER_ID, znodes.encode_cluster_id(inspection.cluster_id))
        brokers = {each for topic in topics.values() for part in topic.partitions.values() for each in part.replicas}
        if not inspection.logs:
            return
        if brokers - {inspection.broker_id}:
            inspection.notes.append(
                f"no topic was rebuilt: the registry is that of brokers {sorted(brokers)}, not of one broker"
            )
            return
        for name in sorted({log.topic for log in inspection.logs}):
            self._rebuild_topic(name, topics.get(name), [log for log in inspection.logs if log.topic == name])
        self._raise_producer_ids()

    def _rebuild_topic(self, name: str, topic: znodes.TopicAssignment | None, logs: list[LogOnDisk]) -> None:
        ids = {log.topic_id for log in logs if log.topic_id != ZERO_UUID}
        if len(ids) > 1 or (topic is not None and topic.topic_id is not None and ids - {topic.topic_id}):
            self._inspection.notes.append(f"topic {name} was not changed: its logs have several topic ids")
            return
        partitions = dict(topic.partitions) if topic is not None else {}
        count = max(log.partition for log in logs) + 1
        added = [number for number in range(count) if number not in partitions]
        if added:
            replicas = znodes.ReplicaAssignment((self._inspection.broker_id,))
            partitions |= dict.fromkeys(added, replicas)
            topic_id = ids.pop() if ids else None
            if topic is not None:
                topic_id = topic.topic_id
            self._put(znodes.topic_path(name), znodes.TopicAssignment(topic_id, partitions).encode())
            self._inspection.notes.append(f"topic {name}: rebuilt partitions {', '.join(map(str, added))}")
        config = znodes.config_path(f"topics/{name}")
        if self._tree.exists(config) is None:
            configs = INTERNAL_CONFIGS.get(name, WITHOUT_RETENTION)
            self._put(config, znodes.encode_config(configs))
            text = ", ".join(f"{key}={value}" for key, value in configs.items())
            self._inspection.notes.append(f"topic {name}: its configuration is lost, and is now {text}")
        for log in logs:
            self._raise_epoch(log)

    def _raise_epoch(self, log: LogOnDisk) -> None:
        """A new leader's epoch must exceed those of the log; the controller elects it at the next start."""
        path = znodes.partition_state_path(log.topic, log.partition)
        state = None
        if self._tree.exists(path) is not None:
            with suppress(znodes.ZnodeError):
                state = znodes.PartitionState.decode(self._tree.get(path)[0])
        if state is None or state.leader_epoch < log.leader_epoch:
            broker_id = self._inspection.broker_id
            isr = (broker_id,) if state is None else state.isr
            state = znodes.PartitionState(broker_id, max(log.leader_epoch, 0), isr, self._controller_epoch())
            self._put(path, state.encode())

    def _controller_epoch(self) -> int:
        if self._tree.exists(znodes.CONTROLLER_EPOCH) is None:
            return 0
        with suppress(znodes.ZnodeError):
            return znodes.decode_controller_epoch(self._tree.get(znodes.CONTROLLER_EPOCH)[0])
        return 0

    def _raise_producer_ids(self) -> None:
        """No producer id of the logs may be given to another producer."""
        highest = max(log.producer_id for log in self._inspection.logs)
        last = -1
        if self._tree.exists(znodes.PRODUCER_ID_BLOCK) is not None:
            with suppress(znodes.ZnodeError):
                last = znodes.ProducerIdBlock.decode(self._tree.get(znodes.PRODUCER_ID_BLOCK)[0]).last
        if last < highest:
            first = highest - highest % _PRODUCER_ID_BLOCK_SIZE
            block = znodes.ProducerIdBlock(self._inspection.broker_id, first, first + _PRODUCER_ID_BLOCK_SIZE - 1)
            self._put(znodes.PRODUCER_ID_BLOCK, block.encode())
            self._inspection.notes.append(f"producer ids up to {block.last} count as allocated")

    def _put(self, path: str, data: bytes) -> None:
        """Set a node, and create it and its parents where they are missing."""
        if self._tree.exists(path) is not None:
            self._tree.submit(_SESSION, [Set(path, data)], self._now_ms)
            return
        missing = []
        above = parent_of(path)
        while above != ROOT and self._tree.exists(above) is None:
            missing.append(above)
            above = parent_of(above)
        for each in reversed(missing):
            self._tree.submit(_SESSION, [Create(each, None)], self._now_ms)
        self._tree.submit(_SESSION, [Create(path, data)], self._now_ms)
