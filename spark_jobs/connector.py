"""Finds the jars of Spark's Kafka connector, which is no part of PySpark.

ODRADEK_SPARK_JARS names them (/path/a.jar:/path/b.jar, or a folder of them), for machines that cannot reach Maven
Central. Without it Spark's Ivy resolves them by the connector's coordinate, once: it keeps them in its own folder, and
this module stores their paths in the user's cache. Later sessions name these paths and start without Ivy, which checks
every repository again and prints a page each time.

Of the eleven jars in the connector's description, seven are in PySpark already and are left out. That is 10 MB in place
of 64. Ivy also fails on them where Maven has kept the description of a jar and not the jar.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from odradek.spark_jobs.errors import JobError

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
JARS_VARIABLE: Final = "ODRADEK_SPARK_JARS"
_IN_PYSPARK: Final = (
    "com.google.code.findbugs:jsr305",
    "org.apache.hadoop:*",
    "*:lz4-java",
    "org.scala-lang.modules:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)


def settings() -> dict[str, str]:
    """The settings with which a session gets the connector. Raises JobError where JARS_VARIABLE names no jar."""
    jars = _named() or _resolved()
    if jars:
        return {"spark.jars": ",".join(map(str, jars))}
    return {"spark.jars.packages": CONNECTOR, "spark.jars.excludes": ",".join(_IN_PYSPARK)}


def remember(started: Mapping[str, str]) -> None:
    """Stores the jars that Ivy has found for a session with the settings `started`, if Ivy was used.

    If the cache cannot be written, the next session uses Ivy again; that is no reason to fail.
    """
    if started.get("spark.jars.packages") != CONNECTOR:
        return
    jars = [unquote(urlsplit(jar).path) for jar in started.get("spark.jars", "").split(",")]
    note = _note()
    unfinished = note.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(jars))
        unfinished.replace(note)


def _named() -> list[Path]:
    jars: list[Path] = []
    for path in map(Path, filter(None, re.split(f"[,{os.pathsep}]", os.environ.get(JARS_VARIABLE, "")))):
        found = sorted(path.glob("*.jar")) if path.is_dir() else [path]
        if not found or not all(jar.is_file() for jar in found):
            raise JobError(f"{JARS_VARIABLE} names {path}, where no jar is")
        jars += (jar.resolve() for jar in found)
    return jars


def _resolved() -> list[Path]:
    """The stored jars, if all of them still exist."""
    try:
        jars = [Path(jar) for jar in _strings(json.loads(_note().read_text()))]
    except (OSError, ValueError):
        return []
    return jars if all(jar.is_file() for jar in jars) else []


def _strings(read: object) -> Iterable[str]:
    if not isinstance(read, list) or not all(isinstance(each, str) for each in read):
        raise ValueError("not a list of paths")
    return read


def _note() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "odradek" / f"{CONNECTOR.replace(':', '-')}.json"
