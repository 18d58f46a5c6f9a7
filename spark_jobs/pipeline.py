"""pipeline: an example that runs all parts of Odradek in one command.

    lines of text -> broker -> word count (odradek.streams) -> windows (Spark) -> Parquet -> report and picture

1. The job starts a broker on a free port, unless --bootstrap names one.
2. It runs `odradek.streams.examples.word_count` beside it, which writes each word with its count so far.
3. It produces lines: by kafka-console-producer where --console-producer names it, in the present, at --rate; otherwise
   at once by Spark, each with a time of its own, 1/--rate s after the one before.
4. The `windows` job counts the output for each word and --size of time, into Parquet files. One record an hour later
   comes last and closes all windows.
5. The job reads the Parquet files for its report: the most frequent words, by window, as text and as a PNG.

The word count writes a record for each occurrence of a word, so the sums of the report are those of the text.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.spark_jobs import windows
from odradek.spark_jobs.command import run
from odradek.spark_jobs.errors import DONE, JobError, NotThereError
from odradek.spark_jobs.kafka_admin import KafkaAdmin
from odradek.spark_jobs.session import job_session

if TYPE_CHECKING:  # `--help` and wrong usage need no Spark
    from pyspark.sql import DataFrame, SparkSession

INPUT: Final = "streams-plaintext-input"
OUTPUT: Final = "streams-wordcount-output"
DEADLINE_S: Final = 120.0
LAST_WORD: Final = "fin"
"""Closes the windows, and is not counted: its own window is never closed."""
LATER_MS: Final = 3_600_000
_LOOK_S: Final = 0.2
_WORDS: Final = (
    *("thread", "spool", "broker", "topic", "record", "offset", "leader", "log"),
    *("batch", "stream", "window", "table", "key", "value"),
)


def transform(counts: DataFrame, top: int) -> DataFrame:
    """word, window_start, count of the `top` most frequent words; `counts` is the output of the windows job."""
    from pyspark.sql import functions as f

    words = counts.select(f.decode("key", "UTF-8").alias("word"), "window_start", "count").where(
        f.col("word") != LAST_WORD
    )
    most = words.groupBy("word").agg(f.sum("count").alias("total")).orderBy(f.desc("total"), "word").limit(top)
    return words.join(f.broadcast(most), "word").orderBy(f.desc("total"), "word", "window_start").drop("total")


def made_up_lines(count: int) -> Iterator[str]:
    """The same lines each time: each word is rarer than the one before."""
    chance = random.Random(1)
    weights = [1 / (place + 1) for place in range(len(_WORDS))]
    for _ in range(count):
        yield " ".join(chance.choices(_WORDS, weights, k=6))


@click.command("pipeline")
@click.option("--output", required=True, metavar="FOLDER", help="Where Parquet files, report.txt and report.png go.")
@click.option("--bootstrap", metavar="HOST:PORT,…", help="Brokers to use, in place of one that is started.")
@click.option(
    "--text", type=click.File("r", encoding="utf-8"), help="Lines to count, - is stdin; else some are made up."
)
@click.option("--lines", type=click.IntRange(min=1), default=1_000, show_default=True, help="How many to make up.")
@click.option("--rate", type=click.FloatRange(min=0.1), default=20.0, show_default=True, help="Lines a second.")
@click.option("--size", default="10s", show_default=True, help="Length of a window.")
@click.option("--top", type=click.IntRange(min=1), default=6, show_default=True, help="How many words to report.")
@click.option("--console-producer", metavar="PATH", help="kafka-console-producer.sh, to produce with.")
@click.option("--master", help="Spark's master; without it this machine's cores.")
def command(output: str, bootstrap: str | None, **chosen: Any) -> int:
    """Counts words with all parts of Odradek: broker, streams, Spark, a report with a picture.

    \b
        python -m odradek.spark_jobs.pipeline --output /tmp/words
        python -m odradek.spark_jobs.pipeline --output /tmp/words --text book.txt --size 1m
    """
    folder = Path(output)
    if (folder / "windows").exists():
        raise JobError(f"{folder / 'windows'} is there already: choose another folder")
    if chosen["console_producer"] and shutil.which(chosen["console_producer"]) is None:
        raise JobError(f"{chosen['console_producer']} is no program that can be run")
    lines = [line.rstrip("\n") for line in chosen["text"] or made_up_lines(chosen["lines"])]
    if not lines:  # without input the word count would never commit, and the job would wait for it
        raise NotThereError("--text has no lines: there is nothing to count")
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-pipeline-")))
        spark = stack.enter_context(job_session("pipeline", chosen["master"]))
        address = bootstrap or stack.enter_context(broker(scratch / "broker"))
        admin = stack.enter_context(KafkaAdmin(spark, {"bootstrap.servers": address}))
        await_true(lambda: bool(answers(admin)), "answer from the broker")
        if exists(admin, INPUT):
            raise JobError(f"{address} has a topic {INPUT} already, and its words would be counted, too: delete it")
        application = f"pipeline-{os.getpid()}-{time.time_ns()}"
        counting = stack.enter_context(word_count(address, application, scratch))
        await_true(lambda: exists(admin, OUTPUT), "topics of the word count", counting)
        say(f"producing {len(lines):,} lines to {INPUT}")
        if chosen["console_producer"]:
            produce_by_console(chosen["console_producer"], address, lines, chosen["rate"])
            produce_at_once(spark, address, closing())
        else:
            produce_at_once(spark, address, [*timed(lines, chosen["rate"]), *closing()])
        say("waiting for the word count")
        await_true(lambda: is_done(admin, application), "end of the word count", counting)
        say(f"counting by windows of {chosen['size']}")
        parquet, kept = folder / "windows", scratch / "checkpoint"
        arguments = ["--bootstrap", address, "--topic", OUTPUT, "--size", chosen["size"], "--once"]
        if status := windows.main([*arguments, "--checkpoint", str(kept), "--output", str(parquet)]):
            return status
        rows = transform(spark.read.parquet(str(parquet)), chosen["top"]).collect()
    write_report([(row.word, row.window_start, row["count"]) for row in rows], folder)
    return DONE


# ---- processes beside the job


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """A broker with its data in `folder`, until the end of the block; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = {
        "listeners": f"PLAINTEXT://{address}",
        "log.dirs": str(folder),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",  # the word count is the only member
    }
    arguments = [f"--override={key}={value}" for key, value in settings.items()]
    with running([sys.executable, "-P", "-m", "odradek", "broker", *arguments]):
        say(f"broker at {address}")
        yield address


