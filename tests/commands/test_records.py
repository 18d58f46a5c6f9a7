"""`odradek produce` and `consume` on Odradek and on Apache Kafka, beside the console tools; their parts alone."""

from __future__ import annotations

import io
import json
import time
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from odradek.admin.properties import librdkafka_properties
from odradek.protocol.client.errors import SecurityConfigError
from odradek.records.consumed import ConsumedRecord, FormatError, as_json, formatter, json_line
from odradek.records.filters import FilterError, all_of, expression_filter, header_filter, key_filter, text_filter
from odradek.records.generator import GeneratorError, generated
from odradek.records.inputs import InputError, InputRecord, from_csv, from_json_lines, from_lines
from tests.commands.running import STOCK, TIMEOUT_S, Running
from tests.jvm.tools import run_tool

HOUR_MS = 3_600_000


def consumed(side: Running, *arguments: str) -> list[dict[str, Any]]:
    lines = side.done("consume", *arguments, "--exit", "--output", "json").splitlines()
    return [json.loads(line) for line in lines]


def stock_consumed(side: Running, topic: str, count: int) -> list[str]:
    printed = [
        part for name in ("partition", "offset", "headers", "key") for part in ("--property", f"print.{name}=true")
    ]
    text = side.stock(
        *("kafka-console-consumer", "--topic", topic, "--from-beginning", *printed),
        *("--max-messages", str(count), "--timeout-ms", "30000"),
    )
    return sorted(text.splitlines())


@pytest.mark.jvm
@pytest.mark.slow
def test_records_are_those_of_the_console_tools(side: Running, name: str, tmp_path: Path) -> None:
    side.done("topic", "create", name, "-p", "2")
    lines = "".join(f"key-{number % 7}:value {number}\n" for number in range(40))
    side.done("produce", name, "--key-separator", ":", "-H", "by=odradek", "-z", "lz4", stdin=lines)
    by_stock = ["--bootstrap-server", side.bootstrap, "--topic", name, "--property", "parse.key=true"]
    stdin = "".join(f"key-{number % 7}\tvalue {number}\n" for number in range(40, 60))
    run_tool(STOCK, "kafka-console-producer", by_stock, stdin=stdin)
    layout = r"Partition:%p\tOffset:%o\t%h\t%k\t%s\n"
    shown = side.done("consume", name, "--exit", "-f", layout.replace("%h", "(%h)")).splitlines()
    # The console consumer has name:value, and NO_HEADERS.
    ours = [line.replace("(by=odradek)", "by:odradek").replace("()", "NO_HEADERS") for line in shown]
    assert sorted(ours) == stock_consumed(side, name, 60)
    found = consumed(side, name)
    places: dict[str, set[int]] = {}
    for record in found:
        places.setdefault(record["key"], set()).add(record["partition"])
    assert {len(partitions) for partitions in places.values()} == {1}, "the key chooses the partition, as in Java"

    copy = tmp_path / "copy.jsonl"
    copy.write_text("".join(json.dumps(record) + "\n" for record in found))
    side.done("topic", "create", f"{name}-copy", "-p", "2")
    side.done("produce", f"{name}-copy", str(copy), "--input", "json")
    kept = ("partition", "offset", "timestamp", "key", "value", "headers")
    copied = consumed(side, f"{name}-copy")
    assert _sorted({key: record[key] for key in kept} for record in copied) == _sorted(
        {key: record[key] for key in kept} for record in found
    )
    side.done("produce", f"{name}-copy", "-k", "key-1", "--tombstone", "-p", "0", stdin="\n")
    (tombstone,) = consumed(side, f"{name}-copy:0", "--offset", "-1")
    assert (tombstone["key"], tombstone["value"]) == ("key-1", None)


def _sorted(records: Any) -> list[dict[str, Any]]:
    return sorted(records, key=lambda record: (record["partition"], record["offset"]))


