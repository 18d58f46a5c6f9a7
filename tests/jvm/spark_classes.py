"""Uses what the Spark jobs use, without Kafka, and ends: `archives` has Java archive the classes that this loads.

    python -m tests.jvm.spark_classes OPTIONS

The class path has to be that of the jobs, Spark's own jars: Java uses an archive for no other.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def main(options: str) -> None:
    """Batches of records, files of each kind, and a streaming query, in a session whose Java has these options."""
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", options)
    session = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    gateway = session.sparkContext._gateway
    with tempfile.TemporaryDirectory(prefix="odradek-spark-") as name:
        folder = Path(name)
        records = session.range(1000).select(
            f.col("id"),
            (f.col("id") % 7).alias("key"),
            f.col("id").cast("string").cast("binary").alias("value"),
            f.timestamp_seconds(f.col("id")).alias("time"),
        )
        counts = records.groupBy("key").agg(f.count("*").alias("count"), f.max("time").alias("time"))
        for format_ in ("parquet", "json"):
            counts.write.format(format_).save(str(folder / format_))
            session.read.format(format_).load(str(folder / format_)).orderBy("key").collect()
        counts.join(records, "key").where("count > 1").dropDuplicates(["id"]).count()
        records.groupBy(f.window("time", "10 seconds")).count().collect()
        _stream(session, folder)
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()  # Java writes the archive at its end


def _stream(session: SparkSession, folder: Path) -> None:
    """A query with state and foreachBatch that ends by itself."""

    def write(batch: DataFrame, number: int) -> None:
        batch.write.parquet(str(folder / "out" / str(number)))

    values = session.readStream.schema("key long, count long, time timestamp").json(str(folder / "json"))
    windows = values.withWatermark("time", "1 second").groupBy(f.window("time", "10 seconds")).count()
    started = windows.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    started.trigger(availableNow=True).start().awaitTermination(60)


if __name__ == "__main__":
    main(sys.argv[1])
