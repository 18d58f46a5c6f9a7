"""A delegation token manager over any metadata store, with a clock of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.registry.interface import Registry
from odradek.broker.runtime.request_tasks import RequestTasks
from odradek.broker.runtime.timers import Clock
from odradek.broker.security.delegation_token_manager import DelegationTokenManager
from odradek.broker.security.state.delegation_tokens import DelegationTokenCache

SECRET = "a key of all brokers"


class SetClock:
    """A clock that a test sets."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_ns(self) -> int:
        return self.ms * 1_000_000


def run_at_once(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
    """Runs a call of a thread in the caller's."""
    work()
    done(None)


async def begin_manager(
    registry: Registry, clock: Clock, properties: Mapping[str, str] | None = None, seed: int = 1
) -> DelegationTokenManager:
    """A manager that has read the tokens of a session."""
    config = BrokerConfig({"broker.id": "1", "delegation.token.secret.key": SECRET, **(properties or {})})
    manager = DelegationTokenManager(
        config, DelegationTokenCache(), lambda: registry, random.Random(seed), run_at_once, RequestTasks(), clock
    )
    await manager.session_begun(registry)
    return manager
