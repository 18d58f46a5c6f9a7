"""ZooKeeper login: finds the credentials of the ZooKeeper client in a JAAS file (Kafka: JaasUtils.isZkSaslEnabled).

As in Kafka, the file is the system property java.security.auth.login.config in KAFKA_OPTS, and the section is Client,
or the one that zookeeper.sasl.clientconfig names:

    Client {
      org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="secret";
    };
"""

from __future__ import annotations

from typing import Final

from odradek.broker.config.system_properties import system_properties
from odradek.broker.config.types import ConfigError
from odradek.broker.registry.zookeeper import ZooKeeperLogin
from odradek.broker.security.jaas_file import JaasFile

SECTION: Final = "zookeeper.sasl.clientconfig"
ENABLED: Final = "zookeeper.sasl.client"
_DIGEST_MODULE: Final = "DigestLoginModule"


def find_login(kafka_opts: str) -> ZooKeeperLogin | None:
    """The login, or None where KAFKA_OPTS names no file, or the file has no such section. Raises ConfigError."""
    properties, file = system_properties(kafka_opts), JaasFile(kafka_opts)
    section = properties.get(SECTION, "Client")
    if properties.get(ENABLED, "true").lower() != "true":
        return None
    modules = file.sections.get(section)
    if not modules:
        return None
    module = modules[0]
    if module.name.rpartition(".")[2] != _DIGEST_MODULE:
        raise ConfigError(
            f"Section {section} of the JAAS file {file.path} has the login module {module.name}; "
            f"a session of ZooKeeper can be opened with {_DIGEST_MODULE} only"
        )
    username, password = module.options.get("username"), module.options.get("password")
    if not username or password is None:
        raise ConfigError(f"Section {section} of the JAAS file {file.path} has no username or no password")
    return ZooKeeperLogin(username, password)
