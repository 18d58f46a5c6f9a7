"""`odradek transaction`: list, describe, producers, hanging, abort (Kafka: kafka-transactions)."""

from __future__ import annotations

import time
from typing import Any, Final

import click

from odradek.admin import transactions
from odradek.commands.completion import complete_topics
from odradek.commands.failures import NOT_FOUND, failure_of
from odradek.commands.get_offsets import partitions_of
from odradek.commands.output import Column, TextTable, time_text
from odradek.commands.session import CommandSession, connects, fail, usage, yes_option
from odradek.commands.times import duration_ms
from odradek.protocol.errors import KafkaError

_LIST: Final = (
    Column("TRANSACTIONAL ID", "transactional_id"),
    Column("COORDINATOR", "coordinator"),
    Column("PRODUCER ID", "producer_id"),
    Column("STATE", "state"),
)
_DESCRIBED: Final = (
    *_LIST,
    Column("EPOCH", "producer_epoch"),
    Column("TIMEOUT MS", "timeout_ms"),
    Column("STARTED", "start_ms", shown=time_text),
    Column("PARTITIONS", "partitions", shown=lambda value: _places_text(value)),
)
_PRODUCERS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("PRODUCER ID", "producer_id"),
    Column("EPOCH", "producer_epoch"),
    Column("COORDINATOR EPOCH", "coordinator_epoch"),
    Column("LAST SEQUENCE", "last_sequence"),
    Column("LAST TIME", "last_timestamp_ms", shown=time_text),
    Column("START OFFSET", "start_offset"),
)


@click.group()
def transaction() -> None:
    """List, describe and abort transactions, and find those that no coordinator will end."""


@transaction.command("list")
@click.option("--state", "states", multiple=True, help="Ongoing, PrepareCommit, … Can be given again.")
@click.option("--producer-id", "producer_ids", type=int, multiple=True, help="Can be given again.")
@click.option("--longer-than", metavar="DURATION", help="Only transactions that began 30s, 5m or PT5M ago, or before.")
@connects
def list_transactions(
    session: CommandSession, states: tuple[str, ...], producer_ids: tuple[int, ...], longer_than: str | None
) -> None:
    """List transactional ids with their states."""
    duration = transactions.NONE if longer_than is None else duration_ms(longer_than, "--longer-than")
    found = transactions.list_transactions(session.client, states, producer_ids, duration)
    rows = [each._asdict() for each in found]
    session.show(rows, TextTable(_LIST, rows))


@transaction.command()
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@connects
def describe(session: CommandSession, transactional_ids: tuple[str, ...]) -> None:
    """Show state, producer, start and partitions of transactional ids."""
    results = transactions.describe_transactions(session.client, dict.fromkeys(transactional_ids))
    rows = [_row(each) for each in session.succeeded(results, "transactional id").values()]
    session.show(rows, TextTable(_DESCRIBED, rows))
    session.end(results)


@transaction.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[:PARTITION,...]...", shell_complete=complete_topics)
@click.option("--broker", "broker_id", type=click.IntRange(0), help="Of this replica, in place of the leader.")
@connects
def producers(session: CommandSession, topics: tuple[str, ...], broker_id: int | None) -> None:
    """Show the producers that partitions remember."""
    places = partitions_of(session.client, topics)
    results = transactions.describe_producers(session.client, places, broker_id)
    found = session.succeeded(results, "partition")
    rows = [_producer(*place, state) for place, states in sorted(found.items()) for state in sorted(states)]
    session.show(rows, TextTable(_PRODUCERS, rows))
    session.end(results)


@transaction.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC[:PARTITION,...]]...", shell_complete=complete_topics)
@click.option("--broker", "broker_id", type=click.IntRange(0), help="Only partitions with a replica on this broker.")
@click.option(
    "--max-transaction-timeout",
    metavar="DURATION",
    default="15m",
    show_default=True,
    help="transaction.max.timeout.ms of the brokers. A transaction hangs from five minutes after it on.",
)
@connects
def hanging(
    session: CommandSession, topics: tuple[str, ...], broker_id: int | None, max_transaction_timeout: str
) -> None:
    """Find transactions that no coordinator will end: they hold back consumers with read_committed."""
    client = session.client
    places = partitions_of(client, topics)
    if broker_id is not None:
        from odradek.admin.topics import list_topics

        there = {
            (part.topic, part.partition)
            for each in list_topics(client)
            for part in each.partitions
            if broker_id in part.replicas
        }
        places = [place for place in places if place in there]
    longest_ms = duration_ms(max_transaction_timeout, "--max-transaction-timeout") + transactions.SAFETY_MS
    now_ms = int(time.time() * 1000)
    found, errors = transactions.find_hanging(client, places, now_ms=now_ms, longest_timeout_ms=longest_ms)
    rows = [_producer(*each) for each in sorted(found)]
    session.show(rows, TextTable(_PRODUCERS, rows))
    session.succeeded(errors, "partition")
    session.end(errors)


@transaction.command()
@click.argument("place", metavar="TOPIC:PARTITION", shell_complete=complete_topics)
@click.option("--start-offset", type=click.IntRange(0), help="Where the transaction begins, as `hanging` shows it.")
@click.option("--producer-id", type=int, help="In place of --start-offset: its producer.")
@yes_option
@connects
def abort(session: CommandSession, place: str, start_offset: int | None, producer_id: int | None, yes: bool) -> None:
    """Write an abort marker into one partition, for a transaction that hangs.

    The coordinator of the producer is not notified: a transaction that does not hang loses its records in this
    partition alone.
    """
    if (start_offset is None) == (producer_id is None):
        usage("which transaction: --start-offset or --producer-id is required, and only one")
    client, where = session.client, partitions_of(session.client, (place,))
    if len(where) != 1:
        usage(f"{place!r} is not TOPIC:PARTITION")
    described = transactions.describe_producers(client, where)[where[0]]
    if isinstance(described, KafkaError):
        raise failure_of(described, f"partition {where[0][0]}-{where[0][1]}")
    found = [
        each
        for each in described
        if each.start_offset != transactions.NONE
        and (each.start_offset == start_offset or each.producer_id == producer_id)
    ]
    if not found:
        fail(f"partition {where[0][0]}-{where[0][1]} has no open transaction like that", NOT_FOUND)
    (producer,) = found
    plan = f"abort the transaction of producer {producer.producer_id} (epoch {producer.producer_epoch}) in "
    plan += f"{where[0][0]}-{where[0][1]} from offset {producer.start_offset}"
    session.confirm([plan], yes=yes, question="Abort?")
    epoch = max(producer.coordinator_epoch, 0)  # -1 before the first marker, which brokers reject
    transactions.abort_transaction(client, where[0], producer.producer_id, producer.producer_epoch, epoch)
    row = _producer(*where[0], producer)
    session.show([row], TextTable(_PRODUCERS, [row], "Aborted:"))


def _places_text(places: list[dict[str, Any]]) -> str:
    return ",".join(f"{place['topic']}-{place['partition']}" for place in places) or "-"


def _row(each: transactions.TransactionDescription) -> dict[str, Any]:
    partitions = [{"topic": topic, "partition": number} for topic, number in each.partitions]
    return {
        **each._asdict(),
        "start_ms": None if each.start_ms == transactions.NONE else each.start_ms,
        "partitions": partitions,
    }


def _producer(topic: str, partition: int, state: transactions.ProducerDescription) -> dict[str, Any]:
    start = None if state.start_offset == transactions.NONE else state.start_offset
    return {"topic": topic, "partition": partition, **state._asdict(), "start_offset": start}
