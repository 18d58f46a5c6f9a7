"""Reads topics with Spark's own Kafka connector, after checks of topics, offsets and checkpoint.

The connector fails obscurely where a topic is missing, and continues from the offsets of another topic where a
checkpoint belongs to one. So before Spark starts, this module describes the topics and compares the requested offsets
with those of the partitions. A note in the checkpoint stores its owner: the job, the cluster's id, and the topics with
their ids, which distinguish a topic from another that was made under its name (KIP-516).

Data that retention removed before it was read ends a job (failOnDataLoss): no record is skipped silently.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from odradek.spark_jobs.command import Offsets, Options, Position, offsets_json, parse_offsets
from odradek.spark_jobs.errors import JobError, NotThereError
from odradek.spark_jobs.kafka_admin import KafkaAdmin, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTE: Final = "odradek.json"
FETCH_MAX_WAIT_MS: Final = "20"
"""A task reads the available records, and its consumer then requests the next ones. The consumer is kept for the next
batch, which cannot send a request before that one is answered: after Kafka's 500 ms, where nothing came."""
Whose = dict[str, Any]


def read_stream(spark: SparkSession, options: Options) -> DataFrame:
    """The topics as a stream: key, value, topic, partition, offset, timestamp, timestampType, headers.

    Claims the checkpoint for this job and these topics. Raises NotThereError (topic missing, offsets gone,
    checkpoint of something else) and JobError.
    """
    with KafkaAdmin(spark, options.client, options.isolation) as admin:
        topics = check_topics(admin, options)
        check_checkpoint(admin, options, topics)
        _check_kept(admin, options, topics)
        settings = _settings(options) | _starting(admin, options, topics)
    if options.batch_records is not None:
        settings["maxOffsetsPerTrigger"] = str(options.batch_records)
    return spark.readStream.format("kafka").options(**settings).load()


def read_batch(spark: SparkSession, options: Options) -> DataFrame:
    """The topics from --from to --until, columns as of `read_stream`; the end is the present one.

    Raises NotThereError (topic missing, offsets gone) and JobError.
    """
    with KafkaAdmin(spark, options.client, options.isolation) as admin:
        start, end = ranges(admin, options)
    return read_range(spark, options, start, end)


def read_range(spark: SparkSession, options: Options, start: Offsets, end: Offsets) -> DataFrame:
    """Exactly the records from `start` to `end` (exclusive), which name the same partitions; no others are read."""
    settings = _settings(options) | {"startingOffsets": offsets_json(start), "endingOffsets": offsets_json(end)}
    del settings["subscribe"]
    settings["assign"] = json.dumps({topic: sorted(places) for topic, places in start.items()})
    return spark.read.format("kafka").options(**settings).load()


def ranges(admin: KafkaAdmin, options: Options) -> tuple[Offsets, Offsets]:
    """The present offsets of --from and --until, for every partition: never beyond the end, never backwards.

    Raises NotThereError where a topic is missing, or where offsets to begin with are gone.
    """
    topics = check_topics(admin, options)
    start, end = resolve(admin, options.start, topics), resolve(admin, options.until, topics, ending=True)
    last = admin.ends(_sizes(topics))
    for topic, places in end.items():
        for partition, offset in places.items():
            end[topic][partition] = min(offset, last[topic][partition])
            start[topic][partition] = min(start[topic][partition], end[topic][partition])
    return start, end


def resolve(admin: KafkaAdmin, position: Position, topics: dict[str, Topic], *, ending: bool = False) -> Offsets:
    """A position as offsets of every partition; partitions missing in the JSON are read from beginning to end.

    Raises NotThereError where reading is to begin with offsets that are gone.
    """
    sizes = _sizes(topics)
    if position.kind == "earliest":
        return admin.beginnings(sizes)
    if position.kind == "latest":
        return admin.ends(sizes)
    if position.kind == "time":
        return admin.at_time(sizes, position.time_ms)
    first = admin.beginnings(sizes)
    if not ending:
        _check_begin(position.offsets, first)
    left_out = admin.ends(sizes) if ending else first
    return {topic: {**places, **position.offsets.get(topic, {})} for topic, places in left_out.items()}


def check_topics(admin: KafkaAdmin, options: Options) -> dict[str, Topic]:
    """The topics of the options. Raises NotThereError where one is missing, or where offsets name others."""
    topics = admin.topics(options.topics)
    for position in (options.start, options.until):
        for name, places in position.offsets.items():
            if name not in topics:
                raise NotThereError(f"offsets name the topic {name}, which is not among --topic")
            beyond = [n for n in places if n >= topics[name].partitions]
            if beyond:
                raise NotThereError(f"{name} has no partition {beyond[0]}: it has {topics[name].partitions}")
    return topics


