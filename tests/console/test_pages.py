"""Every page and every change on a broker of Odradek and on Apache Kafka 3.9.2."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer
from starlette.testclient import TestClient

from odradek.broker_process import BrokerProcess
from odradek.console.web.application import application
from odradek.console.web.settings import ConsoleSettings
from tests.console.workspaces import token_of
from tests.jvm.kafka import Kafka
from tests.support.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@pytest.fixture(params=["odradek", "kafka"])
def running(request: pytest.FixtureRequest, ours: BrokerProcess, kafka: Kafka) -> BrokerProcess | Kafka:
    return ours if request.param == "odradek" else kafka


@pytest.fixture
def console(running: BrokerProcess | Kafka) -> Iterator[TestClient]:
    data_dirs = (running.data_dir,) if isinstance(running, BrokerProcess) else ()
    settings = ConsoleSettings(running.bootstrap, allow_changes=True, data_dirs=data_dirs, interval_s=0.5)
    with TestClient(application(settings), base_url="http://127.0.0.1:8080") as client:
        yield client


def shown(console: TestClient, path: str) -> str:
    answer = console.get(path)
    assert answer.status_code == 200, (path, answer.text)
    return answer.text


def sent(console: TestClient, path: str, **form: str) -> str:
    """The page after a form was sent."""
    answer = console.post(path, data={"csrf": token_of(console, "/topics/new"), **form})
    assert answer.status_code == 200, (path, answer.text)
    return answer.text


def test_a_topic_lives_from_its_creation_to_its_deletion(console: TestClient, name: str) -> None:
    assert "was created" in sent(
        console, "/topics/new", name=name, partitions="2", replication_factor="1", configs="retention.ms=60000\n"
    )
    assert "1–1 of 1" in shown(console, f"/topics?q={name}")
    refused = console.post("/topics/new", data={"csrf": token_of(console, "/topics/new"), "name": name})
    assert refused.status_code == 400
    assert "TOPIC_ALREADY_EXISTS" in refused.text
    configs = shown(console, f"/topics/{name}/configs")
    assert "retention.ms" in configs
    assert "60000" in configs
    assert "this topic" in configs
    assert "segment.bytes" not in configs
    assert "segment.bytes" in shown(console, f"/topics/{name}/configs?all=on&q=segment")
    assert "retention" in shown(console, f"/topics/{name}/configs/retention.ms").lower()
    assert "is set to 120000" in sent(console, f"/topics/{name}/configs/retention.ms", value="120000")
    assert "INVALID_CONFIG" in sent(console, f"/topics/{name}/configs/retention.ms", value="soon")
    assert "is unset" in sent(console, f"/topics/{name}/configs/retention.ms", unset="on")
    assert "has 3 partitions" in sent(console, f"/topics/{name}/partitions", count="3")
    assert "INVALID_PARTITIONS" in sent(console, f"/topics/{name}/partitions", count="1")
    assert "3 partitions" in shown(console, f"/topics/{name}/delete")
    assert "Type the name" in sent(console, f"/topics/{name}/delete", confirmation="another")
    assert "was deleted" in sent(console, f"/topics/{name}/delete", confirmation=name)
    assert console.get(f"/topics/{name}").status_code == 404


def test_records_are_written_browsed_filtered_and_downloaded(console: TestClient, name: str) -> None:
    sent(console, "/topics/new", name=name, partitions="1", replication_factor="1")
    value = '{"amount": 7, "text": "<b>bold</b>"}'
    page = sent(console, f"/topics/{name}/messages/new", key="k1", value=value, headers="source=shop\n")
    assert "offset 0" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    sent(console, f"/topics/{name}/messages/new", key="k2", tombstone="on")
    listed = shown(console, f"/topics/{name}/messages")
    assert "&#34;amount&#34;: 7" in listed
    assert "tombstone" in listed
    assert "shop" in listed
    found = shown(console, f"/topics/{name}/messages?where={quote('value.amount > 6')}&start=beginning")
    assert "k1" in found
    assert "k2</span>" not in found
    assert "None of 2 records matches" in shown(console, f"/topics/{name}/messages?text=absent")
    older = re.search(r'href="([^"]+)">Older', shown(console, f"/topics/{name}/messages?limit=1&text=k"))
    assert older is not None
    assert "k1" in shown(console, older[1].replace("&amp;", "&"))
    first = shown(console, f"/topics/{name}/messages?start=beginning&limit=1")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    assert "k2" in shown(console, following[1].replace("&amp;", "&"))
    assert "hx-trigger" in shown(console, f"/topics/{name}/messages?tail=on")
    lines = console.get(f"/topics/{name}/messages/download?start=beginning").text.splitlines()
    assert len(lines) == 2
    assert console.get(f"/topics/{name}/messages/0/9").status_code == 404
    refused = console.post(
        f"/topics/{name}/messages/new", data={"csrf": token_of(console, "/topics/new"), "headers": "nonsense"}
    )
    assert refused.status_code == 400


def test_a_group_is_shown_previewed_and_reset(console: TestClient, running: BrokerProcess | Kafka, name: str) -> None:
    group_id = f"{name}/<a b>"
    sent(console, "/topics/new", name=name, partitions="1", replication_factor="1")
    for number in range(5):
        sent(console, f"/topics/{name}/messages/new", value=str(number))
    config = {"bootstrap.servers": running.bootstrap, "group.id": group_id, "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.subscribe([name])
    try:
        assert len(consumer.consume(5, 30)) == 5
        consumer.commit(asynchronous=False)
        eventually(lambda: html.escape(group_id) in shown(console, f"/topics/{name}"))
        page = f"/group?id={quote(group_id, safe='')}"
        assert "Stable" in shown(console, page)
        reset = f"/group/reset?id={quote(group_id, safe='')}"
        assert "has no members" in console.get(f"{reset}&kind=earliest").text
    finally:
        consumer.close()
    eventually(lambda: "Empty" in shown(console, page))
    preview = shown(console, f"{reset}&kind=shift&amount=-2")
    plan = re.search(r'name="plan" value="([^"]+)"', preview)
    assert plan is not None
    text = sent(console, "/group/reset", id=group_id, plan=plan[1].replace("&#34;", '"'))
    assert "1 offsets of" in text
    assert "<dd>2</dd>" in text, "the lag"
    eventually(lambda: html.escape(group_id) in shown(console, f"/groups?q={quote(name)}"))
    eventually(lambda: html.escape(group_id) in shown(console, f"/timeline?q={quote(name)}"))
    assert "was deleted" in sent(console, "/group/delete", id=group_id, confirmation=group_id)


def test_the_other_pages_are_shown(console: TestClient, running: BrokerProcess | Kafka, name: str) -> None:
    eventually(lambda: "Records written" in shown(console, "/"))
    broker = re.search(r'href="/brokers/(\d+)"', shown(console, "/brokers"))
    assert broker is not None
    path = f"/brokers/{broker[1]}"
    assert "Log directories" in shown(console, path)
    assert "log.retention" in shown(console, f"{path}?all=on&q=log.retention")
    sent(console, f"{path}/configs/log.cleaner.threads", value="1")
    eventually(lambda: "this broker, dynamic" in shown(console, f"{path}/configs/log.cleaner.threads"))  # applied late
    sent(console, f"{path}/configs/log.cleaner.threads", unset="on")
    assert console.get(f"{path}/configs/no.such.config").status_code == 404
    assert "ACLs" in shown(console, "/access")
    assert "has a password" in sent(
        console, "/access/users/set", user="console-user", password="secret", mechanism="SCRAM-SHA-256"
    )
    assert "console-user" in shown(console, "/access")
    assert "has no credentials" in sent(console, "/access/users/remove", user="console-user")
    shown(console, "/transactions")
    assert "No transaction hangs" in shown(console, "/transactions/hanging")
    assert console.get("/transaction?id=absent").status_code == 404
    if isinstance(running, BrokerProcess):
        sent(console, "/topics/new", name=name, partitions="1", replication_factor="1")
        sent(console, f"/topics/{name}/messages/new", value="a message")
        log = re.search(r'href="(/logs/0/[^"]+)"', shown(console, f"/logs?q={name}"))
        assert log is not None
        assert "Leader epochs" in shown(console, log[1])
        assert "Batches" in shown(console, f"{log[1]}/0")
        shown(console, f"{log[1]}/0/indexes")
