"""Topic overrides: the properties set for each topic, as this broker's logs apply them (Kafka: ZkConfigRepository).

The metadata store is authoritative. The broker reads all properties at its start, those of a new topic with the first
control request for it, and changed ones when their notification arrives (`changes.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from odradek.broker.registry import znodes
from odradek.broker.registry.interface import NoNodeError, Registry, ensure_path
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import in_turn, keep

READ_AT_ONCE: Final = 100
"""Topics whose properties are read before the loop serves others: two milliseconds."""


class TopicConfigs:
    """The properties of topics, as texts."""

    def __init__(self, registry: Callable[[], Registry]) -> None:
        """`registry()` returns the current session."""
        self._registry = registry
        self._known: dict[str, dict[str, str]] = {}
        self._on_load: Callable[[str, Mapping[str, str]], None] = lambda topic, properties: None

    def watch(self, on_load: Callable[[str, Mapping[str, str]], None]) -> None:
        """Call `on_load` with the properties of each topic: now with those that are known, later with those of a topic
        that are read.
        """
        self._on_load = on_load
        for topic, properties in self._known.items():
            on_load(topic, properties)

    async def load_all(self) -> None:
        """Read the properties of every topic. Raises RegistryError."""
        path = znodes.config_path("topics")
        await ensure_path(self._registry(), path)
        names, _ = await self._registry().children(path)
        self._known = {name: await self.read(name) for name in names}

    async def load(self, topics: list[str]) -> Mapping[str, Mapping[str, str]]:
        """The properties of these topics, read from the metadata store where they are missing. Raises RegistryError."""
        read = 0
        for name in items_of(topics):
            if name not in self._known:
                self._known[name] = await self.read(name)
                self._on_load(name, self._known[name])
                read += 1
                if not read % READ_AT_ONCE and not in_turn():
                    await asyncio.sleep(0)  # the embedded metadata store answers at once
        return keep({name: self._known.get(name, {}) for name in items_of(topics)})

    async def read(self, topic: str) -> dict[str, str]:
        """The present properties in the metadata store. Raises RegistryError."""
        try:
            data, _ = await self._registry().get(znodes.config_path(f"topics/{topic}"))
        except NoNodeError:
            return {}
        return znodes.decode_config(data)

    def get(self, topic: str) -> Mapping[str, str]:
        """The properties that this broker applies."""
        return self._known.get(topic, {})

    def put(self, topic: str, properties: Mapping[str, str]) -> None:
        """Store changed properties of a topic."""
        self._known[topic] = dict(properties)

    def forget(self, topic: str) -> None:
        """Remove the properties of a deleted topic."""
        self._known.pop(topic, None)
