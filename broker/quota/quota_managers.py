"""Quota managers: the client quotas of a broker, and how their violation throttles a request (Kafka:
QuotaFactory.QuotaManagers, RequestHandlerHelper).

The response to a request that violates a quota leaves at once, with the time for which the client should send nothing;
the broker reads nothing from the connection for that time (KIP-219). The throttle time is the longest that any of the
quotas asks for. A Fetch response becomes empty, so the bytes do not count. Requests of brokers are exempt.

Where no client quota is set, `is_active` is False, and this is all that a request costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.quota.client_quota_manager import ClientQuotaManager, QuotaRow
from odradek.broker.quota.controller_mutation_quota import (
    UNBOUNDED,
    ControllerMutationQuota,
    ControllerMutationQuotaManager,
)
from odradek.broker.quota.state.rates import QuotaConfig
from odradek.broker.runtime.timers import Clock

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call
    from odradek.broker.runtime.usage import Usage

PRODUCE: Final = 0
LARGEST: Final = 2**31 - 1
"""Bytes of a response without a quota."""
CLUSTER_ACTIONS: Final = frozenset({4, 5, 6, 7, 27, 56, 67})
"""Requests that only brokers send: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, WriteTxnMarkers,
AlterPartition, AllocateProducerIds."""
PERCENT_OF_A_NANOSECOND: Final = 100 / 1e9
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"


class QuotaManagers:
    """The quotas of users and client ids."""

    def __init__(self, config: QuotaConfig, mutations: QuotaConfig, clock: Clock) -> None:
        """`config` is quota.window.*, `mutations` controller.quota.window.*."""
        self._clock = clock
        self.produce = ClientQuotaManager(config, clock)
        self.fetch = ClientQuotaManager(config, clock)
        self.request = ClientQuotaManager(config, clock, most_throttle_ms=config.window_ms)
        self.controller_mutation = ControllerMutationQuotaManager(mutations, clock)
        self._by_property: dict[str, ClientQuotaManager | ControllerMutationQuotaManager] = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
            CONTROLLER_MUTATION_RATE: self.controller_mutation,
        }
        self.is_active = False
        """Whether any entity has a quota."""

    # ---- configuration

    def update(self, entity: Mapping[str, str | None], quotas: Mapping[str, float]) -> None:
        """Apply the quotas of a user, client id or both; those that are missing are removed."""
        for name, manager in self._by_property.items():
            manager.update(entity, quotas.get(name))
        self.is_active = any(manager.is_enabled for manager in self._by_property.values())

    def entities(self) -> list[dict[str, str | None]]:
        """The entities that have a quota."""
        return [entity for manager in self._by_property.values() for entity in manager.entities()]

    # ---- requests

    def throttle(self, call: Call, response: Any) -> None:
        """Charge a request that is answered with `response` (None: without one), unless its handler has, and set the
        throttle time of the response.
        """
        usage = call.usage
        if usage is None:  # the request came before there was a quota
            return
        if usage.throttle_ms < 0:
            self._charge(call, usage, is_answered=response is not None)
        elif response is not None:  # what it has used since then, such as to convert records; it throttles no more
            self._record_time(call, usage, self._clock.monotonic_ms())
        if usage.throttle_ms > 0 and response is not None and "throttle_time_ms" in response.ATTRIBUTES:
            response.throttle_time_ms = usage.throttle_ms

    def throttle_fetch(self, call: Call, size: int) -> int:
        """Charge a Fetch request of a consumer; returns the throttle time in ms.

        The response has to be empty if that is not 0: its `size` bytes are not counted then.
        """
        usage = call.usage
        if usage is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        request_ms = self._record_time(call, usage, now_ms)
        bandwidth_ms = self.fetch.record(call, size, now_ms) if self.fetch.is_enabled else 0
        if max(request_ms, bandwidth_ms) > 0 and self.fetch.is_enabled:
            self.fetch.unrecord(call, size, now_ms)
        self._throttle(call, usage, self.fetch, bandwidth_ms, request_ms)
        return usage.throttle_ms

    def most_fetch_bytes(self, call: Call) -> int:
        """The largest response of a consumer that does not violate the quota by itself."""
        return int(min(self.fetch.most_in_window(call), LARGEST)) if self.fetch.is_enabled else LARGEST

    def mutations(self, call: Call, strict_since: int) -> ControllerMutationQuota:
        """The quota for the partitions that a request creates or deletes; strict from that version on (KIP-599).

        A request of this broker to itself, which creates a topic for a client, has none.
        """
        if not self.controller_mutation.is_enabled or call.session.is_broker_itself:
            return UNBOUNDED
        return self.controller_mutation.quota_for(call, is_strict=call.version >= strict_since)

    def permissive_mutations(self, call: Call) -> ControllerMutationQuota:
        """The quota for the partitions that are created for a request of another API."""
        if not self.controller_mutation.is_enabled:
            return UNBOUNDED
        return self.controller_mutation.quota_for(call, is_strict=False)

    def throttle_mutations(self, call: Call, quota: ControllerMutationQuota) -> None:
        """Charge a request that created or deleted partitions; call this before its response is sent."""
        usage = call.usage
        if quota is UNBOUNDED or usage is None:
            return
        now_ms = self._clock.monotonic_ms()
        request_ms, mutation_ms = self._record_time(call, usage, now_ms), quota.throttle_ms(now_ms)
        self._throttle(call, usage, self.controller_mutation, mutation_ms, request_ms)

    def _charge(self, call: Call, usage: Usage, *, is_answered: bool) -> None:
        if call.api_key in CLUSTER_ACTIONS or call.from_follower:
            usage.throttle_ms = 0
            return
        now_ms = self._clock.monotonic_ms()
        bandwidth_ms = 0
        if call.api_key == PRODUCE and self.produce.is_enabled:
            bandwidth_ms = self.produce.record(call, usage.request_bytes, now_ms)
        request_ms = self._record_time(call, usage, now_ms) if is_answered else 0
        self._throttle(call, usage, self.produce, bandwidth_ms, request_ms)

    def _record_time(self, call: Call, usage: Usage, now_ms: int) -> int:
        """Record the time for which the request has kept the event loop, and threads that worked for it."""
        if not self.request.is_enabled:
            return 0
        return self.request.record(call, usage.take_unrecorded_ns() * PERCENT_OF_A_NANOSECOND, now_ms)

    def _throttle(
        self,
        call: Call,
        usage: Usage,
        manager: ClientQuotaManager | ControllerMutationQuotaManager,
        other_ms: int,
        request_ms: int,
    ) -> None:
        """Throttle the connection for the longer of both times, and count that in the metrics of its quota."""
        throttle_ms = usage.throttle_ms = max(other_ms, request_ms)
        if throttle_ms > 0:
            (manager if other_ms > request_ms else self.request).throttled(call, throttle_ms)
            call.connection.mute(throttle_ms / 1000)

    # ---- metrics

    def metrics(self) -> dict[str, tuple[int, list[QuotaRow]]]:
        """By the type of the quota: how many requests it throttled, and what each set of its clients used."""
        return {
            name: (manager.throttles, list(manager.metrics()))
            for name, manager in (
                ("produce", self.produce),
                ("fetch", self.fetch),
                ("request", self.request),
                ("controllermutation", self.controller_mutation),
            )
        }
