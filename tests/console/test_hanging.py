"""The form for hanging transactions, on Odradek and on Apache Kafka 3.9.2: it ends one, and nothing changes without the
option and without the token of the session.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.commands.hanging import leave_hanging
from tests.commands.running import TIMEOUT_S, Running
from tests.console.refusals import check_refusals, console_of
from tests.console.workspaces import token_of
from tests.support.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

HANGING = "/transactions/hanging"


def test_a_hanging_transaction_is_aborted(bootstrap: str, name: str) -> None:
    running = Running(bootstrap)
    running.done("topic", "create", name)
    leave_hanging(running, name)
    form = {"topic": name, "partition": "0", "start_offset": "0"}

    def stable_end() -> int:
        (row,) = running.data("get-offsets", name, "--read-committed")
        return int(row["latest"])

    with console_of(running.bootstrap, allow_changes=True) as console:
        page = eventually(lambda: console.get(HANGING).text, lambda text: f"{name}-0" in text)
        assert f'name="topic" value="{name}"' in page
        check_refusals(running.bootstrap, console, HANGING, "/transactions/abort", form)
        for wrong, status in (({"start_offset": "1"}, 502), ({"partition": "7"}, 404), ({"start_offset": ""}, 400)):
            answer = console.post("/transactions/abort", data={"csrf": token_of(console, HANGING), **form, **wrong})
            assert answer.status_code == status, (wrong, answer.text)
        assert stable_end() == 0
        done = console.post("/transactions/abort", data={"csrf": token_of(console, HANGING), **form})
        assert (done.url.path, f"The transaction in {name}-0 was aborted." in done.text) == (HANGING, True)
        assert f'name="topic" value="{name}"' not in done.text
    assert stable_end() == 4  # three records and the marker


def test_an_open_transaction_is_none_that_hangs(bootstrap: str, name: str) -> None:
    """Its page offers no abort: its producer or its timeout ends it."""
    Running(bootstrap).done("topic", "create", name)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(name, b"open")
    assert producer.flush(TIMEOUT_S) == 0
    with console_of(bootstrap, allow_changes=True) as console:
        page = console.get("/transaction", params={"id": name}).text
        assert ("Ongoing" in page, f"{name}-0" in page, "/transactions/abort" in page) == (True, True, False)
        assert f"{name}-0" not in console.get(HANGING).text
    producer.commit_transaction(TIMEOUT_S)
