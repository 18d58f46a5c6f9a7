"""JAAS file: the login modules that are configured outside of the broker's properties (Kafka: JaasUtils, JaasContext).

As in Kafka, the file is the system property java.security.auth.login.config in KAFKA_OPTS. The section `KafkaServer`
is for all SASL listeners, and `LISTENER.KafkaServer`, with the listener's name in lower case, for one:

    sasl_ssl.KafkaServer {
      org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="…" user_alice="…";
    };
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.broker.config.system_properties import JAAS_FILE, system_properties
from odradek.broker.config.types import ConfigError
from odradek.broker.security.state.jaas import JaasError, LoginModule, parse_sections

SERVER_SECTION: Final = "KafkaServer"


class JaasFile:
    """The file that KAFKA_OPTS names, if any. It is read when a section is first needed."""

    def __init__(self, kafka_opts: str) -> None:
        self.path = system_properties(kafka_opts).get(JAAS_FILE)
        """None or empty if there is no file."""

    @functools.cached_property
    def sections(self) -> Mapping[str, Sequence[LoginModule]]:
        """The sections by name; none without a file. Raises ConfigError."""
        if not self.path:
            return {}
        try:
            return parse_sections(Path(self.path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"The JAAS file {self.path} of KAFKA_OPTS cannot be read: {type(error).__name__}"
            ) from error
        except JaasError as error:
            raise ConfigError(f"The JAAS file {self.path} of KAFKA_OPTS is invalid: {error}") from error

    def server_options(self, listener: str, module: str) -> Mapping[str, str] | None:
        """The options of the login modules of a class, without its package, for a listener; None if there is none.

        Of several modules the first one that has an option counts. Raises ConfigError.
        """
        own = f"{listener.lower()}.{SERVER_SECTION}"
        modules = self.sections.get(own, self.sections.get(SERVER_SECTION, ()))
        found = [each.options for each in modules if each.name.rpartition(".")[2] == module]
        return {name: value for options in reversed(found) for name, value in options.items()} if found else None