@contextmanager
def word_count(address: str, application: str, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The example of the streams runtime, until the end of the block."""
    command = [sys.executable, "-P", "-m", "odradek.streams.examples.word_count", "--bootstrap-servers", address]
    with running([*command, "--application-id", application, "--state-dir", str(scratch / "state")]) as process:
        yield process


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block: by a request, else by force."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def await_true(holds: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Raises JobError where `what` does not happen in time, or `process` has ended."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        if process is not None and process.poll() is not None:
            raise JobError(f"no {what}: it ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise JobError(f"no {what} within {DEADLINE_S:g} s")
        time.sleep(_LOOK_S)


def answers(admin: KafkaAdmin) -> str:
    """The cluster's id; empty as long as no broker answers."""
    try:
        return admin.cluster_id()
    except JobError:
        return ""


def exists(admin: KafkaAdmin, topic: str) -> bool:
    """Whether there is such a topic."""
    try:
        return bool(admin.topics([topic]))
    except JobError:
        return False


def is_done(admin: KafkaAdmin, application: str) -> bool:
    """Whether the application has committed all of its input, and of its own repartition topic.

    It commits after its output is acknowledged. This function reads the ends after the commits: a result of True stays
    True.
    """
    committed = admin.committed(application)
    if INPUT not in committed or len(committed) < 2:
        return False
    ends = admin.ends({name: topic.partitions for name, topic in admin.topics(committed).items()})
    return all(committed[topic].get(n, 0) == end for topic, places in ends.items() for n, end in places.items())


# ---- producing


def timed(lines: Sequence[str], rate: float) -> list[tuple[str, int]]:
    """The lines with times in ms since the epoch, `rate` of them in a second, the last of about now."""
    begin_ms = time.time() * 1000 - len(lines) / rate * 1000
    return [(line, round(begin_ms + number / rate * 1000)) for number, line in enumerate(lines)]


def closing() -> list[tuple[str, int]]:
    """The line that closes all windows, with its time."""
    return [(LAST_WORD, round(time.time() * 1000) + LATER_MS)]


def produce_at_once(spark: SparkSession, address: str, lines: Sequence[tuple[str, int]]) -> None:
    """Writes lines with their times in ms since the epoch."""
    from odradek.spark_jobs import origin
    from odradek.spark_jobs.original_times import sink_settings

    rows = [(bytearray(line.encode()), [(origin.TIMESTAMP, bytearray(b"%d" % at))]) for line, at in lines]
    records = spark.createDataFrame(rows, "value binary, headers array<struct<key:string,value:binary>>")
    settings = {"kafka.bootstrap.servers": address, "topic": INPUT, **sink_settings(spark)}
    records.coalesce(1).write.format("kafka").options(**settings).save()


def produce_by_console(program: str, address: str, lines: Sequence[str], rate: float) -> None:
    """Writes the lines to the console producer's stdin. Raises JobError where it fails."""
    command = [program, "--bootstrap-server", address, "--topic", INPUT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as console:
        assert console.stdin is not None
        for line in lines:
            console.stdin.write(line.encode() + b"\n")
            console.stdin.flush()
            time.sleep(1 / rate)
        console.stdin.close()
    if console.returncode:
        raise JobError(f"{program} ended with status {console.returncode}")


# ---- the report


def write_report(rows: Sequence[tuple[str, Any, int]], folder: Path) -> None:
    """report.txt and report.png of (word, beginning of the window, count). Raises JobError without matplotlib."""
    totals: dict[str, int] = {}
    for word, _, count in rows:
        totals[word] = totals.get(word, 0) + count
    text = "".join(f"{word:<20}{count:>10,}\n" for word, count in totals.items())
    (folder / "report.txt").write_text(text)
    click.echo(text, nl=False)
    draw({word: [(at, count) for each, at, count in rows if each == word] for word in totals}, folder / "report.png")
    say(f"written: {folder / 'windows'}, {folder / 'report.txt'}, {folder / 'report.png'}")


def draw(lines: Mapping[str, Sequence[tuple[Any, int]]], picture: Path) -> None:
    """A line for each word: its count in each window."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise JobError("the picture needs matplotlib: pip install matplotlib (report.txt is written)") from None
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for word, points in lines.items():
        axes.plot([at for at, _ in points], [count for _, count in points], marker=".", label=word)
    axes.set_ylabel("times in a window")
    axes.set_xlabel("window (UTC)")
    axes.grid(alpha=0.3)
    if lines:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.autofmt_xdate()
    figure.savefig(picture, dpi=120)


def say(line: str) -> None:
    """Progress, on stderr."""
    click.echo(f"pipeline: {line}", err=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the example with these arguments, by default the process's; returns its exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
