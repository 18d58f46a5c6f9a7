"""docs/streams-connectors.md: each program runs, its table is that of the code, and its links have targets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import boto3
import psycopg
import pytest
from moto.server import ThreadedMotoServer

from odradek.broker_process import BrokerProcess
from odradek.streams.connectors.config import CONNECTOR_TABLE
from odradek.streams.connectors.file_formats import ParquetFormat
from odradek.streams.connectors.runner import ConnectorRunner, sink_runner, source_runner
from tests.streams import counting, guide
from tests.streams.connectors.http_server import State, serving
from tests.streams.connectors.stored import offsets_in_folder, offsets_of_objects
from tests.support.eventually import eventually

PAGE: Final = guide.DOCS / "streams-connectors.md"
TEXT: Final = PAGE.read_text()
SCENARIOS: Final = {each.title: each for each in guide.scenarios(TEXT)}
ORDERS: Final = [{"id": number, "item": f"item {number}", "price": 2.5} for number in range(30)]
QUICK: Final = {
    "session.timeout.ms": 30_000,
    "poll.ms": 10,
    "commit.interval.ms": 50,
    "producer.linger.ms": 0,
    "consumer.fetch.wait.max.ms": 20,
}


def test_the_table_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (\S*?) ?\| (.*) \|$", TEXT, re.MULTILINE)
    found = {name: (default.strip("`"), doc.replace("`", "")) for name, default, doc in rows}
    assert found.keys() == {row.name for row in CONNECTOR_TABLE}
    for row in CONNECTOR_TABLE:
        default, doc = found[row.name]
        if row.name != "name":  # whose default is another property, and whose text is longer here
            shown = "" if row.default in (None, ()) else str(row.default).lower()
            assert (default, doc) == (shown, row.doc), row.name


def test_its_links_have_targets() -> None:
    titles = {
        re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in re.findall(r"^##+ (.*)$", TEXT, re.M)
    }
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        file, _, title = target.partition("#")
        assert (guide.DOCS / file).exists() if file else title in titles, target


class Site:
    """What the programs of the page connect to."""

    def __init__(self, bootstrap: str, names: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self._names = {guide.BROKER: bootstrap, **names}

    def runner(self, title: str, piece: int = 0) -> ConnectorRunner:
        """The connector of a program of the page, with a short commit interval."""
        code = SCENARIOS[title].blocks[piece]
        for name, real in self._names.items():
            code = code.replace(name, real)
        names: dict[str, Any] = {"__name__": "docs"}
        exec(compile(code, f"{PAGE.name}, {title}", "exec", dont_inherit=True), names)
        properties = {**names["properties"], **QUICK}
        if "source" in names:
            return source_runner(names["source"], properties)
        return sink_runner(names["sink"], properties)

    def records(self, topic: str) -> list[Any]:
        return [json.loads(value) for _, value in counting.read_all(self.bootstrap, topic) if value is not None]


@pytest.fixture(scope="module")
def server() -> Iterator[State]:
    with serving() as state:
        state.items = ORDERS
        yield state


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def site(
    streams_broker: BrokerProcess,
    postgres: str,
    server: State,
    store: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Site:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    names = {"dbname=shop": postgres, "https://shop.example": server.url, "http://127.0.0.1:9000": store}
    return Site(streams_broker.bootstrap, names)


@pytest.mark.slow
def test_the_programs_run(site: Site, postgres: str, server: State, store: str, tmp_path: Path) -> None:
    """All of them at once, on the records of the first."""
    topics = ("orders", "orders-dead", "orders-changes", "items", "numbers")
    counting.make_topics(site.bootstrap, dict.fromkeys(topics, 1))
    Path("incoming").mkdir()
    Path("incoming", "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in ORDERS))
    client = _client(store)
    client.create_bucket(Bucket="archive")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(re.findall(r"```sql\n(.*?)```", TEXT, re.DOTALL)[0])
        with ExitStack() as stack:
            run = [
                "Read files into a topic",
                "Write a topic into files",
                "Write a topic into PostgreSQL",
                "Read a table into a topic",
                "Read an API into a topic",
                "Post a topic to an API",
                "Write a topic into an object store",
            ]
            runners = [stack.enter_context(site.runner(title)) for title in run]
            runners += [stack.enter_context(site.runner("Write a connector", piece)) for piece in (0, 1)]
            for topic in ("orders", "orders-changes", "items"):
                eventually(lambda name=topic: site.records(name), lambda found: len(found) == len(ORDERS))
            numbers = eventually(lambda: site.records("numbers"), lambda found: len(found) == 200)
            posted = eventually(
                lambda: [each["value"] for _, batch in server.posts for each in batch],
                lambda found: len(found) == len(ORDERS),
            )
        assert [runner.failure for runner in runners] == [None] * len(runners)
        rows = connection.execute("SELECT id, item, price::float FROM orders ORDER BY id").fetchall()
    assert rows == [tuple(each.values()) for each in ORDERS]
    assert site.records("orders") == site.records("items") == posted == ORDERS
    assert [each["id"] for each in site.records("orders-changes")] == [each["id"] for each in ORDERS]
    assert numbers.count(99) == 2
    every = list(range(len(ORDERS)))
    (archived,) = offsets_in_folder(tmp_path / "archive", ParquetFormat()).values()
    listed = [each["Key"] for each in client.list_objects_v2(Bucket="archive")["Contents"]]
    contents = {key: client.get_object(Bucket="archive", Key=key)["Body"].read() for key in listed}
    client.close()
    (stored,) = offsets_of_objects(contents, "kafka/").values()
    # Each transaction ends with a marker, which has an offset.
    assert [len(each) for each in (archived, stored)] == [len(every)] * 2
    assert archived == stored == sorted(set(stored))
    assert site.records("orders-dead") == []


def _client(endpoint: str) -> Any:

    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
