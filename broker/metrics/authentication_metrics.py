"""Authentication metrics: counts the authentications of one listener (Kafka: SelectorMetrics).

A connection counts once, at the end of its TLS handshake or of its SASL exchange, and again for each
re-authentication. Connections without either are not counted, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AuthenticationMetrics:
    """The counters have the names of Kafka's metrics."""

    successful_authentication: int = 0
    failed_authentication: int = 0
    """Without TLS handshakes that failed; the listener counts those."""
    successful_reauthentication: int = 0
    failed_reauthentication: int = 0
    expired_connections_killed: int = 0
    """Connections whose client did not re-authenticate before the end of the session."""

    def succeeded(self, *, again: bool) -> None:
        """Count an authentication, `again` for a re-authentication."""
        if again:
            self.successful_reauthentication += 1
        else:
            self.successful_authentication += 1

    def failed(self, *, again: bool) -> None:
        """Count a failed authentication, `again` for a re-authentication."""
        if again:
            self.failed_reauthentication += 1
        else:
            self.failed_authentication += 1
