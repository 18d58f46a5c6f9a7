"""Kafka Connect as a process: its release, its JVM and its property files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

RELEASE: Final = "connect-3.9.2"
JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx384m")


def write_properties(path: Path, **properties: str) -> str:
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in properties.items()))
    return str(path)
