"""`odradek consume --format` prints what kcat's -f prints. Needs `kcat` (or `kafkacat`, its old name) on the PATH."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

import pytest
from confluent_kafka import Producer

from odradek.broker_process import BrokerProcess
from odradek.records.consumed import TOKENS
from tests.commands.running import TIMEOUT_S, Running

pytestmark = pytest.mark.slow

KCAT: Final = shutil.which("kcat") or shutil.which("kafkacat")
RECORDS: Final = (
    (b"key", b"value", [("a", b"1"), ("b", b"x,y=z"), ("a", b"2")]),
    (None, None, []),
    (b"", b"", [("empty", b""), ("null", None)]),
    ("ключ".encode(), "значение".encode(), [("имя", "é".encode())]),
    (b"\xff\0k", b"\xfe\n\0v", [("binary", b"\xff\xfe")]),
)
LAYOUT: Final = "|".join(
    (
        *(f"%{token.decode()}" for token in TOKENS),
        "%t-%p@%o %T %K:%k %S:%s [%h]%%",
        r"a\nb\tc\rd\\e\x41\x7f",
        "plain, é",
        "%o%o\\n",
    )
)
"""Of kcat a zero byte ends a format, and a header's value: not of ours."""


def test_a_format_is_that_of_kcat(ours: BrokerProcess) -> None:
    if KCAT is None:
        pytest.skip("no kcat on this machine (install kcat)")
    side, topic = Running(ours.bootstrap), "layouts"
    side.done("topic", "create", topic)
    producer = Producer({"bootstrap.servers": ours.bootstrap})
    for key, value, headers in RECORDS:
        producer.produce(topic, value, key, headers=list(headers))
        assert producer.flush(TIMEOUT_S) == 0
    command = [KCAT, "-b", ours.bootstrap, "-C", "-q", "-e", "-o", "beginning", "-t", topic, "-f", LAYOUT]
    theirs = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True).stdout
    found = side.run("consume", topic, "--exit", "--format", LAYOUT)
    assert (found.exit_code, found.stdout_bytes) == (0, theirs)
    assert theirs.count(b"plain") == len(RECORDS)
