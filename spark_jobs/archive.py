"""archive: copies topics into Parquet files, each record once, with all fields of the record.

    archive/topic=orders/date=2026-01-31/000000017-00002.parquet    batch 17, its third file
    archive/_batches/000000017.json                                 batch 17 is here, in these files
    archive/_archive.json                                           the checkpoint that the archive belongs to

`date` is the day of the record's timestamp in UTC; topic and date are columns by the names of the folders, as Spark,
Arrow, DuckDB and Hive read them. Beside the columns of Spark's Kafka source there are the CRC-32 of key and of value,
so that a reader can compare a file with the topic, or check it without the topic.

The archive contains each record once, however a run ends. Spark gives a batch the same offsets when it runs again, so
the job writes a batch under its number: it makes the files in `_staging`, which readers skip as they do all names that
begin with an underscore, syncs them to the disk, and then renames each to its place. The file in `_batches` comes last.
A batch that has one is done, and the job does not write it again. A batch without one may have left some of its files;
the job removes them before it writes the batch anew. So readers need no log of Spark's, and get whole files only. They
may get a part of the newest batch; a reader that must not reads the files that `_batches` lists.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.spark_jobs.command import Options, job_command, run
from odradek.spark_jobs.committed import sync
from odradek.spark_jobs.errors import NotThereError
from odradek.spark_jobs.progress import await_query
from odradek.spark_jobs.session import job_session
from odradek.spark_jobs.source import checkpoint_id, local_path, read_stream, write_atomically

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, key_crc BIGINT, value_crc BIGINT, topic STRING, date DATE"
)
CODECS: Final = ("zstd", "snappy", "lz4", "gzip", "none")
EXAMPLE: Final = """
Everything that is there, then the end; the next run goes on from there:

  python -m odradek.spark_jobs.archive --bootstrap localhost:9092 --topic orders \\
      --checkpoint /var/lib/odradek/archive-checkpoint --output /var/lib/odradek/archive --once

For ever, a batch a minute, two topics:

  python -m odradek.spark_jobs.archive --bootstrap localhost:9092 --topic orders --topic payments \\
      --checkpoint /var/lib/odradek/archive-checkpoint --output /var/lib/odradek/archive --interval 60
"""
_BATCHES, _STAGING, _NOTE = "_batches", "_staging", "_archive.json"


def transform(records: DataFrame) -> DataFrame:
    """The columns of SCHEMA from those of the Kafka source, in the order in which the files have them."""
    from pyspark.sql import functions as f

    return records.select(
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "key",
        "value",
        "headers",
        f.crc32("key").alias("key_crc"),
        f.crc32("value").alias("value_crc"),
        "topic",
        f.to_date("timestamp").alias("date"),
    )


def read_archive(spark: SparkSession, folder: str) -> DataFrame:
    """The records of an archive, with the columns of SCHEMA. Raises NotThereError where there is none."""
    path = local_path(folder)
    if not (path / _NOTE).exists():
        raise NotThereError(f"{folder} is no archive")
    # With a schema, topic stays text: Spark would read the topic name 2024 as a number.
    return spark.read.schema(SCHEMA).parquet(str(path))


def archive_id(folder: str) -> str:
    """The identity of an archive: the id of the checkpoint that it belongs to."""
    return str(json.loads((local_path(folder) / _NOTE).read_text())["checkpoint"])


class Archive:
    """The folder of an archive. `checkpoint` is the id of the checkpoint that it belongs to."""

    def __init__(self, folder: Path, checkpoint: str, codec: str = "zstd") -> None:
        """Claims the folder. Raises NotThereError where it is another checkpoint's: batch numbers would collide."""
        self._folder = folder
        self._codec = codec
        self._begun: set[int] = set()
        note = folder / _NOTE
        if not note.exists():
            write_atomically(note, json.dumps({"checkpoint": checkpoint}))
        elif json.loads(note.read_text())["checkpoint"] != checkpoint:
            raise NotThereError(
                f"{folder} was written from another checkpoint: go on with that one, or choose another folder"
            )

    def write(self, batch: DataFrame, number: int) -> None:
        """Publishes one micro-batch; does nothing where the batch was published before. Raises OSError."""
        done = self._folder / _BATCHES / f"{number:09}.json"
        if done.exists():
            return
        staging = self._folder / _STAGING
        shutil.rmtree(staging, ignore_errors=True)
        ordered = transform(batch).sortWithinPartitions("topic", "date", "partition", "offset")
        writer = ordered.write.option("compression", self._codec).partitionBy("topic", "date")
        writer.parquet(str(staging))
        if not self._begun:  # only the first batch of a run can have been begun by an earlier run
            for left in self._folder.glob(f"topic=*/date=*/{number:09}-*.parquet"):
                left.unlink()
        self._begun.add(number)
        write_atomically(done, json.dumps({"batch": number, "files": list(self._publish(staging, number))}))
        shutil.rmtree(staging, ignore_errors=True)

    def _publish(self, staging: Path, number: int) -> Iterator[str]:
        folders = set()
        for count, made in enumerate(sorted(staging.glob("topic=*/date=*/*.parquet"))):
            folder = self._folder / made.parent.relative_to(staging)
            folder.mkdir(parents=True, exist_ok=True)
            sync(made)
            place = folder / f"{number:09}-{count:05}.parquet"
            made.replace(place)
            folders |= {folder, folder.parent, self._folder}
            yield str(place.relative_to(self._folder))
        for folder in sorted(folders):
            sync(folder)


@job_command("archive", example=EXAMPLE, output="Folder of the Parquet files.", topic="Topic to archive.")
@click.option("--codec", type=click.Choice(CODECS), default="zstd", show_default=True, help="Compression of the files.")
def command(options: Options, codec: str) -> int:
    """Copy topics into Parquet files, each record once, with key, value, headers, timestamp, offset and CRC-32."""
    with job_session(options.job, options.master) as spark:
        records = read_stream(spark, options)
        archive = Archive(local_path(options.output), checkpoint_id(options), codec)
        writer: Any = records.writeStream.foreachBatch(archive.write)
        query = writer.option("checkpointLocation", options.checkpoint).trigger(**options.trigger).start()
        return await_query(query, options)


def main(argv: Sequence[str] | None = None) -> int:
    """The job as a process: `argv` without the program's name; returns the exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
