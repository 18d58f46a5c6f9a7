"""What is set for each topic, as far as this broker has to know: its logs obey it.

The registry is the authority. Everything is read at the start, a topic that is new here with the first order about it,
and a change when the notification of it comes (`config_changes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.registry import znodes
from odradek.broker.registry.interface import NoNodeError, Registry, ensure_path


class TopicConfigs:
    """The properties of topics, as texts."""

    def __init__(self, registry: Callable[[], Registry]) -> None:
        """`registry()` is the session of the moment."""
        self._registry = registry
        self._known: dict[str, dict[str, str]] = {}

    async def load_all(self) -> None:
        """Read the properties of every topic. Raises RegistryError."""
        path = znodes.config_path("topics")
        await ensure_path(self._registry(), path)
        names, _ = await self._registry().children(path)
        self._known = {name: await self.read(name) for name in names}

    async def load(self, topics: list[str]) -> Mapping[str, Mapping[str, str]]:
        """The properties of these topics, from the registry where they are not known yet. Raises RegistryError."""
        for name in topics:
            if name not in self._known:
                self._known[name] = await self.read(name)
        return {name: self._known.get(name, {}) for name in topics}

    async def read(self, topic: str) -> dict[str, str]:
        """The properties as they stand in the registry now. Raises RegistryError."""
        try:
            data, _ = await self._registry().get(znodes.config_path(f"topics/{topic}"))
        except NoNodeError:
            return {}
        return znodes.decode_config(data)

    def get(self, topic: str) -> Mapping[str, str]:
        """The properties that this broker goes by."""
        return self._known.get(topic, {})

    def put(self, topic: str, properties: Mapping[str, str]) -> None:
        """The properties have changed."""
        self._known[topic] = dict(properties)

    def forget(self, topic: str) -> None:
        """The topic is gone; one of the same name starts anew."""
        self._known.pop(topic, None)
