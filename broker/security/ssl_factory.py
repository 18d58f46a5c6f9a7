"""TLS contexts of one listener, and their replacement at run time (Kafka: SslFactory).

A listener reads its `ssl.*` properties and the key stores that they name when the broker starts, after a change of its
properties, and after a change of a file. New settings replace the old ones only if they are valid; connections that are
open keep theirs. The same settings make the context of the listener and the one with which this broker connects to the
same listener of other brokers.
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import replace
from functools import cached_property
from typing import Final

from odradek.broker.config.broker_config import BrokerConfig
from odradek.broker.config.types import ConfigError
from odradek.broker.registry.znodes import Endpoint
from odradek.broker.security.certificate_entries import ensure_compatible
from odradek.broker.security.tls import TlsError, TlsSettings, check_handshake, client_context, server_context
from odradek.broker.security.tls_settings import file_stamps, listener_tls

log = logging.getLogger(__name__)

_UNUSABLE: Final = (
    "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with those "
    "settings."
)


class _Contexts:
    """The contexts of one version of the settings."""

    def __init__(self, settings: TlsSettings) -> None:
        """Raises TlsError."""
        self.settings = settings
        self.server = server_context(settings)

    @cached_property
    def client(self) -> ssl.SSLContext:
        """The context of connections to other brokers."""
        return client_context(self.settings)

    def check_with(self, other: _Contexts) -> None:
        """Shake hands in both directions, without regard to host names (SslEngineValidator). Raises TlsError."""
        for server, client in ((self, other), (other, self)):
            check_handshake(server.server, client_context(replace(client.settings, verifies_host=False)))


class SslFactory:
    """The contexts of one listener."""

    def __init__(self, config: BrokerConfig, endpoint: Endpoint) -> None:
        """Raises ConfigError."""
        self._endpoint = endpoint
        self._for_brokers = endpoint.listener == config.inter_broker_listener
        self._stamps = file_stamps(config, endpoint)
        try:
            self._contexts = self._read(config)
            if self._for_brokers:
                self._check_own(self._contexts)
        except TlsError as error:
            raise ConfigError(f"listener {endpoint}: {error}") from error

    @property
    def server(self) -> ssl.SSLContext:
        """The context of new connections to the listener."""
        return self._contexts.server

    @property
    def client(self) -> ssl.SSLContext:
        """The context of new connections to other brokers."""
        return self._contexts.client

    def validate(self, config: BrokerConfig) -> None:
        """Raise ConfigError where the listener cannot change to the settings of `config`."""
        try:
            self._change(config)
        except TlsError as error:
            raise ConfigError(
                f"Validation of dynamic config update of SSLFactory failed for listener {self._endpoint.listener}: "
                f"{error}"
            ) from error

    def reconfigure(self, config: BrokerConfig) -> bool:
        """Change to the settings of `config`; return whether they have changed.

        Invalid settings are logged, and the old ones stay.
        """
        self._stamps = file_stamps(config, self._endpoint)
        try:
            changed = self._change(config)
        except TlsError as error:
            log.error("keeping the old key store and trust store listener=%s error=%s", self._endpoint.listener, error)
            return False
        if changed is None:
            return False
        self._contexts = changed
        log.info("key store or trust store reloaded listener=%s", self._endpoint.listener)
        return True

    def reload_changed_files(self, config: BrokerConfig) -> bool:
        """Read the files again if they have changed; return whether the settings have."""
        return file_stamps(config, self._endpoint) != self._stamps and self.reconfigure(config)

    def _read(self, config: BrokerConfig) -> _Contexts:
        return _Contexts(listener_tls(config, self._endpoint))

    def _change(self, config: BrokerConfig) -> _Contexts | None:
        """The contexts of `config`, None where nothing has changed. Raises TlsError."""
        settings, old = listener_tls(config, self._endpoint), self._contexts
        if settings == old.settings:
            return None
        if settings.trusted_pem is not None and old.settings.trusted_pem is None:
            raise TlsError("Cannot add SSL truststore to an existing listener for which no truststore was configured.")
        new = _Contexts(settings)
        ensure_compatible(
            settings.chain_pem,
            old.settings.chain_pem,
            allow_dn_changes=config.of_listener(self._endpoint.listener, "ssl.allow.dn.changes"),
            allow_san_changes=config.of_listener(self._endpoint.listener, "ssl.allow.san.changes"),
        )
        if self._for_brokers:
            new.check_with(old)
        return new

    def _check_own(self, contexts: _Contexts) -> None:
        try:
            contexts.check_with(contexts)
        except TlsError as error:
            raise TlsError(f"{_UNUSABLE} {error}") from error
