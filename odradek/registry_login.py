"""The login of a cluster's own registry: a JAAS file with one random password, for the registry and for its brokers.

The file is as ZooKeeper's: the registry serves the users of its section Server, a broker logs in with its section
Client. It also serves Kafka's tools: `KAFKA_OPTS=-Djava.security.auth.login.config=FILE kafka-configs --zookeeper …`.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

USER: Final = "kafka"
FILE_NAME: Final = "registry-jaas.conf"
_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
_TEXT: Final = """Server {{
  {module} required user_{user}="{password}";
}};
Client {{
  {module} required username="{user}" password="{password}";
}};
"""


def ensure_jaas_file(folder: Path) -> Path:
    """The JAAS file of the cluster in `folder`; it is made where it is missing, readable by its owner only."""
    path = folder / FILE_NAME
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{FILE_NAME}.{os.getpid()}.tmp"
    if not path.exists():
        text = _TEXT.format(module=_MODULE, user=USER, password=secrets.token_urlsafe(24))
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    return path


def environment(jaas_file: Path, existing: str = "") -> dict[str, str]:
    """The variables with which a broker logs in to the registry; `existing` are the options in KAFKA_OPTS so far."""
    option = f"-Djava.security.auth.login.config={jaas_file}"
    return {"KAFKA_OPTS": f"{existing} '{option}'".strip()}
