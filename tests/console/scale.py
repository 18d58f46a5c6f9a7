"""How fast the console's lists are, and how much memory it takes, on a large cluster: `python -m tests.console.scale`.

Three brokers of Odradek get 2,000 topics with 20,000 partitions and 500 groups, each with committed offsets. For each
page the program prints the median and the longest time until the server's answer is complete, and the median of the
first paint in Chromium.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import Producer

from odradek.admin import group_offsets, topics
from odradek.admin.client import AdminClient
from odradek.cluster_process import ClusterProcess
from odradek.commands.session import parse_bootstrap
from odradek.protocol.errors import KafkaError
from tests.console.chromium import AbsentError, running_chromium
from tests.console.console_process import running_console
from tests.support.eventually import eventually

AT_ONCE = 50
"""Topics in one request."""
FETCHES = 9
PAGES = (
    "/",
    "/topics",
    "/topics?q=topic-1&sort=-rate&page=3",
    "/groups",
    "/groups?q=group-4&sort=-lag",
    "/transactions",
    "/brokers",
    "/access",
    "/timeline",
    "/topics/topic-0007",
    "/topics/topic-0007/messages",
    "/topics/topic-0007/messages?text=99",
    "/topics/topic-0007/messages?text=none",
)
READ = "topic-0007"
RECORDS = 20_000
"""Of that topic; its page of messages reads the newest, a search backwards until it has enough: none of all."""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def fill(bootstrap: str, client: AdminClient, topic_count: int, partitions: int, group_count: int) -> None:
    """Create the topics and the groups, and write records to one topic."""
    names = [f"topic-{number:04}" for number in range(topic_count)]
    for start in range(0, topic_count, AT_ONCE):
        wanted = [topics.CreatableTopic(name, partitions, 1) for name in names[start : start + AT_ONCE]]
        _check(topics.create_topics(client, wanted))
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(READ, b'{"number": %d, "text": "%s"}' % (number, b"x" * 200))
        producer.poll(0)
    producer.flush()
    for number in range(group_count):
        places = {(names[(7 * number + each) % topic_count], each % partitions): 0 for each in range(20)}
        _check(group_offsets.alter_offsets(client, f"group-{number:03}", places))


def _check(results: dict[Any, Any]) -> None:
    for item, result in results.items():
        if isinstance(result, KafkaError):
            raise SystemExit(f"{item}: {result}")


def answer_ms(address: str, path: str) -> tuple[float, float]:
    """The median and the longest time of an answer on a connection that is open, in milliseconds."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    times, cookie = [], ""
    for _ in range(FETCHES):
        begin_s = time.perf_counter()
        connection.request("GET", path, headers={"Cookie": cookie})
        answer = connection.getresponse()
        answer.read()
        times.append((time.perf_counter() - begin_s) * 1000)
        assert answer.status == 200, (path, answer.status)
        cookie = (answer.getheader("Set-Cookie") or cookie).partition(";")[0]
    connection.close()
    return statistics.median(times), max(times)


def paint_ms(address: str, paths: Sequence[str]) -> dict[str, float | None]:
    """The first contentful paint of each page in Chromium, the median of five; nothing where there is none."""
    try:
        with running_chromium() as browser:
            page = browser.new_context(base_url=address).new_page()
            found = {}
            for path in paths:
                paints = []
                for _ in range(5):
                    page.goto(path)
                    paints.append(eventually(lambda: page.evaluate(PAINT), lambda value: value is not None))
                found[path] = statistics.median(paints)
            return found
    except AbsentError as error:
        print(f"no first paint: {error}", file=sys.stderr)
        return dict.fromkeys(paths)


def memory_mb(pid: int, field: str) -> float:
    """VmRSS or VmHWM of a process, in 10^6 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise AssertionError(field)


def measure(bootstrap: str, folder: Path, topic_count: int, group_count: int) -> None:
    """Print the table."""
    with running_console(folder, bootstrap) as (address, pid):
        before_s = time.monotonic()

        def is_sampled() -> bool:
            connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
            connection.request("GET", f"/topics?q=topic-{topic_count - 1:04}")
            text = connection.getresponse().read().decode()
            connection.close()
            return "1–1 of 1" in text

        eventually(is_sampled)
        print(f"first sample after {time.monotonic() - before_s:.1f} s; load {os.getloadavg()[0]:.1f}")
        times = {path: answer_ms(address, path) for path in PAGES}
        paints = paint_ms(address, PAGES)
        for path in PAGES:
            paint = "-" if paints[path] is None else f"{paints[path]:.0f}"
            median, longest = times[path]
            print(f"{path:<36} answer {median:5.0f} ms, at most {longest:5.0f} ms   first paint {paint:>4} ms")
        print(f"memory {memory_mb(pid, 'VmRSS'):.0f} MB, at most {memory_mb(pid, 'VmHWM'):.0f} MB")


def main(arguments: Sequence[str]) -> int:
    """Fill a cluster and measure the console on it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--partitions", type=int, default=10, help="of each topic")
    parser.add_argument("--groups", type=int, default=500)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        overrides = {"offsets.topic.num.partitions": "10", "offsets.topic.replication.factor": "1"}
        with ClusterProcess(Path(folder), 3, overrides) as cluster:
            bootstrap = cluster.bootstrap_servers
            with AdminClient(parse_bootstrap(bootstrap), timeout_s=120) as client:
                fill(bootstrap, client, chosen.topics, chosen.partitions, chosen.groups)
            print(f"{chosen.topics} topics, {chosen.topics * chosen.partitions} partitions, {chosen.groups} groups")
            measure(bootstrap, Path(folder), chosen.topics, chosen.groups)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
