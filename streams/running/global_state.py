"""Global tables: stores that every instance holds completely, from all partitions of a topic (Kafka:
GlobalStreamThread).

A separate thread reads them. Before an application processes records, its global stores are restored up to the end
offsets that their topics had at the start; afterwards they follow. A global table stores the topic's records unchanged
while it is restored; a global store with a user's processor is restored through that processor, since only the
processor determines the contents of the store (KIP-813).

The position of each partition is in the checkpoint of the directory `global`, which is written when the stores have
moved far, and at the close. A store that is not on disk is restored from the beginning at each start, and so is one
whose topic no longer has the next offset. A failure here ends the client.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Position

from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.config import StreamsConfig
from odradek.streams.context import Send, TaskContext
from odradek.streams.errors import DeadLetter, StreamsError
from odradek.streams.queries import FairLock
from odradek.streams.records import TaskId
from odradek.streams.running import checkpoints
from odradek.streams.running.application import now_ms
from odradek.streams.running.client import take_batch
from odradek.streams.running.restoration import RestoreListener
from odradek.streams.running.state_directory import StateDirectory
from odradek.streams.running.store_formats import StoreFormats, format_of
from odradek.streams.sensors import StreamsMetrics
from odradek.streams.stores.cache import ThreadCache
from odradek.streams.stores.keyvalue import directory_of
from odradek.streams.stores.keyvalue import wipe as wipe_store
from odradek.streams.task import Task
from odradek.streams.topology import Subtopology, Topology, make_store

log = logging.getLogger(__name__)

BATCH: Final = 5_000
FAR: Final = 10_000
"""Records after which a checkpoint is worth its fsync."""
PROGRESS_S: Final = 10.0
POLL_S: Final = 0.1
GLOBAL_TASK: Final = -1
"""The task id (sub-topology and partition) that no other task has."""
_GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})


class GlobalState:
    """The global stores of one client, and the thread that fills them."""

    def __init__(
        self,
        topology: Topology,
        context: TaskContext,
        consumer: Consumer,
        directory: StateDirectory,
        *,
        timeout_s: float,
        give_up_s: float = 300.0,
        listener: RestoreListener | None = None,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`consumer` belongs to this thread alone and has the configs of `restoration.CONSUMER`. `on_failure` receives
        the error that ended the thread.

        `timeout_s` bounds a request to the cluster, `give_up_s` a start without progress (task.timeout.ms).
        """
        self.stores: dict[str, Any] = {}
        """Stores by name; other threads read them while they hold `lock`."""
        self.lock = FairLock()
        self._topology = topology
        self._context = context
        self._consumer = consumer
        self._directory = directory
        self._timeout_s = timeout_s
        self._give_up_s = give_up_s
        self._listener = listener or RestoreListener()
        self._on_failure = on_failure
        self._positions: dict[TopicPartition, int] = {}
        self._ranges: dict[TopicPartition, tuple[int, int]] = {}
        """The offsets of each partition at the start: first offset and end offset."""
        self._since_checkpoint = 0
        self._broken = False
        """Whether the stores are invalid and have to be wiped."""
        self._store_of = {topology.source_changelogs[name]: name for name in topology.global_stores}
        self._task: Task | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"{context.application_id}-GlobalStreamThread", daemon=True
        )

    def start(self) -> None:
        """Open the stores, restore them, and follow their topics from then on. Raises StreamsError.

        Blocks until the stores are restored; the log contains the progress.
        """
        for topic in self._store_of:
            self._fetch_ranges(topic)
        task = self._task = self._open()
        # Stores that are restored through a processor come after all others, which need no processor.
        reprocessed = self._topology.reprocess_global
        in_turn = sorted(self._ranges, key=lambda each: self._store_of[each[0]] in reprocessed)
        running = False
        for partition in in_turn:
            if not running and self._store_of[partition[0]] in reprocessed:
                task.init()
                running = True
            if self._stopping.is_set():
                return
            self._restore(partition, self._store_of[partition[0]])
        if not running:
            task.init()
        self._consumer.assign([Position(*each, self._positions.get(each, -1) + 1) for each in self._ranges])
        self._checkpoint()
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the thread, of `start`, too. Any thread may call it; `close` has to follow."""
        self._stopping.set()

    def close(self) -> None:
        """End the thread and close the stores. Raises an error of a processor or a store once all are closed."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join()
        self._consumer.close()
        try:
            if self._task is not None and not self._broken:
                self._checkpoint()
        except Exception as error:  # records behind the last checkpoint are read again
            log.warning("closing global stores without a checkpoint error=%r", error)
        with self.lock, contextlib.ExitStack() as ends:
            if self._broken:
                ends.callback(self._directory.wipe_global)
            for store in self.stores.values():
                ends.callback(store.close)
            if self._task is not None:
                ends.callback(self._task.close)

    # ---- internals

    def _fetch_ranges(self, topic: str) -> None:
        """Fetch the partitions of a topic and their offsets. Raises StreamsError."""
        try:
            metadata = self._consumer.list_topics(topic, timeout=self._timeout_s).topics[topic]
            if metadata.error is not None:
                raise StreamsError(f"the topic {topic} of a global table cannot be read: {metadata.error.str()}")
            for partition in sorted(metadata.partitions):
                found = self._consumer.get_watermark_offsets(Position(topic, partition), timeout=self._timeout_s)
                if found is None:
                    raise StreamsError(
                        f"no broker returned the offsets of {topic}-{partition} within {self._timeout_s:g} s"
                    )
                self._ranges[topic, partition] = found
        except KafkaException as error:
            raise StreamsError(f"the topic {topic} of a global table cannot be read: {error.args[0].str()}") from error

    def _open(self) -> Task:
        topology, context = self._topology, self._context
        path = self._directory.global_path
        context.store_dir = context.state_dir = path
        try:
            known = checkpoints.read(path)
        except checkpoints.CheckpointError as error:
            log.warning("restoring global stores from the beginning error=%s", error)
            known = {}
        formats = StoreFormats(path)
        for topic, name in self._store_of.items():
            builder = topology.global_stores[name]
            store = make_store(builder, context.config)
            if store.persistent:
                formats.check(name, format_of(builder, context.config), directory_of(path, name))
                self._believe(path, topic, name, known)
            self.stores[name] = store
            store.init(context)
        nodes = tuple(name for name in topology.nodes if name in topology.global_nodes)
        whole = Subtopology(GLOBAL_TASK, nodes, tuple(self._store_of), (), {}, tuple(self.stores), {})
        task = Task(topology, whole, context, {}, self.stores)
        for partition in self._ranges:
            task.read(partition)
        return task

    def _believe(self, path: Path, topic: str, name: str, known: Mapping[TopicPartition, int]) -> None:
        """Use a store as it is on disk, if its topic still has the next offset; else remove it."""
        offsets = {each: offset for each, offset in known.items() if each[0] == topic and each in self._ranges}
        for partition, offset in offsets.items():
            low, high = self._ranges[partition]
            if not low <= offset + 1 <= high:
                log.warning(
                    "restoring global store anew, as its next offset is gone topic=%s partition=%d offset=%d store=%s",
                    *partition,
                    offset + 1,
                    name,
                )
                break
        else:
            if offsets:
                self._positions.update(offsets)
                return
        wipe_store(path, name)

    def _restore(self, partition: TopicPartition, name: str) -> None:
        """Restore a store up to the end offset that the partition had at the start. Raises StreamsError."""
        low, high = self._ranges[partition]
        last = self._positions.get(partition)
        start = low if last is None else last + 1
        if start >= high:
            self._positions[partition] = high - 1
            return
        store = None if name in self._topology.reprocess_global else self.stores[name]
        self._listener.on_restore_start(partition, name, start, high)
        self._consumer.assign([Position(*partition, start)])
        total, began = 0, time.monotonic()
        reported = moved = began
        while not self._stopping.is_set():
            batch, ended = self._batch(take_batch(self._consumer, BATCH, POLL_S), partition)
            now = time.monotonic()
            batch = [each for each in batch if int(each.offset() or 0) < high]
            if batch:
                self._apply(partition, store, batch)
                total, moved = total + len(batch), now
                self._positions[partition] = int(batch[-1].offset() or 0)
                self._listener.on_batch_restored(partition, name, self._positions[partition], len(batch))
            if ended or self._positions.get(partition, -1) + 1 >= high:
                self._positions[partition] = high - 1
                self._listener.on_restore_end(partition, name, total)
                log.info(
                    "global store restored store=%s topic=%s partition=%d records=%d duration_s=%.1f",
                    name,
                    *partition,
                    total,
                    now - began,
                )
                return
            if now - moved > self._give_up_s:
                raise StreamsError(f"{partition[0]}-{partition[1]}: no record arrived for {self._give_up_s:g} s")
            if now - reported > PROGRESS_S:
                reported, left = now, high - 1 - self._positions.get(partition, start - 1)
                rate = total / (now - began)
                log.info(
                    "restoring global store=%s records_left=%s topic=%s partition=%d records_per_second=%.0f",
                    name,
                    f"{left:,}",
                    *partition,
                    rate,
                )

    def _apply(self, partition: TopicPartition, store: Any, batch: list[Message]) -> None:
        if store is not None:
            store.restore(
                [(each.key(), each.value(), each.timestamp()[1], None) for each in batch if each.key() is not None]
            )
        else:
            assert self._task is not None
            self._task.add(partition, batch)
            self._task.process_partition(partition, len(batch))
        self._since_checkpoint += len(batch)

    def _batch(self, messages: list[Message], partition: TopicPartition) -> tuple[list[Message], bool]:
        """The records of a partition, and whether the reader reached its end. Raises StreamsError."""
        batch, ended = [], False
        for message in messages:
            error = message.error()
            if error is None:
                if (message.topic(), message.partition()) == partition:
                    batch.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended = True
            else:
                self._failed(error)
        return batch, ended

    def _failed(self, error: KafkaError) -> None:
        if error.code() in _GONE:
            self._broken = True
            raise StreamsError(
                f"a global table missed records that are no longer in the log: {error.str()}. "
                "Its state is removed; start again"
            )
        if error.fatal():
            raise StreamsError(f"a global table cannot be read: {error.str()}")
        log.warning("error while reading global tables error=%s", error.str())

    def _run(self) -> None:
        interval_s = int(self._context.config.get("commit.interval.ms", 30_000)) / 1000
        next_checkpoint = time.monotonic() + interval_s
        try:
            while not self._stopping.is_set():
                self._follow(take_batch(self._consumer, BATCH, POLL_S))
                if time.monotonic() >= next_checkpoint:
                    if self._since_checkpoint > FAR:
                        self._checkpoint()
                    next_checkpoint = time.monotonic() + interval_s
        except Exception as error:  # any error, which no other code would report
            self._on_failure(error)

    def _follow(self, messages: list[Message]) -> None:
        batches: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            error = message.error()
            if error is None:
                batches.setdefault((str(message.topic()), int(message.partition() or 0)), []).append(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                self._failed(error)
        with self.lock:
            for partition, batch in batches.items():
                self._apply(partition, None, batch)
                self._positions[partition] = int(batch[-1].offset() or 0)

    def _checkpoint(self) -> None:
        with self.lock:
            for store in self.stores.values():
                store.flush()
        self._since_checkpoint = 0
        persistent = {topic for topic, name in self._store_of.items() if self.stores[name].persistent}
        offsets: Mapping[TopicPartition, int] = {
            each: offset for each, offset in self._positions.items() if each[0] in persistent and offset >= 0
        }
        checkpoints.write(self._directory.global_path, offsets)


def make_global_state(
    topology: Topology,
    config: StreamsConfig,
    consumer: Consumer,
    directory: StateDirectory,
    *,
    listener: RestoreListener | None,
    on_failure: Callable[[Exception], None],
    sensors: StreamsMetrics | None = None,
) -> GlobalState:
    """The global stores of an application with this configuration, not started yet."""
    task_id = TaskId(GLOBAL_TASK, GLOBAL_TASK)
    return GlobalState(
        topology,
        TaskContext(task_id, _NoCollector(), now_ms, config, ThreadCache(0), handlers=config.handlers, metrics=sensors),
        consumer,
        directory,
        timeout_s=config["request.timeout.ms"] / 1000,
        give_up_s=config["task.timeout.ms"] / 1000,
        listener=listener,
        on_failure=on_failure,
    )


class _NoCollector:
    """Global stores have no changelog and no downstream nodes."""

    def sender(self, context: TaskContext) -> Send:
        return self.send

    def add_writer(self, topic: str, node: str) -> None:
        raise StreamsError(f"a processor of a global store cannot write (to {topic})")

    def send_dead_letter(self, letter: DeadLetter) -> None:
        log.warning("no dead letter for a record of a global table topic=%s", letter.topic)

    def send(self, topic: str, *record: Any) -> None:
        raise StreamsError(f"a processor of a global store cannot write (to {topic})")

    def partitions_of(self, topic: str) -> int:
        raise StreamsError(f"a processor of a global store cannot write (to {topic})")
