"""Money between accounts, exactly once: no crash of any process creates or loses money.

One command; the example generates deposits and transfers. Kill it (`kill -9`) as often as you like and start it again:

    python -m odradek.streams.examples.transfer --seconds 20
    transfer: RUNNING
    audit: 5 accounts, 500 deposited, 487 in accounts, 13 on their way
    audit: 5 accounts, 500 deposited, 500 in accounts, 0 on their way
    python -m odradek.streams.examples.transfer --audit

A transfer changes two accounts, which may be in different partitions, so that different tasks have them. The task of
the payer debits its account, if the balance suffices, and writes a credit for the payee to transfer-credits, which the
application reads, too; the task of the payee adds it. In between the money is on its way, in that topic. With
processing.guarantee=exactly_once_v2 each step (the input, the account in its store, the changelog, the credit, the line
in transfer-entries) is in one transaction: either all of it happens, or nothing.

`--audit` reads transfer-entries as any reader with isolation.level=read_committed may, and checks that every entry
follows from the one before, that each transfer was debited once and credited at most once, and that the sums agree.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from odradek.streams import JSON, LONG, STRING, Processor, ProcessorContext, Record, Topology, key_value_store
from odradek.streams.examples.running import Written, configuration, make_topics, parser, run

ORDERS: Final = "transfer-orders"
CREDITS: Final = "transfer-credits"
ENTRIES: Final = "transfer-entries"
CONFIG: Final = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 100}
AUDIT_EVERY_S: Final = 3.0


class Accounts(Processor):
    """Keeps the accounts of one partition.

    Orders are {"deposit": 100} or {"to": "bob", "amount": 5}, with the account as their key; credits are
    {"credit": 5, "cause": …}. An entry is {"change": -5, "balance": 95, "cause": …}.
    """

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.accounts = context.state_store("accounts")

    def process(self, record: Record) -> None:
        order, source = record.value, self.context.record_metadata
        assert source is not None
        cause = order.get("cause", f"{source.topic}-{source.partition}@{source.offset}")
        if "to" not in order:
            self.enter(record, order.get("deposit", 0) + order.get("credit", 0), cause)
        elif self.enter(record, -order["amount"], cause):
            credit = {"credit": order["amount"], "cause": cause}
            self.context.forward(record.with_key(order["to"]).with_value(credit), "credits")

    def enter(self, record: Record, change: int, cause: str) -> bool:
        """Change an account. Returns whether the change is allowed: no account goes below zero."""
        balance = (self.accounts.get(record.key) or 0) + change
        if balance < 0:
            return False
        self.accounts.put(record.key, balance)
        entry = {"change": change, "balance": balance, "cause": cause}
        self.context.forward(record.with_value(entry), "entries")
        return True


def topology() -> Topology:
    """The topology, which reads orders and its own credits."""
    return (
        Topology()
        .add_source("orders", (ORDERS, CREDITS), key=STRING, value=JSON)
        .add_processor("ledger", Accounts, "orders")
        .add_state_store(key_value_store("accounts", STRING, LONG), "ledger")
        .add_sink("credits", CREDITS, "ledger", key=STRING, value=JSON)
        .add_sink("entries", ENTRIES, "ledger", key=STRING, value=JSON)
    )


# ---- the audit


class Audit(NamedTuple):
    """The sums of all entries."""

    accounts: int
    deposited: int
    held: int
    on_their_way: int

    def __str__(self) -> str:
        return (
            f"{self.accounts} accounts, {self.deposited} deposited, {self.held} in accounts, "
            f"{self.on_their_way} on their way"
        )


def audit(entries: Iterable[tuple[str, dict[str, Any]]]) -> Audit:
    """Check entries, those of each account in their order. Raises ValueError where money was created or lost."""
    balances: dict[str, int] = {}
    debits: dict[str, int] = {}
    credits: dict[str, int] = {}
    deposited = 0
    for account, entry in entries:
        change, cause = entry["change"], entry["cause"]
        if balances.get(account, 0) + change != entry["balance"]:
            raise ValueError(f"{account} had {balances.get(account, 0)}; after {change} it has {entry['balance']}")
        balances[account] = entry["balance"]
        booked = debits if change < 0 else credits
        if cause in booked:
            raise ValueError(f"{cause} was entered twice, the second time for {account}")
        booked[cause] = change
    for cause, amount in credits.items():
        if cause not in debits:
            deposited += amount
        elif debits[cause] != -amount:
            raise ValueError(f"{cause} took {-debits[cause]} and gave {amount}")
    held = sum(balances.values())
    return Audit(len(balances), deposited, held, deposited - held)


def committed_entries(bootstrap: str) -> list[tuple[str, dict[str, Any]]]:
    """The committed records of transfer-entries."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "transfer-audit",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[tuple[str, dict[str, Any]]] = []
    try:
        open_ends = set(consumer.list_topics(ENTRIES, timeout=30).topics[ENTRIES].partitions)
        consumer.assign([TopicPartition(ENTRIES, partition, OFFSET_BEGINNING) for partition in open_ends])
        deadline = time.monotonic() + 60
        while open_ends and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.1):
                error, key, value = message.error(), message.key(), message.value()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition() or 0)
                elif error is None and key is not None and value is not None:
                    found.append((STRING.deserialize(key), json.loads(value)))
    finally:
        consumer.close()
    return found


class Auditor:
    """Audits every few seconds, while the application runs."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="audit", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(AUDIT_EVERY_S):
            report(self._bootstrap)


def report(bootstrap: str) -> int:
    """Print the result of the audit. Returns the exit status."""
    try:
        print(f"audit: {audit(committed_entries(bootstrap))}", flush=True)
    except ValueError as wrong:
        print(f"audit: WRONG: {wrong}", flush=True)
        return 1
    return 0


def orders(accounts: int = 5, each: int = 100) -> Iterator[Written]:
    """A deposit for every account, and then transfers, some above the balance."""
    names = [f"account-{number}" for number in range(1, accounts + 1)]
    for name in names:
        yield _order(name, {"deposit": each})
    chance = random.Random()
    while True:
        payer, payee = chance.sample(names, 2)
        yield _order(payer, {"to": payee, "amount": chance.randrange(1, each // 4)})


def _order(account: str, order: dict[str, Any]) -> Written:
    return Written(ORDERS, account.encode(), json.dumps(order).encode())


def main(arguments: list[str] | None = None) -> int:
    """Run the example."""
    options = parser(__doc__, "transfer", rate=10)
    options.add_argument("--audit", action="store_true", help="only audit what there is")
    chosen = options.parse_args(arguments)
    bootstrap = chosen.bootstrap_servers
    make_topics(bootstrap, chosen.partitions, [ORDERS, CREDITS, ENTRIES])
    if chosen.audit:
        return report(bootstrap)
    auditor = Auditor(bootstrap)
    try:
        status = run(
            topology(),
            configuration(chosen, CONFIG),
            chosen,
            made_up=orders(),
            while_running=lambda streams: auditor.start(),
        )
    finally:
        auditor.close()
    return report(bootstrap) or status


if __name__ == "__main__":
    sys.exit(main())
