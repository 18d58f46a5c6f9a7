"""Fixtures of the Spark tests: one session for all of them, and the brokers that jobs have to treat alike."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pytest

from odradek.broker_process import BrokerProcess
from odradek.cluster_process import ClusterProcess
from odradek.spark_jobs.connector import JARS_VARIABLE
from odradek.spark_jobs.session import open_session
from tests.jvm.archives import SPARK_JVM, spark_archive_options
from tests.jvm.jars import classpath
from tests.jvm.java import find_java, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": " ".join((*SPARK_JVM, *spark_archive_options())),
}
"""How soon the JVM is at speed. No setting of Spark's planning or execution is changed in tests: its settings are those
of users.
"""


FILES_VARIABLE: Final = "SPARK_DIST_CLASSPATH"
"""Spark appends these jars to its own. Those of spark.driver.extraClassPath come first, and the archive of classes fits
no class path that begins with others.
"""


def without_forks() -> dict[str, str]:
    """Settings with which Spark creates files without a process for each: a seventh of the time of these tests.

    Jobs that are killed run without them, so that a crash leaves the same files as for users. The class is on the path
    that FILES_VARIABLE names.
    """
    return {
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }


@pytest.fixture(scope="session")
def spark_environment() -> dict[str, str]:
    """The environment of a job here: the pinned jars, the Java of the tests, and what makes it start sooner."""
    return {
        "SPARK_SUBMIT_OPTS": QUICK_JVM["spark.driver.extraJavaOptions"],
        JARS_VARIABLE: os.pathsep.join(str(jar) for jar in classpath("spark-4.2.0")),
        "JAVA_HOME": str(java_home(find_java())),
    }


@pytest.fixture(scope="session")
def spark(spark_environment: dict[str, str]) -> Iterator[SparkSession]:
    """The session of the run, with the settings of users: test_session checks the few settings beside them.

    A job's `main` in this process uses it, too, and leaves it running.

    Spark waits 10 s, in no setting, until the process of a stateful processor has imported its modules and connects.
    On a clean clone these are not compiled, so they are imported here before.
    """
    importlib.import_module("pyspark.sql.streaming.transform_with_state_driver_worker")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment.items():
            patch.setenv(name, value)
        patch.setenv(FILES_VARIABLE, os.pathsep.join(map(str, classpath("spark-files"))))
        session = open_session("tests", settings={**QUICK_JVM, **without_forks()})
        yield session
        session.stop()


@pytest.fixture(scope="session")
def spark_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One Odradek for all tests that neither stop it nor need other properties; topics and groups are a test's own."""
    with BrokerProcess(tmp_path_factory.mktemp("spark"), {"offsets.topic.num.partitions": "4"}) as running:
        yield running


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Three brokers of Odradek for all tests that leave it as it was: all brokers run and are in sync."""
    with ClusterProcess(tmp_path_factory.mktemp("spark-cluster"), 3, {"min.insync.replicas": "2"}) as running:
        yield running


@pytest.fixture(params=["odradek", "kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of Odradek, and again of Apache Kafka 3.9.2: a test with this fixture runs against both."""
    found = request.getfixturevalue("spark_broker" if request.param == "odradek" else "kafka")
    return str(found.bootstrap)
