"""Controller mutation quotas: how many partitions clients may create and delete (KIP-599; Kafka:
ControllerMutationQuotaManager).

A mutation takes tokens of a bucket, one for each partition. A strict quota rejects a mutation while the bucket is below
zero; a permissive one, for clients of old versions, allows it and throttles the client.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.quota.client_quota_manager import MOST_THROTTLE_MS, QuotaEntities, QuotaRow, QuotaSensor
from odradek.broker.quota.state.rates import QuotaConfig, TokenBucket
from odradek.broker.runtime.timers import Clock
from odradek.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call


class ControllerMutationQuota:
    """The quota for one request. This class allows everything (Kafka: UnboundedControllerMutationQuota)."""

    __slots__ = ()

    def record(self, partitions: int) -> None:
        """Record partitions that are created or deleted next. Raises KafkaError with THROTTLING_QUOTA_EXCEEDED."""

    def throttle_ms(self, now_ms: int) -> int:
        """For how long the client has to be throttled."""
        return 0


UNBOUNDED: Final = ControllerMutationQuota()


class BoundedControllerMutationQuota(ControllerMutationQuota):
    """Takes the tokens of one sensor (Kafka: StrictControllerMutationQuota, PermissiveControllerMutationQuota)."""

    __slots__ = ("_clock", "_is_strict", "_sensor", "_throttled_until_ms")

    def __init__(self, sensor: QuotaSensor[TokenBucket], clock: Clock, *, is_strict: bool) -> None:
        self._sensor = sensor
        self._clock = clock
        self._is_strict = is_strict
        self._throttled_until_ms = 0

    def record(self, partitions: int) -> None:
        sensor, now_ms = self._sensor, self._clock.monotonic_ms()
        if self._is_strict:
            throttle_ms = sensor.stat.throttle_ms(sensor.bound, now_ms)
            if throttle_ms == 0:
                sensor.stat.record(partitions, sensor.bound, now_ms)
        else:
            sensor.stat.record(partitions, sensor.bound, now_ms)
            throttle_ms = sensor.stat.throttle_ms(sensor.bound, now_ms)
        if throttle_ms > 0:
            if sensor.bound > 0:  # else Kafka's infinite throttle time becomes -1 where it is made an int
                self._throttled_until_ms = now_ms + throttle_ms
            if self._is_strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)  # without a message, as from Kafka

    def throttle_ms(self, now_ms: int) -> int:
        return min(max(0, self._throttled_until_ms - now_ms), MOST_THROTTLE_MS)


class ControllerMutationQuotaManager(QuotaEntities[TokenBucket]):
    """The quotas of all entities."""

    def __init__(self, config: QuotaConfig, clock: Clock) -> None:
        super().__init__(config, clock, TokenBucket)

    def quota_for(self, call: Call, *, is_strict: bool) -> ControllerMutationQuota:
        """The quota for a request."""
        sensor = self.sensor(call)
        return UNBOUNDED if sensor is None else BoundedControllerMutationQuota(sensor, self._clock, is_strict=is_strict)

    def metrics(self) -> Iterator[QuotaRow]:
        """The tokens of each set of clients."""
        return self.rows(lambda sensor, now_ms: sensor.stat.measure(sensor.bound, now_ms))