@pytest.mark.jvm
@pytest.mark.slow
def test_where_a_consumer_begins_and_ends(side: Running, name: str) -> None:
    now_ms = int(time.time() * 1000)
    side.done("topic", "create", name, "-p", "2")
    records = [{"value": str(number), "timestamp": now_ms - (9 - number) * HOUR_MS} for number in range(10)]
    side.done("produce", name, "-p", "0", "--input", "json", stdin="\n".join(map(json.dumps, records)))

    def values(*arguments: str) -> list[int]:
        return [int(record["value"]) for record in consumed(side, name, *arguments)]

    assert values() == list(range(10))
    assert values("--offset", "7") == [7, 8, 9]
    assert values("--offset", "-2") == [8, 9]
    assert values("--offset", "400") == values("--offset", "end") == []
    assert values("--since", "150m") == [7, 8, 9]
    assert values("--from-time", str(now_ms - 5 * HOUR_MS)) == [4, 5, 6, 7, 8, 9]
    assert values("--tail", "3", "--count", "2") == [7, 8]
    assert values("--where", "int(value) % 2 == 1 && offset > 2") == [3, 5, 7, 9]
    assert values("--group", name) == list(range(10))
    (committed,) = side.data("group", "lag", name)
    assert (committed["partition"], committed["committed_offset"]) == (0, 10)
    assert values("--group", name) == []
    assert side.failure("consume", f"{name}-none")[0] == 3
    assert side.failure("consume", name, "--offset", "middle")[0] == 2
    assert side.failure("consume", name, "--since", "1h", "--tail", "1")[0] == 2
    assert side.failure("consume", name, "-f", "%x")[0] == 2

    offsets = consumed(side, "__consumer_offsets", "--where", f"key.contains('\"{name}\"')")
    keys = [json.loads(record["key"]) for record in offsets]
    assert {"type": "1", "data": {"group": name, "topic": name, "partition": 0}} in keys


