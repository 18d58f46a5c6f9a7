"""What a broker imports and starts before it is ready: nothing of what only some brokers, or rare requests, need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PRINT_MODULES: Final = """
import os, signal, sys, threading
from odradek import broker_cli

def ready(*_):
    print(threading.active_count(), *sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)

broker_cli._announce = ready
broker_cli.broker()
"""

OF_SOME_BROKERS: Final = {
    "metrics page": ("odradek.broker.metrics.exposition.snapshot", "odradek.broker.metrics.exposition.page"),
    "HTTP": ("http.client", "http.server", "email"),
    "TLS": ("odradek.broker.security.tls_principals", "odradek.broker.security.ssl_factory", "cryptography"),
    "SASL": (
        "odradek.broker.security.sasl_mechanisms",
        "odradek.broker.security.sasl_channel",
        "odradek.broker.security.sasl_client",
    ),
    "Kerberos": ("odradek.broker.security.state.principal_mapping", "gssapi"),
    "ZooKeeper": ("odradek.broker.registry.zookeeper", "kazoo"),
    "regular expressions of groups": ("re2",),
    "commands and clients": ("odradek.admin", "odradek.commands.topic", "confluent_kafka", "argparse"),
    "processes": ("multiprocessing", "concurrent.futures.process"),
    "codecs": ("cramjam", "zstandard", "lz4"),
    "log configuration": ("logging.config",),
}
FEW_THREADS: Final = 6
"""The loop's, one for each log directory and two more, and the resolver of names."""
LATE_APIS: Final = ("create_acls", "create_delegation_token", "alter_client_quotas", "alter_configs", "elect_leaders")


@pytest.mark.slow
def test_a_broker_that_is_ready_has_few_threads_and_has_not_imported_what_rare_requests_need(tmp_path: Path) -> None:
    options = ["--override=listeners=PLAINTEXT://127.0.0.1:0", f"--override=log.dirs={tmp_path}"]
    command = [sys.executable, "-c", PRINT_MODULES, *options]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    threads, *modules = run.stdout.split()
    imported = set(modules)
    assert {"odradek.broker.server", "odradek.broker.apis.fetch"} <= imported
    early = {subject: imported.intersection(names) for subject, names in OF_SOME_BROKERS.items()}
    assert {subject: names for subject, names in early.items() if names} == {}
    assert imported.isdisjoint(f"odradek.broker.apis.{name}" for name in LATE_APIS)
    assert int(threads) <= FEW_THREADS
