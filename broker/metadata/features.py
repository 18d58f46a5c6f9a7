"""Finalized features of the whole cluster, on which clients rely (KIP-584).

A client of 4.x ends its transactions in the newer way (KIP-890) where ApiVersions returns `transaction.version`
finalized at 2. Kafka keeps finalized levels in the metadata store's /feature and stops a broker that does not support
its content; in a cluster of Odradek and Apache Kafka 3.9 every broker of Kafka would stop. So nothing is written here:
each broker states in its registration what it supports, and the level of a feature is the lowest of what all live
brokers support. It is read again whenever brokers come or go, and its epoch is the transaction of the metadata store
that last changed them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.broker.metadata.node_change_listener import NodeChangeListener
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import NoNodeError, Registry, Watcher
from odradek.broker.runtime.request_tasks import RequestTasks

log = logging.getLogger(__name__)

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
NO_EPOCH: Final = -1


class SupportedVersionRange(NamedTuple):
    """The levels of a feature that a broker supports."""

    lowest: int
    highest: int


SUPPORTED: Final[Mapping[str, SupportedVersionRange]] = MappingProxyType(
    {GROUP_VERSION: SupportedVersionRange(0, 1), TRANSACTION_VERSION: SupportedVersionRange(0, 2)}
)
REGISTERED: Final = {
    name: {"min_version": max(1, each.lowest), "max_version": each.highest} for name, each in SUPPORTED.items()
}
"""The form in the broker's registration: releases before 3.9 reject a range that begins at 0."""


def common(brokers: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, int]:
    """The level of each feature that all of these brokers support, from their registrations; level 0 is left out."""
    every = list(brokers)
    levels = {
        name: min((int(each.get(name, {}).get("max_version", 0)) for each in every), default=0) for name in SUPPORTED
    }
    return {name: min(level, SUPPORTED[name].highest) for name, level in levels.items() if level > 0}


class FeatureLevels:
    """The finalized levels. Its `listener` reads them; between two sessions they keep their last values."""

    def __init__(self, request_tasks: RequestTasks) -> None:
        """All levels are empty before the first session begins."""
        self.levels: Mapping[str, int] = {}
        self.epoch = NO_EPOCH
        self.listener = NodeChangeListener(znodes.BROKER_IDS, self._read, request_tasks)

    def refusal(self, name: str, level: int, *, is_known_kind: bool, is_downgrade: bool) -> str:
        """Why a feature cannot be set to this level: it follows from what the brokers support (UpdateFeatures)."""
        now = self.levels.get(name)
        if not name:
            return "the name of the feature is empty"
        if not is_known_kind:
            return f"{name}: the upgrade type is none of 1, 2 and 3"
        if level < 1 and not is_downgrade:
            return f"{name}: level {level} would be a downgrade, which the request does not allow"
        if level < 1 and now is None:
            return f"{name} is not finalized, so that it cannot be removed"
        if name not in SUPPORTED or not SUPPORTED[name].lowest <= level <= SUPPORTED[name].highest:
            return f"{name} is not supported at level {level} by this broker"
        if now == level:
            return f"{name} has level {level} already"
        return f"{name} has level {now or 0}, the highest that every broker of the cluster supports"

    async def _read(self, registry: Registry, watch: Watcher) -> None:
        """Read the features that the brokers support."""
        names, stat = await registry.children(znodes.BROKER_IDS, watch)
        found = []
        for name in names:
            try:
                data, _ = await registry.get(f"{znodes.BROKER_IDS}/{name}")
                found.append(znodes.BrokerRegistration.decode(data).features)
            except NoNodeError:
                continue  # removed since the list was read; the watch has fired
            except znodes.ZnodeError:
                found.append({})
        levels = common(found)
        if levels != self.levels:
            log.info("finalized features changed brokers=%d levels=%s", len(found), levels or "none")
        self.levels, self.epoch = levels, stat.pzxid
