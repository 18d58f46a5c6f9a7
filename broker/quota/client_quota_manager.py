"""Client quota manager: the quotas of one type and what the clients under them use (Kafka: ClientQuotaManager).

Where no quota of the type is set, `is_enabled` is False and nothing is recorded. Otherwise the quota of a client is
found once for its user and client id, and again after a change. What a client used is kept over changes. Entities that
were idle for all windows are dropped when there are many, so that invented client ids cost no lasting memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from odradek.broker.quota.state.client_quotas import ClientQuotas, MetricTags
from odradek.broker.quota.state.rates import UNLIMITED, QuotaConfig, Rate, Samples, TokenBucket
from odradek.broker.runtime.timers import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.broker.network.dispatcher import Call

MOST_THROTTLE_MS: Final = 2**31 - 1
FEW_ENTITIES: Final = 1000
"""So many entities, or clients with a known quota, are kept without a search for idle ones."""
S = TypeVar("S", bound=Rate | TokenBucket)


class QuotaSensor(Generic[S]):
    """What the clients with the same tags used: of a rate or of a token bucket (Kafka: ClientSensors)."""

    __slots__ = ("bound", "stat", "throttle_times")

    def __init__(self, stat: S, throttle_times: Samples, bound: float) -> None:
        self.stat = stat
        self.throttle_times = throttle_times
        self.bound = bound


class QuotaRow(NamedTuple):
    """What clients with a quota used, for the metrics: the rate or tokens, and the average throttle time in ms."""

    tags: MetricTags
    value: float
    throttle_ms: float


class QuotaEntities(Generic[S]):
    """The quotas of one type, and a sensor for each set of tags."""

    def __init__(self, config: QuotaConfig, clock: Clock, stat: Callable[[QuotaConfig], S]) -> None:
        self._config = config
        self._clock = clock
        self._stat = stat
        self._quotas = ClientQuotas()
        self._sensors: dict[MetricTags, QuotaSensor[S]] = {}
        self._known: dict[tuple[str, str], QuotaSensor[S] | None] = {}
        self._search_at = FEW_ENTITIES
        self.is_enabled = False
        """Whether any entity has a quota of this type."""
        self.throttles = 0
        """How many requests were throttled because of this type."""

    def update(self, entity: Mapping[str, str | None], bound: float | None) -> None:
        """Set the quota of an entity, or with None remove it (Kafka: updateQuota).

        A negative quota, or one that is no number, throttles nothing, as in Kafka.
        """
        if bound is not None and not bound >= 0:
            bound = UNLIMITED
        if not self._quotas.update(entity, bound):
            return
        self._known.clear()
        self.is_enabled = len(self._quotas) > 0
        for tags, sensor in list(self._sensors.items()):
            sensor.bound = self._quotas.bound(tags)
            if sensor.bound == UNLIMITED:
                del self._sensors[tags]

    def entities(self) -> list[dict[str, str | None]]:
        """The entities that have a quota."""
        return self._quotas.entities()

    def sensor(self, call: Call) -> QuotaSensor[S] | None:
        """The sensor for the sender of a request; None where it has no quota."""
        key = call.session.principal.name, call.client_id or ""
        try:
            return self._known[key]
        except KeyError:
            return self._find(key)

    def throttled(self, call: Call, throttle_ms: int) -> None:
        """Count a throttle time in the metrics."""
        self.throttles += 1
        sensor = self.sensor(call)
        if sensor is not None:
            sensor.throttle_times.record(throttle_ms, self._clock.monotonic_ms())

    def rows(self, measure: Callable[[QuotaSensor[S], int], float]) -> Iterator[QuotaRow]:
        """What each set of clients used."""
        now_ms = self._clock.monotonic_ms()
        for tags, sensor in self._sensors.items():
            yield QuotaRow(tags, measure(sensor, now_ms), sensor.throttle_times.average(now_ms))

    def _find(self, key: tuple[str, str]) -> QuotaSensor[S] | None:
        if len(self._known) >= FEW_ENTITIES:
            self._known.clear()
        tags = self._quotas.tags(*key)
        bound = self._quotas.bound(tags)
        if bound == UNLIMITED:
            found = None
        else:
            found = self._sensors.get(tags)
            if found is None:
                self._drop_idle()
                found = self._sensors[tags] = QuotaSensor(self._stat(self._config), Samples(self._config), bound)
        self._known[key] = found
        return found

    def _drop_idle(self) -> None:
        """Drop sensors that are as new ones would be."""
        if len(self._sensors) < self._search_at:
            return
        now_ms = self._clock.monotonic_ms()
        self._sensors = {tags: each for tags, each in self._sensors.items() if not each.stat.is_idle(now_ms)}
        self._search_at = max(FEW_ENTITIES, 2 * len(self._sensors))
        self._known.clear()


class ClientQuotaManager(QuotaEntities[Rate]):
    """Rates of clients: bytes that they produce or fetch, or the share of the event loop's time in percent."""

    def __init__(self, config: QuotaConfig, clock: Clock, most_throttle_ms: int = MOST_THROTTLE_MS) -> None:
        """`most_throttle_ms` limits each throttle time (one window for request quotas)."""
        super().__init__(config, clock, Rate)
        self._most_throttle_ms = most_throttle_ms

    def record(self, call: Call, value: float, now_ms: int) -> int:
        """Record what a request used; returns for how long its sender has to be throttled, in ms."""
        sensor = self.sensor(call)
        if sensor is None:
            return 0
        sensor.stat.record(value, now_ms)
        if sensor.bound == 0 and self._most_throttle_ms == MOST_THROTTLE_MS:
            return 0  # Kafka's infinite throttle time becomes -1 where it is made an int: the client is not throttled
        return min(sensor.stat.throttle_ms(sensor.bound, now_ms), self._most_throttle_ms)

    def unrecord(self, call: Call, value: float, now_ms: int) -> None:
        """Take back a recorded value whose request has no effect."""
        sensor = self.sensor(call)
        if sensor is not None:
            sensor.stat.record(-value, now_ms)

    def most_in_window(self, call: Call) -> float:
        """The most that a request may use without being throttled where no other one used anything (Kafka:
        getMaxValueInQuotaWindow).
        """
        sensor = self.sensor(call)
        if sensor is None:
            return UNLIMITED
        return sensor.bound * (self._config.samples - 1) * self._config.window_ms / 1000

    def metrics(self) -> Iterator[QuotaRow]:
        """The rate of each set of clients."""
        return self.rows(lambda sensor, now_ms: sensor.stat.measure(now_ms))