@pytest.mark.jvm
@pytest.mark.slow
def test_aborted_records_are_not_shown(side: Running, name: str) -> None:
    side.done("topic", "create", name)
    producer = Producer({"bootstrap.servers": side.bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    for value, end in (("kept", producer.commit_transaction), ("aborted", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(name, value.encode())
        producer.flush(TIMEOUT_S)
        end(TIMEOUT_S)
    assert [record["value"] for record in consumed(side, name)] == ["kept"]
    every = consumed(side, name, "--read-uncommitted")
    assert [record["value"] for record in every] == ["kept", "aborted"]


@pytest.mark.jvm
@pytest.mark.slow
def test_generated_records(side: Running, name: str) -> None:
    side.done("topic", "create", name)
    fields = "{key:choice(a,b),id:uuid,amount:float(1,100)}"
    began = time.monotonic()
    report = side.data("produce", name, "--generate", fields, "-n", "20", "--rate", "100", "--seed", "7")
    assert time.monotonic() - began >= 0.19
    assert report == {"topic": name, "records": 20, "errors": []}
    found = consumed(side, name, "--key", "^a$", "--where", "value.amount > 50.0")
    assert found
    assert all(record["key"] == "a" and json.loads(record["value"])["amount"] > 50 for record in found)
    assert side.data("produce", "--generate", f"{name}:{fields}", "-n", "1")["topic"] == name
    assert side.failure("produce", name, "--generate", "{id:nothing}")[0] == 2
    status, text = side.failure("produce", name, "-K", ":", stdin="a:1\nno separator\n")
    assert (status, text) == (1, "odradek: line 2 has no key separator ':'; 1 records are written\n")


def test_without_a_broker_both_end_at_once() -> None:
    side = Running("127.0.0.1:1")
    assert side.failure("produce", "--generate", "{id:uuid}")[0] == 2  # no topic
    for command in ("produce", "consume"):
        status, text = side.failure(command, "orders", stdin="x\n")
        assert (status, text.count("\n")) == (5, 1)


# By themselves

RECORD = ConsumedRecord("t", 3, 42, 1_700_000_000_000, b"k", b"v\xff", (("h", b"1"), ("n", None)))


def test_formats() -> None:
    assert formatter(r"%t/%p/%o %T %K:%k %S:%s\t%h%%\x41\n")(RECORD) == (
        b"t/3/42 1700000000000 1:k 2:v\xff\th=1,n=NULL%A\n"
    )
    empty = RECORD._replace(key=None, value=None, headers=())
    assert formatter("[%k|%K|%s|%S|%R|%h]")(empty) == b"[|-1||-1|\xff\xff\xff\xff|]"
    for wrong in ("%x", r"\q"):
        with pytest.raises(FormatError, match="allowed"):
            formatter(wrong)
    assert as_json(RECORD)["value"] == {"base64": "dv8="}
    (again,) = from_json_lines(io.BytesIO(json_line(RECORD)))
    assert again == InputRecord(b"k", b"v\xff", RECORD.headers, 3, 1_700_000_000_000)


def test_inputs() -> None:
    assert list(from_lines(io.BytesIO(b"a\r\n\nb"), None)) == [InputRecord(None, each) for each in (b"a", b"", b"b")]
    assert list(from_lines(io.BytesIO(b"k::a:b\n"), "::")) == [InputRecord(b"k", b"a:b")]
    lines = io.BytesIO(b'{"value": {"a": 1}, "headers": {"h": "x"}}\n\n{"value": null, "key": 5, "timestamp": 7}\n')
    assert list(from_json_lines(lines)) == [
        InputRecord(None, b'{"a": 1}', (("h", b"x"),)),
        InputRecord(b"5", None, timestamp=7),
    ]
    assert list(from_csv(io.StringIO("id,n\n1,ä\n"), "id")) == [InputRecord(b"1", '{"id": "1", "n": "ä"}'.encode())]
    for text, message in ((b"{", "line 1 is not JSON"), (b"[]", "not an object"), (b'{"key": 1}', "not an object")):
        with pytest.raises(InputError, match=message):
            list(from_json_lines(io.BytesIO(text)))
    with pytest.raises(InputError, match="no column 'x'; the first line has id, n"):
        list(from_csv(io.StringIO("id,n\n"), "x"))


def test_filters() -> None:
    record = RECORD._replace(value=b'{"amount": 7, "tags": ["a"], "user": {"id": 1}}')
    assert key_filter("^k$")(record)
    assert not key_filter("x")(record)
    assert not key_filter("x")(record._replace(key=None))
    assert header_filter("h")(record)
    assert header_filter("h=1")(record)
    assert not header_filter("h=2")(record)
    for text in ('value.amount > 5 && headers.h == "1"', "'a' in value.tags", "value.user.id == 1 && key == 'k'"):
        assert expression_filter(text)(record), text
    for text in ("value.amount > 7", "value.missing == 1", "partition == 4", "value == null"):
        assert not expression_filter(text)(record), text
    assert expression_filter("value == null")(record._replace(value=None))
    assert not all_of([key_filter("k"), header_filter("x")])(record)
    for make, wrong in ((key_filter, "("), (expression_filter, "1 +")):
        with pytest.raises(FilterError):
            make(wrong)


def test_a_text_is_found_in_any_case() -> None:
    record = RECORD._replace(key="Übermut".encode(), value=b"Order")
    for text, is_found in (("oRDER", True), ("übermut", True), ("ÜBERMUT", True), ("(", False), ("ß", False)):
        assert text_filter(text)(record) is is_found, text
        assert not text_filter(text)(record._replace(key=None, value=None))


def test_the_time_of_a_key_filter_is_bounded() -> None:
    """Python's `re` needs more than 2 ** 50 steps for this pattern and key."""
    key = b"a" * 50 + b"!"
    assert not key_filter("(a+)+$")(RECORD._replace(key=key))
    assert key_filter("(a+)+!$")(RECORD._replace(key=key))
    assert key_filter("^[é]$")(RECORD._replace(key="é".encode()))
    assert key_filter("b$")(RECORD._replace(key=b"\xff\0b"))
    with pytest.raises(FilterError, match=r"is not a regular expression of RE2: invalid perl operator: \(\?<="):
        key_filter("(?<=a)b")


def test_the_generator() -> None:
    text = "{key:seq, id:uuid, n:int(3,5), f:float(0,1), b:bool, c:choice(x,y), t:text(4), at:now, in:{a:int(-2,-1)}}"
    first, second = islice(generated(text, Random(1)), 2)
    assert (first.key, second.key) == (b"0", b"1")
    value = json.loads(first.value or b"")
    assert value.keys() == {"id", "n", "f", "b", "c", "t", "at", "in"}
    assert value["n"] in (3, 4, 5)
    assert 0 <= value["f"] <= 1
    assert value["c"] in ("x", "y")
    assert len(value["t"]) == 4
    assert value["in"]["a"] in (-2, -1)
    fixed = "{id:uuid,n:int(1,9)}"
    assert list(islice(generated(fixed, Random(5)), 3)) == list(islice(generated(fixed, Random(5)), 3))
    for wrong in (
        "",
        "{",
        "{a}",
        "{a:b}",
        "{a:int}",
        "{a:int(1)}",
        "{a:int(x,y)}",
        "{a:choice}",
        "{a:seq} x",
        "{a:seq",
    ):
        with pytest.raises(GeneratorError):
            generated(wrong, Random(1))


def test_properties_of_librdkafka() -> None:
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="p";'
    java = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": plain, "acks": "1"}
    assert librdkafka_properties(java) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a",
        "sasl.password": "p",
    }
    assert librdkafka_properties({"acks": "1"}) == {}
    consumer = Consumer({"group.id": "x", **librdkafka_properties(java)})  # librdkafka accepts the names
    consumer.close()
    token = java | {"sasl.jaas.config": plain.replace("PlainLogin", "ScramLogin").replace(";", ' tokenauth="true";')}
    with pytest.raises(SecurityConfigError, match="delegation token"):
        librdkafka_properties(token)
