"""Connection rate quotas: how many connections each address may open in a second (KIP-612; Kafka: ConnectionQuotas).

An address without a quota of its own has the default one. A connection over the quota is not counted; the listener
closes it after the throttle time.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.quota.state.rates import UNLIMITED, QuotaConfig, Rate
from odradek.broker.runtime.timers import Clock

FEW_ADDRESSES: Final = 1000
"""So many addresses are kept without a search for idle ones."""


class ConnectionRateQuotas:
    """The quotas of addresses, and how many connections each address has opened."""

    def __init__(self, config: QuotaConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._bounds: dict[str | None, float] = {}
        self._rates: dict[str, Rate] = {}
        self._search_at = FEW_ADDRESSES
        self.throttles = 0
        """How many connections were throttled."""

    def update(self, address: str | None, bound: float | None) -> None:
        """Set the quota of an address, or with None remove it; the address None is the default."""
        if bound is None:
            self._bounds.pop(address, None)
        else:
            self._bounds[address] = bound
        if not self._bounds:
            self._rates.clear()

    def addresses(self) -> list[str | None]:
        """The addresses that have a quota."""
        return list(self._bounds)

    def throttle_ms(self, address: str) -> int:
        """Count a new connection; returns 0, or for how many ms the client has to be throttled instead."""
        if not self._bounds:
            return 0
        bound = self._bounds.get(address, self._bounds.get(None, UNLIMITED))
        if bound == UNLIMITED:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rates.get(address)
        if rate is None:
            self._drop_idle(now_ms)
            rate = self._rates[address] = Rate(self._config)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(bound, now_ms), self._config.window_ms)
        if throttle_ms > 0:
            rate.record(-1, now_ms)
            self.throttles += 1
        return throttle_ms

    def _drop_idle(self, now_ms: int) -> None:
        if len(self._rates) < self._search_at:
            return
        self._rates = {address: rate for address, rate in self._rates.items() if not rate.is_idle(now_ms)}
        self._search_at = max(FEW_ADDRESSES, 2 * len(self._rates))
