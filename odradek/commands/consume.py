"""`odradek consume`: print records (Kafka: kafka-console-consumer; kcat -C).

Where to begin and to end comes from the administration client, as offsets; librdkafka then reads from there, outside of
any group, or as a member of the group of --group.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from odradek.admin import offset_reset, offsets
from odradek.commands.completion import complete_groups, complete_topics
from odradek.commands.failures import failure_of
from odradek.commands.get_offsets import partitions_of
from odradek.commands.record_clients import imported_client, record_of
from odradek.commands.schema_options import opened, reader, reads_schemas
from odradek.commands.session import CommandSession, connects, parse_partitions, usage
from odradek.commands.times import duration_ms, timestamp_ms
from odradek.protocol.errors import KafkaError
from odradek.protocol.topic_partition import TopicPartition
from odradek.records.consumed import ConsumedRecord, FormatError, formatter, json_line
from odradek.records.filters import Filter, FilterError, all_of, expression_filter, header_filter, key_filter
from odradek.records.internal import decoder_of

if TYPE_CHECKING:
    import confluent_kafka

    from odradek.admin.client import AdminClient

FORMATS: Final = ("text", "json")
POLL_S: Final = 0.1
Offsets = dict[TopicPartition, int]


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:PARTITION,...]...", shell_complete=complete_topics)
@click.option(
    "--offset", default="beginning", show_default=True, metavar="OFFSET", help="beginning, end, N, or -N from the end."
)
@click.option("--since", metavar="DURATION", help="Begin at the first record since 2h, 1d or PT2H.")
@click.option("--from-time", metavar="TIME", help="Begin at the first record since 2026-01-31T12:00:00 (UTC).")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="The last N records of each partition, and new ones.")
@click.option("--count", "-n", type=click.IntRange(1), help="End after so many records.")
@click.option("--exit", "-e", "until_end", is_flag=True, help="End at the present end of every partition.")
@click.option("--group", metavar="ID", shell_complete=complete_groups, help="Read as a member, and commit offsets.")
@click.option("--format", "-f", "layout", metavar="TEXT", help=r"As kcat's: '%t %p %o %T %k %s\n'.  [default: '%s\n']")
@click.option("--key", "key_pattern", metavar="REGEX", help="Only records whose key contains a match.")
@click.option("--header", "headers", multiple=True, metavar="NAME[=VALUE]", help="Only records with this header.")
@click.option("--where", metavar="CEL", help="Only records for which it is true: 'value.amount > 100.0'.")
@click.option("--raw", is_flag=True, help="Decode nothing: neither Kafka's own topics nor schemas.")
@click.option("--read-uncommitted", is_flag=True, help="Also records of open and aborted transactions.")
@reads_schemas
@connects(formats=FORMATS)
def consume(
    session: CommandSession,
    topics: tuple[str, ...],
    count: int | None,
    until_end: bool,
    group: str | None,
    layout: str | None,
    key_pattern: str | None,
    headers: tuple[str, ...],
    where: str | None,
    raw: bool,
    read_uncommitted: bool,
    schema_registry: str | None,
    decode: str,
    **start: Any,
) -> None:
    """Print records, and wait for new ones until Ctrl-C, --count or --exit.

    Records of `__consumer_offsets` and `__transaction_state` are decoded, and with a schema registry keys and values
    that have the id of a schema.
    """
    kafka = imported_client()
    write = _writer(session.output, layout)
    accepts = _filter(key_pattern, headers, where)
    config = {
        **session.librdkafka_config(),
        "group.id": group or "odradek-consume",
        "enable.auto.commit": group is not None,
        "auto.offset.reset": "latest" if start["offset"] == "end" else "earliest",
        "enable.partition.eof": until_end,
        "isolation.level": "read_uncommitted" if read_uncommitted else "read_committed",
    }
    wanted = parse_partitions(topics)
    places = partitions_of(session.client, topics)  # also reports a topic that does not exist
    consumer = kafka.Consumer(config)
    try:
        if group is None:
            begin = _begin(session.client, places, **start)
            consumer.assign([kafka.TopicPartition(*place, offset) for place, offset in begin.items()])
        else:
            consumer.subscribe(list(wanted))
        with opened(session, schema_registry, wanted=not raw) as schemas:
            read = reader(schemas, decode)
            left = set(places) if until_end else None
            for record in _records(kafka, consumer, left, is_member=group is not None):
                shown = record if raw else read(decoder_of(record.topic)(record))
                if accepts(shown):
                    _print(write(shown))
                    count = None if count is None else count - 1
                    if count == 0:
                        break
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


def _begin(
    client: AdminClient,
    places: list[TopicPartition],
    offset: str,
    since: str | None,
    from_time: str | None,
    tail: int | None,
) -> Offsets:
    """The first offset of each partition. Raises CommandFailure, click.UsageError."""
    if sum(each is not None for each in (since, from_time, tail)) > 1:
        usage("only one of --since, --from-time and --tail")
    if since is not None:
        return _at(client, places, int(time.time() * 1000) - duration_ms(since, "--since"))
    if from_time is not None:
        return _at(client, places, timestamp_ms(from_time, "--from-time"))
    if tail is not None:
        offset = f"-{tail}"
    if offset not in ("beginning", "end") and not offset.removeprefix("-").isdigit():
        usage(f"--offset: {offset!r} is none of beginning, end, N and -N")
    starts = _listed(client, places, offsets.EARLIEST)
    ends = _listed(client, places, offsets.LATEST)
    if offset == "beginning":
        return starts
    if offset == "end":
        return ends
    number = int(offset)
    relative = offset.startswith("-")
    return {
        place: offset_reset.Bounds(starts[place], ends[place]).clip(ends[place] + number if relative else number)
        for place in places
    }


def _listed(client: AdminClient, places: list[TopicPartition], timestamp: int) -> Offsets:
    found = {}
    for place, result in offsets.list_offsets(client, dict.fromkeys(places, timestamp)).items():
        if isinstance(result, KafkaError):
            raise failure_of(result, f"partition {place[0]}-{place[1]}")
        found[place] = result.offset
    return found


def _at(client: AdminClient, places: list[TopicPartition], timestamp: int) -> Offsets:
    found = {}
    for place, result in offset_reset.offsets_at(client, places, timestamp).items():
        if isinstance(result, KafkaError):
            raise failure_of(result, f"partition {place[0]}-{place[1]}")
        found[place] = result
    return found


def _records(
    kafka: Any, consumer: confluent_kafka.Consumer, left: set[TopicPartition] | None, *, is_member: bool
) -> Iterator[ConsumedRecord]:
    """Records as they come; with `left` until each of these partitions is at its end."""
    # Without a group, too, librdkafka looks for the coordinator of its group.id, which the user may not describe.
    ignored = () if is_member else (kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,)
    while left is None or left:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            yield record_of(message)
        elif error.code() == kafka.KafkaError._PARTITION_EOF:
            if left is not None:
                left.discard((message.topic() or "", message.partition() or 0))
        elif not error.retriable() and error.code() not in ignored:
            raise ConnectionError(error.str())


def _writer(output: str, layout: str | None) -> Callable[[ConsumedRecord], bytes]:
    if output == "json":
        if layout is not None:
            usage("--format is for --output text")
        return json_line
    try:
        return formatter(layout if layout is not None else "%s\\n")
    except FormatError as error:
        usage(f"--format: {error}")


def _filter(key_pattern: str | None, headers: tuple[str, ...], where: str | None) -> Filter:
    try:
        filters = [key_filter(key_pattern)] if key_pattern is not None else []
        filters += [header_filter(each) for each in headers]
        filters += [expression_filter(where)] if where is not None else []
    except FilterError as error:
        usage(str(error))
    return all_of(filters)


def _print(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
