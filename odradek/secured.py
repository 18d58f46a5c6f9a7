"""The security of a broker or cluster under test, as a test uses it: client configurations, rights, certificates.

`BrokerProcess` and `ClusterProcess` have these methods. Each raises BrokerError if it was made without `security`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from odradek.cluster_security import ClusterSecurity, SecuredBroker
from odradek.ready_process import BrokerError
from odradek.security import allow, deny
from odradek.token_issuer import TokenIssuer


class Secured(ABC):
    """Users, rights and certificates of one or more brokers."""

    _security: ClusterSecurity | None

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for a client's `bootstrap.servers`."""

    @abstractmethod
    def _running_brokers(self) -> Sequence[SecuredBroker]:
        """The brokers that run."""

    @property
    def issuer(self) -> TokenIssuer:
        """The issuer of tokens, with "oauth"."""
        return self._secured().issuer

    def client_config(
        self, user: str, client: str = "confluent-kafka", *, mechanism: str | None = None, token: str | None = None
    ) -> dict[str, Any]:
        """The configuration with which a client connects as a user.

        `client` is "confluent-kafka", "aiokafka", "kafka-python" or "java". `mechanism` is a SASL mechanism instead of
        the first, and `token` a token instead of a valid one.
        """
        return self._secured().client_config(self.bootstrap_servers, user, client, mechanism, token)

    def client_properties(self, user: str, *, mechanism: str | None = None) -> Path:
        """The file of a user for Kafka's tools: `--command-config`, `--consumer.config`, `--producer.config`."""
        return self._secured().client_properties(self.bootstrap_servers, user, mechanism)

    def allow(self, user: str, **resources: Any) -> None:
        """Allow a user these resources (see `odradek.security.allow`); every broker applies it on return."""
        self._secured().add_acls(self._running_brokers(), allow(user, **resources))

    def deny(self, user: str, **resources: Any) -> None:
        """Deny a user these resources (see `odradek.security.deny`), on open connections, too; every broker applies it
        on return.
        """
        self._secured().add_acls(self._running_brokers(), deny(user, **resources))

    def revoke(self, user: str) -> None:
        """Deny a user everything, on open connections, too, and remove SCRAM credentials."""
        self._secured().revoke(self._running_brokers(), user)

    def rotate_certificates(self) -> None:
        """Replace the certificates of the brokers, without a restart; they serve the new ones on return."""
        self._secured().rotate_certificates(self._running_brokers())

    def _secured(self) -> ClusterSecurity:
        if self._security is None:
            raise BrokerError(
                'there is no security; start the broker or cluster with security="tls+scram", for example'
            )
        return self._security
