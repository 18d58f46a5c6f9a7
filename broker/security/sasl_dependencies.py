"""What the SASL mechanisms of all listeners share. Their modules are imported for a listener that has SASL."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from odradek.broker.runtime.timers import Clock, Timers
from odradek.broker.security.jaas_file import JaasFile
from odradek.broker.security.sasl_credentials import CredentialCache
from odradek.broker.security.state.delegation_tokens import DelegationTokenCache


class SaslDependencies(NamedTuple):
    """What the mechanisms of all listeners share."""

    clock: Clock
    timers: Timers
    random: Random
    credentials: CredentialCache
    tokens: DelegationTokenCache
    report: Callable[[str, str], None]
    """Called with the kind and the reason of each failed authentication."""
    jaas_file: JaasFile


class MechanismService(Protocol):
    """Work of a mechanism beside its exchanges."""

    async def start(self) -> None:
        """Prepare the mechanism, before the listener opens. Raises ConfigError."""
        ...

    def close(self) -> None:
        """End the work, when the listener closes."""
        ...
