"""Builds the replica manager of a broker, with its logs, fetchers, log cleaner and scheduled tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from odradek.broker.composition.context import BrokerContext
from odradek.broker.composition.identity import Identity
from odradek.broker.composition.partition_state_listener import CoordinatorEvents, DiskFailures
from odradek.broker.network.controller_channel import SendToController
from odradek.broker.replication.alter_partition_manager import DefaultAlterPartitionManager
from odradek.broker.replication.checkpoint_writes import CheckpointWrites
from odradek.broker.replication.fetcher import Fetchers, FetchSettings
from odradek.broker.replication.log_cleaner import CleanerProcesses, Cleaners, CleanersHere, LogCleaner
from odradek.broker.replication.partition import Worker
from odradek.broker.replication.replica_manager import ReplicaManager, ReplicaManagerDependencies
from odradek.broker.replication.replicas import ReplicaHost
from odradek.broker.runtime.scheduler import Periodic, ThreadWorker
from odradek.storage.directories import Directories

MOST_CLEANERS = 256
KEY_STORE_POLL_MS = 2_000


class Replication:
    """The replicas of a broker, and the parts that copy, clean and flush them."""

    def __init__(
        self,
        context: BrokerContext,
        identity: Identity,
        ask_controller: SendToController,
        events: CoordinatorEvents,
        end: Callable[[str], None],
    ) -> None:
        """`end` is called with the reason when no log directory is left."""
        registration, clock, timers = context.registration, context.clock, context.timers
        directories, undo = identity.directories, context.undo
        alter_partition_manager = DefaultAlterPartitionManager(registration, ask_controller, clock, timers)
        worker = context.environment.worker
        if worker is None:
            worker = ThreadWorker(asyncio.get_running_loop(), threads=len(directories) + 2, start=True)
        self.fetchers = _fetchers(context, worker)
        failures = DiskFailures(
            context.config.broker_id, context.session, self.fetchers, context.request_tasks, events, end
        )
        self.host = ReplicaHost(
            context.config, directories, context.replicas, clock, worker, alter_partition_manager, failures
        )
        self.host.moves.limit(context.quotas.replication.alter_log_dirs, timers)
        undo.callback(lambda: self.host.close(registration.broker_epoch))
        if isinstance(worker, ThreadWorker):
            undo.push_async_callback(worker.close)  # running flushes and their callbacks end before logs are closed
        undo.callback(self.host.retire)  # runs first, so that no new flush starts
        undo.callback(self.fetchers.close)
        undo.callback(alter_partition_manager.close)
        self.cleaner = _cleaner(context, directories, self.host.checkpoints, worker)
        _schedule(context, self.host, self.cleaner)
        self.replica_manager = ReplicaManager(
            ReplicaManagerDependencies(
                context.config.broker_id,
                lambda: registration.broker_epoch,
                self.host,
                context.replicas,
                self.fetchers,
                context.metadata_cache,
                events,
                identity.topic_configs,
                context.config.inter_broker_listener,
            )
        )
        undo.push_async_callback(self.replica_manager.close)


def _fetchers(context: BrokerContext, worker: Worker) -> Fetchers:
    """The fetchers of followers, which write large batches in threads of `worker`. The operating system chooses the
    size of their receive buffers, unless `replica.socket.receive.buffer.bytes` is set.
    """
    config, registration = context.config, context.registration
    size = config.number_if_set("replica.socket.receive.buffer.bytes")
    network = context.network(receive_buffer_bytes=size if size is not None and size > 0 else None)
    settings = FetchSettings(
        config.broker_id,
        lambda: registration.broker_epoch,
        int(config["replica.fetch.wait.max.ms"]),
        int(config["replica.fetch.min.bytes"]),
        int(config["replica.fetch.max.bytes"]),
        int(config["replica.fetch.response.max.bytes"]),
        int(config["replica.fetch.backoff.ms"]),
        int(config["replica.socket.timeout.ms"]),
        lambda: int(config["num.replica.fetchers"]),
        context.quotas.replication.follower,
        worker,
    )
    return Fetchers(network, settings)


def _cleaner(
    context: BrokerContext, directories: Directories, checkpoints: CheckpointWrites, worker: Worker
) -> LogCleaner:
    """The log cleaner. It compacts in worker processes, unless disk and threads are simulated."""
    environment, undo = context.environment, context.undo
    cleaners: Cleaners
    if environment.worker is not None:
        cleaners = CleanersHere(environment.disk, environment.worker)
    else:
        # A thread starts when it is first needed; log.cleaner.threads limits how many the cleaner uses.
        waiting = ThreadWorker(asyncio.get_running_loop(), threads=MOST_CLEANERS)
        undo.push_async_callback(waiting.close)
        cleaners = CleanerProcesses(waiting)
    cleaner = LogCleaner(
        context.config,
        list(directories),
        context.replicas,
        cleaners,
        context.clock,
        environment.random,
        checkpoints,
        worker,
    )
    undo.callback(cleaner.close)
    return cleaner


def _schedule(context: BrokerContext, host: ReplicaHost, cleaner: LogCleaner) -> None:
    """Start the scheduled tasks on logs and replicas."""
    config, periodic = context.config, Periodic(context.clock, context.timers)
    context.undo.callback(periodic.close)
    for name, job in (
        ("replica.high.watermark.checkpoint.interval.ms", host.write_high_watermarks),
        ("log.flush.offset.checkpoint.interval.ms", host.write_recovery_points),
        ("log.flush.start.offset.checkpoint.interval.ms", host.write_start_offsets),
        ("log.retention.check.interval.ms", lambda: host.delete_old_segments(cleaner.is_cleaning)),
        ("producer.id.expiration.check.interval.ms", host.expire_producers),
    ):
        # Kafka's scheduled tasks on logs first run after that delay, or sooner.
        first_ms = int(config["log.initial.task.delay.ms"]) if name.startswith("log.") else None
        periodic.every(name, lambda name=name: int(config[name]), job, first_ms)  # type: ignore[misc]
    periodic.every(
        "log.flush.scheduler",
        lambda: min(1000, int(config["log.flush.scheduler.interval.ms"])),
        host.flush_due_logs,
    )
    if config["log.cleaner.enable"]:
        periodic.every("log.cleaner.backoff.ms", lambda: int(config["log.cleaner.backoff.ms"]), cleaner.clean_due_logs)
    # The interval of Kafka's task that removes deleted logs; at most ten seconds, for topics with a shorter delay.
    delay = "log.segment.delete.delay.ms"
    periodic.every("purge", lambda: min(10_000, max(100, int(config[delay]))), host.purge)
    periodic.every("refusals", lambda: 10_000, context.addresses.log_suppressed_refusals)
    periodic.every("key stores", lambda: KEY_STORE_POLL_MS, context.addresses.reload_changed_files)
    periodic.every("isr", lambda: max(1, int(config["replica.lag.time.max.ms"]) // 2), host.shrink_isrs)
