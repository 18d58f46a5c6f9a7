"""The processes that a job starts import installed modules, even if the user's current folder has modules of the same
names.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.crowded_folder import crowded_folder, run

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

JOB = """
from pathlib import Path
from odradek.spark_jobs import pipeline, session

with session.job_session("crowded", "local[1]") as spark:
    doubled = lambda frames: (each * 2 for each in frames)
    rows = spark.range(3).mapInPandas(doubled, "id long").collect()
    with pipeline.broker(Path("data")) as address:
        with pipeline.KafkaAdmin(spark, {"bootstrap.servers": address}) as admin:
            pipeline.await_true(lambda: bool(pipeline.answers(admin)), "broker")
            with pipeline.word_count(address, "crowded", Path("scratch")) as application:
                pipeline.await_true(lambda: pipeline.exists(admin, pipeline.OUTPUT), "topics", application)
print(sorted(row.id for row in rows))
"""


def test_python_workers_a_broker_and_a_streams_application_start(
    tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    printed = run(JOB, crowded_folder(tmp_path / "crowded"), spark_environment, timeout_s=400)
    assert printed.splitlines()[-1] == "[0, 2, 4]"
