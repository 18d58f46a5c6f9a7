"""An installed wheel serves: the version, the C extensions, and one record through a broker.

    python tests/release/smoke.py

Run it by the interpreter of the environment that has the wheel and confluent-kafka. It imports nothing of the clone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from confluent_kafka import Consumer, Producer

import odradek
from odradek.broker_process import BrokerProcess

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
EXTENSIONS = (
    "odradek.protocol._chain",
    "odradek.protocol._codec",
    "odradek.protocol._constructors",
    "odradek.protocol._frames",
    "odradek.protocol._reads",
    "odradek.protocol._log_append",
    "odradek.protocol._legacy",
    "odradek.protocol._offset_map",
    "odradek.streams.clients._accumulator",
    "odradek.streams.clients._received",
    "odradek.streams.stores._lru_entries",
)
TIMEOUT_S = 30.0


def check_version(version: str) -> None:
    """The command prints the version."""
    command = [str(Path(sys.executable).with_name("odradek")), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    assert printed == f"odradek {version}\n", printed


def check_extensions() -> None:
    """The wheel carries every C extension, and each can be loaded, without the other dependencies of its package."""
    root = Path(odradek.__file__).parent
    for name in EXTENSIONS:
        _, *folders, module = name.split(".")
        spec = PathFinder.find_spec(module, [str(root.joinpath(*folders))])
        assert spec is not None, f"the wheel lacks {name}"
        assert spec.loader is not None
        spec.loader.exec_module(module_from_spec(spec))


def check_one_record(bootstrap: str) -> None:
    """One record is acknowledged and read back."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("smoke", key="key", value="value")
    assert producer.flush(TIMEOUT_S) == 0, "the record is not acknowledged"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "smoke", "auto.offset.reset": "earliest"})
    consumer.subscribe(["smoke"])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "no record within the timeout"
        assert message.error() is None, message.error()
        assert (message.key(), message.value()) == (b"key", b"value")
    finally:
        consumer.close()


def main() -> None:
    """All checks; a broker serves on a free port, with its data in a temporary folder."""
    version = tomllib.loads(PYPROJECT.read_text())["project"]["version"]
    check_version(version)
    check_extensions()
    with tempfile.TemporaryDirectory(prefix="odradek-smoke-") as folder, BrokerProcess(Path(folder)) as broker:
        check_one_record(broker.bootstrap)
        broker.stop()
    print(f"odradek {version} serves: {sys.prefix}")


if __name__ == "__main__":
    main()