def check_checkpoint(admin: KafkaAdmin, options: Options, topics: dict[str, Topic]) -> None:
    """Claims the checkpoint for this job and these topics. Raises NotThereError where it is another's."""
    claim_checkpoint(options, _whose(admin, topics))


def whose(admin: KafkaAdmin, options: Options) -> Whose:
    """The identity of a checkpoint of these topics. Raises NotThereError where one is missing."""
    return _whose(admin, admin.topics(options.topics))


def _check_kept(admin: KafkaAdmin, options: Options, topics: dict[str, Topic]) -> None:
    """Raises NotThereError where the offsets from which Spark will continue are gone."""
    folder = local_path(options.checkpoint)
    done = max((int(file.name) for file in (folder / "commits").glob("[0-9]*")), default=None)
    if done is None:
        return
    # A line for the format, one for settings, one for each source.
    for text in (folder / "offsets" / str(done)).read_text().splitlines()[2:]:
        try:
            begin = parse_offsets(text)
        except ValueError:  # of a source that is not Kafka
            continue
        kept = {
            topic: {n: at for n, at in places.items() if n < topics[topic].partitions}
            for topic, places in begin.items()
        }
        _check_begin(kept, admin.beginnings(_sizes(topics)))


def claim_checkpoint(options: Options, source: Whose) -> None:
    """Writes the owner (`cluster`, `topics`) into a note in the checkpoint, or checks that the note has the same one.

    Raises NotThereError where it has another one, JobError where it cannot be read.
    """
    note = local_path(options.checkpoint) / NOTE
    own: Whose = {"id": uuid.uuid4().hex, "job": options.job, **source}
    try:
        found = json.loads(note.read_text())
    except FileNotFoundError:
        if (note.parent / "metadata").exists():
            raise NotThereError(f"{options.checkpoint} is a checkpoint that no job of odradek has made") from None
        write_atomically(note, json.dumps(own))
        return
    except (OSError, ValueError) as error:
        raise JobError(f"cannot read {note}: {error}") from None
    if problem := _difference(found, own):
        raise NotThereError(f"{options.checkpoint} is the checkpoint of {problem}; choose another folder")


def checkpoint_id(options: Options) -> str:
    """The identity of the job's checkpoint, from the note that `read_stream` has left in it."""
    return str(json.loads((local_path(options.checkpoint) / NOTE).read_text())["id"])


def local_path(folder: str) -> Path:
    """A folder of this machine, or of a file system that is mounted on it. Raises JobError for other schemes."""
    plain = folder.removeprefix("file://")
    if "://" in plain:
        raise JobError(f"{folder}: checkpoints and outputs lie in folders that are mounted where jobs run")
    return Path(plain)


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that a reader finds the old text or the new one, even after a crash. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    with open(beside, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _whose(admin: KafkaAdmin, topics: dict[str, Topic]) -> Whose:
    return {"cluster": admin.cluster_id(), "topics": {name: topic.id for name, topic in topics.items()}}


def _difference(found: Whose, own: Whose) -> str:
    if found["job"] != own["job"]:
        return f"the job {found['job']}"
    if found["cluster"] != own["cluster"]:
        return f"topics of another cluster ({found['cluster']}, this one is {own['cluster']})"
    theirs, ours = found["topics"], own["topics"]
    if set(theirs) != set(ours):
        return f"the topics {', '.join(sorted(theirs))}"
    remade = [name for name in ours if ours[name] and theirs[name] and ours[name] != theirs[name]]
    return f"a topic {remade[0]} that was deleted since, and made anew" if remade else ""


def _settings(options: Options) -> dict[str, str]:
    return {
        "kafka.fetch.max.wait.ms": FETCH_MAX_WAIT_MS,
        **{f"kafka.{key}": value for key, value in options.client.items()},
        "kafka.isolation.level": options.isolation,
        "subscribe": ",".join(options.topics),
        "groupIdPrefix": f"odradek-{options.job}",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }


def _starting(admin: KafkaAdmin, options: Options, topics: dict[str, Topic]) -> dict[str, str]:
    start = options.start
    if start.kind == "time":
        return {"startingTimestamp": str(start.time_ms), "startingOffsetsByTimestampStrategy": "latest"}
    if start.kind == "offsets":
        return {"startingOffsets": offsets_json(resolve(admin, start, topics))}
    return {"startingOffsets": start.kind}


def _check_begin(wanted: Offsets, first: Offsets) -> None:
    for topic, places in wanted.items():
        for partition, offset in places.items():
            if offset < first[topic][partition]:
                raise NotThereError(
                    f"offset {offset} of {topic}-{partition} is gone: the partition begins at {first[topic][partition]}"
                )


def _sizes(topics: dict[str, Topic]) -> dict[str, int]:
    return {name: topic.partitions for name, topic in topics.items()}
