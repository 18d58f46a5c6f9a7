"""Principals of TLS connections, from the certificates of clients (Kafka: DefaultKafkaPrincipalBuilder)."""

from __future__ import annotations

from odradek.broker.metrics.authentication_metrics import AuthenticationMetrics
from odradek.broker.security.session import ANONYMOUS_SESSION, Session
from odradek.broker.security.state.distinguished_name import SubjectError, subject_name
from odradek.broker.security.state.principal_mapping import NoMatchingRuleError, SslPrincipalMapper
from odradek.broker.security.state.principals import USER_TYPE, KafkaPrincipal
from odradek.protocol.net import Connection


class TlsPrincipals:
    """Gives the connections of one listener their sessions."""

    def __init__(self, rules: str, metrics: AuthenticationMetrics) -> None:
        """`rules` are those of ssl.principal.mapping.rules. Raises RuleError."""
        self._mapper = SslPrincipalMapper(rules)
        self._metrics = metrics

    def open(self, connection: Connection) -> None:
        """Give a new connection the session of its certificate, or the anonymous one; close it if no rule applies."""
        assert connection.tls is not None
        try:
            connection.session = self._session(connection.tls.getpeercert(binary_form=True))
            self._metrics.succeeded(again=False)
        except (SubjectError, NoMatchingRuleError) as error:
            self._metrics.failed(again=False)
            connection.refuse("authentication failed", str(error))

    def _session(self, certificate: bytes | None) -> Session:
        if certificate is None:
            return ANONYMOUS_SESSION
        return Session(KafkaPrincipal(USER_TYPE, self._mapper.name(subject_name(certificate))))
