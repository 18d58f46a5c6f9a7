"""Apache Kafka with delegation tokens, for clients with passwords and with tokens."""

from __future__ import annotations

from pathlib import Path

from odradek.ports import free_port
from tests.jvm.kafka import Kafka
from tests.security.token_manager import SECRET
from tests.security.token_requests import TokenClients, plain_jaas


class TokenBroker:
    """Apache Kafka with tokens: its ports and its ZooKeeper."""

    def __init__(self, folder: Path) -> None:
        self.plaintext, self.sasl = free_port(), free_port()
        addresses = f"PLAINTEXT://127.0.0.1:{self.plaintext},SASL_PLAINTEXT://127.0.0.1:{self.sasl}"
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        prefix = "listener.name.sasl_plaintext"
        self.kafka = Kafka(
            folder,
            {
                "listeners": addresses,
                "advertised.listeners": addresses,
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                f"{prefix}.plain.sasl.jaas.config": plain_jaas(),
                f"{prefix}.scram-sha-256.sasl.jaas.config": scram,
                f"{prefix}.scram-sha-512.sasl.jaas.config": scram,
                "delegation.token.secret.key": SECRET,
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:ANONYMOUS",
            },
        )
        self.kafka.port = self.plaintext
        self.clients = TokenClients(folder, self.sasl)
