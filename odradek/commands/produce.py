"""`odradek produce`: write records from lines, JSON, CSV or a generator (Kafka: kafka-console-producer; kcat -P)."""

from __future__ import annotations

import io
import itertools
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import IO, Any, Final

import click

from odradek.commands.completion import complete_topics
from odradek.commands.failures import FAILED, CommandFailure
from odradek.commands.record_clients import imported_client
from odradek.commands.schema_options import RecordWriters, opened, writes_schemas
from odradek.commands.session import CommandSession, connects, fail, usage
from odradek.records.generator import GeneratorError, generated
from odradek.records.inputs import InputError, InputRecord, from_csv, from_json_lines, from_lines

FORMATS: Final = ("text", "json")
INPUTS: Final = ("lines", "json", "csv", "file")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command()
@click.argument("topic", metavar="TOPIC", required=False, shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="[FILE]...")
@click.option(
    "--input",
    "-i",
    "kind",
    type=click.Choice(INPUTS),
    default=INPUTS[0],
    show_default=True,
    help="`json`: lines as `odradek consume --output json` prints them; `file`: each FILE is one record.",
)
@click.option("--key", "-k", metavar="TEXT", help="The key of records that have none.")
@click.option("--key-separator", "-K", metavar="TEXT", help="Between key and value of a line.")
@click.option("--key-column", metavar="NAME", help="With --input csv: the column of the key.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE", help="A header. Can be given again.")
@click.option("--partition", "-p", type=click.IntRange(0), help="[default: by the key, as Java's clients choose it]")
@click.option("--timestamp", type=click.IntRange(0), metavar="MS", help="[default: now]")
@click.option("--tombstone", "-Z", is_flag=True, help="An empty value is null: it deletes its key in compacted topics.")
@click.option("--compression", "-z", type=click.Choice(CODECS), default=CODECS[0], show_default=True)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option(
    "--generate",
    metavar="[TOPIC:]FIELDS",
    help="Generated records: '{id:uuid,amount:float(1,100)}', to TOPIC, or to that of 'orders:{id:uuid}'.",
)
@click.option("--seed", type=int, help="With --generate: the same records each time.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N records a second.")
@click.option("--count", "-n", type=click.IntRange(1), help="End after so many records.")
@writes_schemas
@connects(formats=FORMATS)
def produce(
    session: CommandSession,
    topic: str | None,
    files: tuple[Path, ...],
    generate: str | None,
    rate: float | None,
    count: int | None,
    compression: str,
    acks: str,
    schema_registry: str | None,
    key_schema: str | None,
    value_schema: str | None,
    **options: Any,
) -> None:
    """Write a record for each line of FILE or of standard input, and wait until the brokers have all of them.

    A generator runs until Ctrl-C or --count.
    """
    kafka = imported_client()
    topic, fields = _target(topic, generate)
    records = _records(files, generate=fields, **options)
    config = {
        **session.librdkafka_config(),
        "acks": acks,
        "compression.type": compression,
        "partitioner": "murmur2_random",
        "message.timeout.ms": int(session.timeout_s * 1000),
        "linger.ms": 20,
    }
    session.client.broker_ids()  # ends the command where no broker answers; librdkafka would wait for one
    with opened(session, schema_registry) as schemas:
        writers = RecordWriters(schemas, topic, key_schema, value_schema)
        chosen = _paced(itertools.islice(writers.encode(records), count), rate)
        written, failures = _write(kafka.Producer(config), topic, chosen)
    if session.output == "json":
        session.show({"topic": topic, "records": written, "errors": sorted(set(failures)), **writers.schema_ids})
    else:
        click.echo(f"{written} records to {topic}", err=True)
    if failures:
        raise CommandFailure(f"{len(failures)} records are not written: {failures[0]}", FAILED)


def _write(producer: Any, topic: str, records: Iterator[InputRecord]) -> tuple[int, list[str]]:
    """Write records until the first failure, Ctrl-C or the end: how many are written, and the failures of others.

    Raises CommandFailure for a record that cannot be written.
    """
    failures: list[str] = []
    written = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal written
        if error is None:
            written += 1
        else:
            failures.append(error.str())

    try:
        for record in records:
            _send(producer, topic, record, delivered)
            if failures:
                break
    except KeyboardInterrupt:
        pass
    except InputError as error:
        producer.flush()
        fail(f"{error}; {written} records are written")
    finally:
        producer.flush()
    return written, failures


def _target(topic: str | None, generate: str | None) -> tuple[str, str | None]:
    """The topic, which the text of a generator may have before its fields, and these fields. Raises UsageError."""
    named = None if topic is not None or generate is None else re.fullmatch(r"([^:{]+):(\{.*)", generate, re.DOTALL)
    if named is not None:
        return named[1], named[2]
    if topic is None:
        usage("TOPIC is missing")
    return topic, generate


def _records(
    files: tuple[Path, ...],
    kind: str,
    key: str | None,
    key_separator: str | None,
    key_column: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    timestamp: int | None,
    tombstone: bool,
    generate: str | None,
    seed: int | None,
) -> Iterator[InputRecord]:
    """The records of the input, with what the options add. Raises click.UsageError, InputError."""
    pairs = []
    for text in headers:
        name, equals, value = text.partition("=")
        if not equals:
            usage(f"--header: {text!r} is not NAME=VALUE")
        pairs.append((name, value.encode()))
    if generate is not None:
        if files:
            usage("--generate needs no FILE")
        try:
            source = generated(generate, Random(seed))
        except GeneratorError as error:
            usage(f"--generate: {error}")
    else:
        if kind == "file" and not files:
            usage("--input file needs FILE")
        source = _from_files(files, kind, key_separator, key_column)
    default_key = None if key is None else key.encode()
    for record in source:
        yield InputRecord(
            default_key if record.key is None else record.key,
            None if tombstone and not record.value else record.value,
            (*record.headers, *pairs),
            record.partition if partition is None else partition,
            record.timestamp if timestamp is None else timestamp,
        )


def _from_files(
    files: tuple[Path, ...], kind: str, key_separator: str | None, key_column: str | None
) -> Iterator[InputRecord]:
    if not files:
        yield from _from_stream(sys.stdin.buffer, kind, key_separator, key_column)
    for path in files:
        if kind == "file":
            yield InputRecord(None, path.read_bytes())
            continue
        with path.open("rb") as file:
            yield from _from_stream(file, kind, key_separator, key_column)


def _from_stream(
    file: IO[bytes], kind: str, key_separator: str | None, key_column: str | None
) -> Iterator[InputRecord]:
    if kind == "json":
        return from_json_lines(file)
    if kind == "csv":
        return from_csv(io.TextIOWrapper(file, encoding="utf-8", newline=""), key_column)
    return from_lines(file, key_separator)


def _paced(records: Iterator[InputRecord], rate: float | None) -> Iterator[InputRecord]:
    """The records, no more of them than `rate` a second."""
    began = time.monotonic()
    for number, record in enumerate(records):
        if rate is not None:
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield record


def _send(producer: Any, topic: str, record: InputRecord, delivered: Any) -> None:
    """Give a record to the producer, and wait while its queue is full."""
    options: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
    if record.timestamp is not None:
        options["timestamp"] = record.timestamp
    while True:
        try:
            producer.produce(
                topic, record.value, record.key, headers=list(record.headers), on_delivery=delivered, **options
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return
