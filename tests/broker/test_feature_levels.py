"""Finalized features of the cluster: of one broker, of several, and beside a broker that supports none (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.metadata.features import REGISTERED, SUPPORTED, FeatureLevels, common
from odradek.broker.registry import znodes
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ensure_path
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import SystemClock
from odradek.protocol import messages as m
from odradek.storage.disk import OsDisk
from tests.broker.wire import Client
from tests.support.eventually import eventually_async

OURS: dict[str, Mapping[str, int]] = dict(REGISTERED)
NAMES = st.sampled_from([*SUPPORTED, "metadata.version"])


def finalized(answer: Any) -> dict[str, int]:
    return {each.name: each.max_version_level for each in answer.finalized_features}


async def test_a_single_broker_finalizes_everything_that_it_supports(client: Client) -> None:
    for version in (3, 4):
        answer = await client.ask(m.ApiVersionsRequest(client_software_name="t", client_software_version="1"), version)
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        lowest = 0 if version >= 4 else 1
        assert supported == {"group.version": (lowest, 1), "transaction.version": (lowest, 2)}
        assert finalized(answer) == {"group.version": 1, "transaction.version": 2}
        assert answer.finalized_features_epoch > 0


async def test_a_broker_without_features_removes_them_for_all(tmp_path: Path) -> None:
    ensemble = EmbeddedEnsemble(OsDisk(), str(tmp_path / "registry"), now_ms=SystemClock().now_ms)
    request_tasks = RequestTasks()
    registry = await ensemble.connect()
    await ensure_path(registry, znodes.BROKER_IDS)
    ours = znodes.BrokerRegistration((), 0, features=OURS)
    await registry.create(znodes.broker_path(1), ours.encode())
    features = FeatureLevels(request_tasks)
    await features.listener.session_begun(registry)
    assert dict(features.levels) == {"group.version": 1, "transaction.version": 2}
    epochs = [features.epoch]
    await registry.create(znodes.broker_path(2), znodes.BrokerRegistration((), 0).encode())
    await eventually_async(lambda: not features.levels)
    epochs.append(features.epoch)
    await registry.create(znodes.broker_path(3), b"what no broker writes")
    await registry.delete(znodes.broker_path(2))
    await registry.delete(znodes.broker_path(3))
    await eventually_async(lambda: bool(features.levels))
    epochs.append(features.epoch)
    assert epochs == sorted(set(epochs)), "clients use the features with the highest epoch"
    await request_tasks.close()
    await registry.close()
    await ensemble.close()


@given(st.lists(st.dictionaries(NAMES, st.integers(0, 5).map(lambda level: {"max_version": level})), max_size=4))
def test_no_level_is_above_the_maximum_of_any_broker(brokers: list[dict[str, dict[str, int]]]) -> None:
    levels = common(brokers)
    for name, level in levels.items():
        assert 0 < level <= SUPPORTED[name].highest
        assert all(level <= each[name]["max_version"] for each in brokers)
    for name in SUPPORTED:
        if brokers and all(each.get(name, {}).get("max_version", 0) >= 1 for each in brokers):
            assert name in levels
