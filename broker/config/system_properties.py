"""Java's system properties, as Kafka's start scripts give them to a broker: the -D options in KAFKA_OPTS.

A few settings of Kafka have no broker property: the JAAS file of the ZooKeeper client is one. Odradek reads them from
the same variable, so that the environment of an Apache Kafka broker fits.
"""

from __future__ import annotations

import shlex

JAAS_FILE = "java.security.auth.login.config"


def system_properties(kafka_opts: str) -> dict[str, str]:
    """The properties of -Dname=value options; other options have no effect. An unclosed quote ends with the text."""
    try:
        options = shlex.split(kafka_opts)
    except ValueError:
        options = kafka_opts.split()
    named = (option.removeprefix("-D").partition("=") for option in options if option.startswith("-D"))
    return {name: value for name, _, value in named}
