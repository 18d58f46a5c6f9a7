"""Connectors with TLS, SCRAM and ACLs: the rights that docs/streams-connectors.md lists are enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.broker_process import BrokerProcess
from odradek.security import Security, allow
from odradek.streams.connectors import FileSink, FileSource, sink_runner, source_runner
from odradek.streams.errors import StreamsError
from tests.streams import counting
from tests.streams.connectors.stored import offsets_in_folder
from tests.support.eventually import eventually

pytestmark = pytest.mark.slow

OFFSETS = "lines-in-connector-offsets"
SECURITY = Security(
    "tls+scram",
    users={"admin": "admin-secret", "source": "source-secret", "sink": "sink-secret"},
    acls=[
        allow("admin", topic="*", cluster=True),
        allow("source", write=["lines", OFFSETS], read=OFFSETS, describe=OFFSETS, create=OFFSETS),
        allow("source", group="connect-lines-in", transactional_id="lines-in-lines-in-*"),
        allow("sink", read="lines", group="connect-lines-out"),
    ],
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("secured"), counting.BROKER, security=SECURITY) as running:
        admin = AdminClient(running.client_config("admin"))
        for future in admin.create_topics([NewTopic("lines", 1, 1), NewTopic("other", 1, 1)]).values():
            future.result(60)
        yield running


def properties(broker: BrokerProcess, user: str, name: str, **more: Any) -> dict[str, Any]:
    return {**broker.client_config(user), "application.id": name, "poll.ms": 10, **more}


def test_lines_go_through_a_secured_broker(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_text("one\ntwo\n")
    source = source_runner(FileSource(tmp_path / "in", "lines"), properties(broker, "source", "lines-in"))
    sink = FileSink(tmp_path / "out")
    target = sink_runner(sink, properties(broker, "sink", "lines-out", topics="lines", **{"commit.interval.ms": 50}))
    with source, target:
        eventually(lambda: offsets_in_folder(tmp_path / "out"), lambda found: found == {("lines", 0): [0, 1]})
    assert (source.failure, target.failure) == (None, None)


def test_a_connector_without_the_rights_ends_with_the_reason(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\n")
    with pytest.raises(StreamsError, match="TOPIC_AUTHORIZATION_FAILED"):
        source_runner(FileSource(tmp_path, "other"), properties(broker, "source", "lines-in")).run(60)
    with pytest.raises(StreamsError, match="GROUP_AUTHORIZATION_FAILED"):
        sink_runner(FileSink(tmp_path / "out"), properties(broker, "sink", "else", topics="lines")).run(60)
