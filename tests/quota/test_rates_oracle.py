"""Rates, token buckets and throttle times beside Kafka's Rate, SimpleRate, TokenBucket and QuotaUtils; which quota
applies to a client beside Kafka's ClientQuotaManager.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jpype
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from odradek.broker.quota.state.client_quotas import CLIENT_ID, USER, ClientQuotas
from odradek.broker.quota.state.rates import UNLIMITED, QuotaConfig, Rate, SimpleRate, TokenBucket
from tests.security.kafka_classes import KafkaClasses

pytestmark = pytest.mark.jvm

LONG_MAX = float(2**63 - 1)
START_MS = 1_700_000_000_000
steps = st.lists(
    st.tuples(st.one_of(st.integers(0, 50), st.integers(900, 1100), st.integers(0, 40_000)), st.integers(-200, 9000)),
    min_size=1,
    max_size=60,
)
configs = st.builds(QuotaConfig, st.integers(1, 12), st.sampled_from([1000, 2000]))


@pytest.fixture(scope="module")
def sensors(classes: KafkaClasses) -> Callable[[str, QuotaConfig, float], tuple[Any, Callable[[], int]]]:
    """Makes a statistic of a class of Kafka in its own Sensor, and the clock of both."""
    package = "org.apache.kafka.common.metrics"
    quota, metric_config = classes(f"{package}.Quota"), classes(f"{package}.MetricConfig")

    def make(name: str, config: QuotaConfig, bound: float) -> tuple[Any, Any]:
        settings_of = (
            metric_config()
            .samples(config.samples)
            .timeWindow(config.window_ms, jpype.JClass("java.util.concurrent.TimeUnit").MILLISECONDS)
            .quota(quota.upperBound(bound))
        )
        return classes(f"{package}.stats.{name}")(), settings_of

    return make


def _throttle_ms(value: float, bound: float, window_ms: int) -> int:
    """QuotaUtils.throttleTime."""
    return int(jpype.JClass("java.lang.Math").round((value - bound) / bound * window_ms)) if value > bound else 0


@settings(deadline=None, max_examples=60)
@given(config=configs, bound=st.integers(1, 5000), moves=steps, simple=st.booleans())
@example(config=QuotaConfig(), bound=1000, moves=[(0, 5000), (999, 5000), (1, 5000), (10_000, 5000)], simple=False)
def test_rates_and_throttle_times_are_those_of_kafka(
    sensors: Any, config: QuotaConfig, bound: int, moves: list[tuple[int, int]], simple: bool
) -> None:
    theirs, kafka_config = sensors("SimpleRate" if simple else "Rate", config, bound)
    ours = (SimpleRate if simple else Rate)(config)
    now_ms = START_MS
    for pause_ms, value in moves:
        now_ms += pause_ms
        theirs.record(kafka_config, float(value), now_ms)
        ours.record(value, now_ms)
        measured = float(theirs.measure(kafka_config, now_ms))
        window_ms = int(theirs.windowSize(kafka_config, now_ms))
        assert ours.measure(now_ms) == pytest.approx(measured, rel=1e-9, abs=1e-9)
        assert ours.window_ms(now_ms) == window_ms
        assert abs(ours.throttle_ms(bound, now_ms) - _throttle_ms(measured, bound, window_ms)) <= 1


@settings(deadline=None, max_examples=60)
@given(config=configs, bound=st.integers(1, 50), moves=steps)
@example(config=QuotaConfig(), bound=5, moves=[(0, 60), (0, 1), (11_000, 1)])
def test_token_buckets_are_those_of_kafka(
    sensors: Any, config: QuotaConfig, bound: int, moves: list[tuple[int, int]]
) -> None:
    theirs, kafka_config = sensors("TokenBucket", config, bound)
    ours = TokenBucket(config)
    now_ms = START_MS
    for pause_ms, value in moves:
        now_ms += pause_ms
        theirs.record(kafka_config, float(value), now_ms)
        ours.record(value, bound, now_ms)
        measured = float(theirs.measure(kafka_config, now_ms))
        assert ours.measure(bound, now_ms) == pytest.approx(measured, rel=1e-9, abs=1e-6)
        waits_ms = int(jpype.JClass("java.lang.Math").round(-measured / bound * 1000)) if measured < 0 else 0
        assert abs(ours.throttle_ms(bound, now_ms) - waits_ms) <= 1


NAMES = ("alice", "bob c/d")
CLIENTS = ("reader", "writer x")
ABSENT = "absent"
ENTITIES = [
    (user, client)
    for user, client in itertools.product((*NAMES, None, ABSENT), (*CLIENTS, None, ABSENT))
    if (user, client) != (ABSENT, ABSENT)
]
"""The parts of an entity; None for the default."""


class KafkaQuotas:
    """Kafka's ClientQuotaManager for one type of quotas."""

    def __init__(self, classes: KafkaClasses) -> None:
        self._option = classes("scala.Option")
        self._quota = classes.common("metrics.Quota")
        self._sanitizer = classes.common("utils.Sanitizer")
        self._quotas = classes("kafka.server.ClientQuotaManager")(
            classes("org.apache.kafka.server.config.ClientQuotaManagerConfig")(11, 1),
            classes.common("metrics.Metrics")(),
            getattr(classes("kafka.server.QuotaType$Produce$"), "MODULE$"),
            classes.common("utils.Time").SYSTEM,
            "test",
            self._option.empty(),
        )

    def update(self, user: str | None, client: str | None, bound: float) -> None:
        """Set a quota."""
        none, some = self._option.empty(), self._option.apply
        default = jpype.JString("<default>")
        parts = [none if user == ABSENT else some(default if user is None else self._sanitizer.sanitize(user))]
        if client == ABSENT:
            parts += [none, none]
        elif client is None:
            parts += [some(default), some(default)]
        else:
            parts += [some(jpype.JString(client)), some(self._sanitizer.sanitize(client))]
        self._quotas.updateQuota(*parts, some(self._quota.upperBound(bound)))

    def bound(self, user: str, client: str) -> float:
        """The quota of a client."""
        return float(self._quotas.quota(user, client).bound())

    def close(self) -> None:
        """End the thread of the manager."""
        self._quotas.shutdown()


@settings(deadline=None, max_examples=40)
@given(chosen=st.lists(st.sampled_from(ENTITIES), unique=True, max_size=6))
@example(chosen=[("alice", ABSENT), (None, ABSENT)])
@example(chosen=[(ABSENT, "reader"), (ABSENT, None)])
@example(chosen=ENTITIES)
def test_the_quota_of_a_client_is_the_one_that_kafka_applies(
    classes: KafkaClasses, chosen: list[tuple[str | None, str | None]]
) -> None:
    theirs, ours = KafkaQuotas(classes), ClientQuotas()
    try:
        for number, (user, client) in enumerate(chosen):
            theirs.update(user, client, 1000.0 + number)
            entity = {kind: name for kind, name in ((USER, user), (CLIENT_ID, client)) if name != ABSENT}
            assert ours.update(entity, 1000.0 + number)
        for user, client in itertools.product((*NAMES, "carol"), (*CLIENTS, "other", "")):
            bound = ours.bound(ours.tags(user, client))
            assert (LONG_MAX if bound == UNLIMITED else bound) == theirs.bound(user, client), (user, client)
    finally:
        theirs.close()
