"""Writes the screenshots of docs/console.md: `make screenshots`.

Three brokers of Odradek with a few topics, a producer and a group that falls behind; one broker is killed in the end.
"""

from __future__ import annotations

import io
import json
import random
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer
from PIL import Image

from odradek.admin import topics
from odradek.admin.client import AdminClient
from odradek.cluster_process import ClusterProcess
from odradek.commands.session import parse_bootstrap
from tests.console.chromium import AbsentError, running_chromium
from tests.console.console_process import running_console
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "console"
WRITTEN = ("orders", "payments", "shipments")
QUIET = ("customers", "invoices", "returns")
RECORDS_FOR_PLOTS = 12_000
COLORS = 96
SIZE = {"width": 1180, "height": 760}


def write_orders(bootstrap: str, stopped: threading.Event, count: list[int]) -> None:
    """Write records until the end, in waves."""
    draw = random.Random(7)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
    while not stopped.is_set():
        for _ in range(60 + 50 * (count[0] // 1500 % 3)):
            value = {
                "id": count[0],
                "amount": round(draw.uniform(1, 200), 2),
                "country": draw.choice(["CZ", "DE", "FR"]),
            }
            topic = draw.choices(WRITTEN, (6, 3, 1))[0]
            key = f"customer-{draw.randrange(50)}"
            producer.produce(topic, json.dumps(value).encode(), key.encode(), headers=[("source", b"shop")])
            count[0] += 1
        producer.poll(0)
        stopped.wait(0.15)
    producer.flush(5)


def read_slowly(bootstrap: str, stopped: threading.Event) -> None:
    """Be a group that reads less than is written."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "billing",
            "client.id": "billing-1",
            "log_level": 0,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    while not stopped.is_set():
        consumer.consume(35, 1)
        consumer.commit(asynchronous=True)
        stopped.wait(0.3)
    consumer.close()


def shoot(browser: Browser, address: str, path: str, name: str, scheme: str = "light") -> None:
    """Write one screenshot, with few colors: it is a few tens of kilobytes."""
    context = browser.new_context(base_url=address, viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(path)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(COLORS)
    image.save(FOLDER / f"{name}.png", optimize=True)
    context.close()
    print(f"{name}.png {(FOLDER / f'{name}.png').stat().st_size // 1024} KiB")


def main() -> int:
    """Write all screenshots."""
    FOLDER.mkdir(exist_ok=True)
    stopped, count = threading.Event(), [0]
    with tempfile.TemporaryDirectory() as folder, ClusterProcess(Path(folder), 3) as cluster:
        bootstrap = cluster.bootstrap_servers
        with AdminClient(parse_bootstrap(bootstrap)) as client:
            wanted = [topics.CreatableTopic(name, 6 if name in WRITTEN else 3, 3) for name in (*WRITTEN, *QUIET)]
            topics.create_topics(client, wanted)
        threads = [
            threading.Thread(target=write_orders, args=(bootstrap, stopped, count)),
            threading.Thread(target=read_slowly, args=(bootstrap, stopped)),
        ]
        options = ("--allow-changes", "--data-dir", str(cluster.brokers[1].data_dir))
        try:
            with running_chromium() as browser, running_console(Path(folder), bootstrap, *options) as (address, _):
                for each in threads:
                    each.start()
                eventually(lambda: count[0] > RECORDS_FOR_PLOTS)
                eventually(lambda: b"Group billing falls behind" in urllib.request.urlopen(address).read())
                shoot(browser, address, "/", "overview")
                shoot(browser, address, "/topics/orders/messages", "messages", "dark")
                shoot(browser, address, "/topics/orders/configs/min.insync.replicas", "config")
                shoot(browser, address, "/group?id=billing", "group")
                shoot(browser, address, "/logs/0/orders-0/0", "segment")
                cluster.kill(3)
                eventually(lambda: b"broker has left" in urllib.request.urlopen(f"{address}/timeline").read())
                eventually(lambda: b"the ISR of" in urllib.request.urlopen(f"{address}/timeline").read())
                shoot(browser, address, "/timeline", "timeline")
        except AbsentError as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            stopped.set()
            for each in threads:
                if each.is_alive():
                    each.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
