"""AlterPartition manager: requests ISR changes from the controller (KIP-497; Kafka: AlterPartitionManager).

The manager sends the pending ISRs of all partitions in one request and has one request in flight at a time. If a
request is lost, or reaches a broker that is not the controller, the manager retries after RETRY_MS with the changes
that are still pending. It applies the controller's answer to the partition's state machine (Kafka:
Partition.handleAlterPartitionUpdate, handleAlterPartitionError).
"""

from __future__ import annotations

import logging
from typing import Final

from odradek.broker.network.controller_channel import BrokerIdentity, SendToController
from odradek.broker.replication.partition import Replica
from odradek.broker.replication.state.partition import LeaderAndIsr, PendingIsr
from odradek.broker.runtime.purgatory import check_and_complete
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

RETRY_MS: Final = 50
TopicData = m.AlterPartitionRequest.TopicData
PartitionData = m.AlterPartitionRequest.PartitionData
BrokerState = m.AlterPartitionRequest.BrokerState


class DefaultAlterPartitionManager:
    """Sends the pending ISRs of all partitions that this broker leads."""

    def __init__(self, identity: BrokerIdentity, send_request: SendToController, clock: Clock, timers: Timers) -> None:
        """`send_request` sends a request to the controller."""
        self._identity = identity
        self._send_request = send_request
        self._clock = clock
        self._timers = timers
        self._pending: dict[Replica, PendingIsr] = {}
        self._under_way: dict[Replica, PendingIsr] | None = None
        self._timer: Timer | None = None
        self._closed = False

    def submit(self, replica: Replica, change: PendingIsr) -> None:
        """Request a change of the ISR; it replaces an unsent request of the same partition."""
        self._pending[replica] = change
        self._send_after(0)

    def close(self) -> None:
        """Stop sending AlterPartition requests."""
        self._closed = True
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _send_after(self, delay_ms: int) -> None:
        if self._under_way is None and self._timer is None and not self._closed:
            self._timer = self._timers.at(self._clock.monotonic_ms() + delay_ms, self._send)

    def _send(self) -> None:
        self._timer = None
        pending = {each: change for each, change in self._pending.items() if each.machine.pending is change}
        self._pending = {}
        if not pending:
            return
        self._under_way = pending
        topics: dict[bytes, m.AlterPartitionRequest.TopicData] = {}
        for replica, change in pending.items():
            topic = topics.setdefault(replica.topic_id, TopicData(topic_name=replica.topic, topic_id=replica.topic_id))
            topic.partitions.append(
                PartitionData(
                    partition_index=replica.partition,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=each, broker_epoch=epoch)
                        for each, epoch in zip(change.isr, change.broker_epochs, strict=True)
                    ],
                    leader_recovery_state=0,
                    partition_epoch=change.partition_epoch,
                )
            )
        request = m.AlterPartitionRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self._identity.broker_epoch,
            topics=list(topics.values()),
        )
        self._send_request(request, self._answered, lambda error: self._again(str(error)))

    def _again(self, why: str) -> None:
        """Retry: the result of the request is unknown, or it reached a broker that is not the controller."""
        pending, self._under_way = self._under_way or {}, None
        log.debug("retrying AlterPartition request partitions=%d error=%s", len(pending), why)
        for replica, change in pending.items():
            self._pending.setdefault(replica, change)
        self._send_after(RETRY_MS)

    def _answered(self, response: m.AlterPartitionResponse) -> None:
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self._again(code.name)
            return
        pending, self._under_way = self._under_way or {}, None
        received = {
            (topic.topic_id, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        again = False
        for replica, change in pending.items():
            partition = received.get((replica.topic_id, replica.partition))
            if partition is None:
                continue
            error = ErrorCode(partition.error_code)
            if error is not ErrorCode.NONE:
                log.info(
                    "ISR change rejected topic=%s partition=%d error=%s", replica.topic, replica.partition, error.name
                )
                if self._refused(replica, change, error):
                    self._pending.setdefault(replica, change)
                    again = True
                continue
            state = LeaderAndIsr(
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.isr),
                replica.machine.replicas,
                partition.partition_epoch,
                bool(partition.leader_recovery_state),
            )
            self._accepted(replica, change, state)
        self._send_after(RETRY_MS if again else 0)

    def _accepted(self, replica: Replica, change: PendingIsr, state: LeaderAndIsr) -> None:
        """The controller has accepted a change of the ISR, or returned a newer state."""
        before = replica.machine.isr
        replica.machine.isr_changed(change, state, self._clock.monotonic_ms())
        if replica.machine.isr != before:
            replica.metrics.isr_shrinks += not before <= replica.machine.isr
            replica.metrics.isr_expands += not replica.machine.isr <= before
            log.info(
                "ISR changed topic=%s partition=%d isr=%s previous_isr=%s",
                replica.topic,
                replica.partition,
                sorted(replica.machine.isr),
                sorted(before),
            )
        check_and_complete(replica)

    def _refused(self, replica: Replica, change: PendingIsr, error: ErrorCode) -> bool:
        """The controller has refused a change of the ISR. Returns whether to send the request again."""
        machine = replica.machine
        before = machine.high_watermark
        replica.metrics.failed_isr_updates += 1
        again = machine.isr_refused(change, error, self._clock.monotonic_ms())
        if machine.high_watermark > before:
            check_and_complete(replica)
        return again
