"""Interactive queries over HTTP: the count of a word, answered by the instance that counts it.

Two instances, in two terminals; they generate sentences:

    python -m odradek.streams.examples.queries_http --http 127.0.0.1:7001
    python -m odradek.streams.examples.queries_http --http 127.0.0.1:7002

    curl http://127.0.0.1:7001/counts/thread
    {"word": "thread", "count": 17, "instance": "127.0.0.1:7002"}
    curl http://127.0.0.1:7001/counts
    {"instance": "127.0.0.1:7001", "counts": {"spool": 18, "star": 12}}
    curl http://127.0.0.1:7001/instances
    ["127.0.0.1:7001", "127.0.0.1:7002"]

Every instance counts the words of its partitions, in a store of its own. `application.server` is the endpoint of an
instance; the assignment of partitions distributes it. An instance that receives a query for a word finds the partition
of the word and the instance that has that partition, and forwards the query if that is another one. While partitions
move there is no answer for a moment: status 503, retry.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from odradek.streams import LONG, STRING, Consumed, Grouped, Materialized, StreamsBuilder, Topology
from odradek.streams.errors import InvalidStateStoreError
from odradek.streams.examples.running import Written, configuration, make_topics, parser, run
from odradek.streams.running.locations import NO_PARTITION
from odradek.streams.runtime import KafkaStreams

SENTENCES: Final = "queries-sentences"
STORE: Final = "word-counts"
TIMEOUT_S: Final = 5.0


def topology() -> Topology:
    """Count words, in a named store; in memory, so that instances on one machine need no separate state directories."""
    builder = StreamsBuilder()
    (
        builder.stream(SENTENCES, Consumed(STRING, STRING))
        .flat_map_values(str.split)
        .group_by(lambda key, word: word, Grouped(STRING, STRING))
        .count(Materialized(STORE, STRING, LONG, store_type="in_memory"))
    )
    return builder.build()


class Answers:
    """The HTTP endpoint of an instance: answers from its own store, forwards other queries."""

    def __init__(self, streams: KafkaStreams) -> None:
        self._streams = streams
        self.here: str = streams.config["application.server"]

    def count(self, word: str) -> dict[str, Any]:
        """The count of one word, from its instance. Raises InvalidStateStoreError, or OSError if that is
        unreachable.
        """
        found = self._streams.query_metadata_for_key(STORE, word, STRING)
        if found is None or found.partition == NO_PARTITION:
            raise InvalidStateStoreError("partitions are moving; retry")
        owner = str(found.active_host)
        if owner != self.here:
            with urllib.request.urlopen(
                f"http://{owner}/counts/{urllib.parse.quote(word)}", timeout=TIMEOUT_S
            ) as answer:
                content: dict[str, Any] = json.load(answer)
                return content
        count = self._streams.store(STORE, "key-value").get(word)
        return {"word": word, "count": count or 0, "instance": self.here}

    def counts(self) -> dict[str, Any]:
        """All counts that are here. Raises InvalidStateStoreError."""
        with self._streams.store(STORE, "key-value").all() as rows:
            return {"instance": self.here, "counts": dict(rows)}

    def instances(self) -> list[str]:
        """The endpoints of all instances."""
        found = self._streams.metadata_for_all_streams_clients()
        return sorted(str(each.host_info) for each in found)

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and body for a path."""
        match [urllib.parse.unquote(part) for part in path.strip("/").split("/")]:
            case ["counts", word]:
                return 200, self.count(word)
            case ["counts"]:
                return 200, self.counts()
            case ["instances"]:
                return 200, self.instances()
        return 404, {"error": "there are /counts, /counts/WORD and /instances"}


def server(address: str, streams: KafkaStreams) -> ThreadingHTTPServer:
    """Serve `address` from now on, in separate threads. Raises OSError."""
    answers = Answers(streams)

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_GET(self) -> None:
            try:
                status, body = answers.answer(self.path)
            except (InvalidStateStoreError, OSError) as error:
                status, body = 503, {"error": str(error)}
            text = json.dumps(body).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Do not log requests."""

    host, _, port = address.rpartition(":")
    made = ThreadingHTTPServer((host, int(port)), Handler)
    threading.Thread(target=made.serve_forever, name="http", daemon=True).start()
    print(f"answers at http://{address}/counts", flush=True)
    return made


def sentences() -> Iterator[Written]:
    """Sentences of few words."""
    chance = random.Random(1)
    words = ["flat", "star", "shaped", "spool", "thread", "old", "broken", "off", "knotted", "tangled"]
    while True:
        yield Written(SENTENCES, None, " ".join(chance.choices(words, k=4)).encode())


def main(arguments: list[str] | None = None) -> int:
    """Run the example."""
    options = parser(__doc__, "queries", rate=10)
    options.add_argument("--http", default="127.0.0.1:7001", metavar="HOST:PORT", help="where to answer: %(default)s")
    chosen = options.parse_args(arguments)
    make_topics(chosen.bootstrap_servers, chosen.partitions, [SENTENCES])
    servers: list[ThreadingHTTPServer] = []
    try:
        return run(
            topology(),
            configuration(chosen, {"application.server": chosen.http}),
            chosen,
            made_up=sentences(),
            while_running=lambda streams: servers.append(server(chosen.http, streams)),
        )
    finally:
        for each in servers:
            each.shutdown()
            each.server_close()


if __name__ == "__main__":
    sys.exit(main())
