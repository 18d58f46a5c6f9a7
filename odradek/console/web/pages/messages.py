"""Records of a topic: browse, tail, filter, look at one, write, download."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from odradek.console.messages import STARTS, RecordQuery
from odradek.console.moments import moment_ms
from odradek.console.record_view import LONGEST, record_view
from odradek.console.web.views import BadInputError, Download, Redirect, Shown, ViewRequest
from odradek.protocol.errors import KafkaError
from odradek.records.consumed import ConsumedRecord, json_line

MOST_SHOWN: Final = 200
MOST_DOWNLOADED: Final = 10_000


def browse(request: ViewRequest) -> Shown:
    """A page of records."""
    query = query_of(request)
    with request.client() as client:
        page = request.workspace.browser.browse(client, query)
    positions = ",".join(f"{number}:{offset}" for number, offset in sorted(page.positions.items()))
    topic = request.history.sample.by_name.get(query.topic) if request.history.sample is not None else None
    values = {
        "topic": query.topic,
        "query": query,
        "fields": request.query,
        "starts": STARTS,
        "partitions": len(topic.partitions) if topic is not None else 0,
        "page": page,
        "records": [record_view(each) for each in page.records],
        "failures": list(dict.fromkeys(reason for each in page.records for _, reason in each.failures)),
        "is_tail": "tail" in request.query,
        "older": ",".join(f"{number}:{offset}" for number, offset in sorted(page.older.items())),
        "more": None if page.at_end or (query.start == STARTS[0] and not query.positions) else positions,
        "now_ms": int(time.time() * 1000),
    }
    return Shown("messages.html", values)


def show(request: ViewRequest) -> Shown:
    """One record with all of its content."""
    topic, partition = request.params["topic"], int(request.params["partition"])
    offset = int(request.params["offset"])
    with request.client() as client:
        record = request.workspace.browser.record_at(client, (topic, partition), offset, raw="raw" in request.query)
    view = None if record is None else record_view(record, LONGEST, indented=True)
    values = {"topic": topic, "partition": partition, "offset": offset, "view": view, "is_raw": "raw" in request.query}
    return Shown("record.html", values, 200 if view is not None else 404)


def download(request: ViewRequest) -> Download:
    """Records as JSON lines, which `odradek produce --input json` reads again."""
    query = replace(query_of(request), limit=request.number("limit", MOST_DOWNLOADED) or MOST_DOWNLOADED)
    query = replace(query, limit=min(max(1, query.limit), MOST_DOWNLOADED))
    with request.client() as client:
        records = request.workspace.browser.browse(client, query).records
    return Download(f"{query.topic}.jsonl", "application/x-ndjson", _lines(records))


def new(request: ViewRequest) -> Shown:
    """The form for a record; with an offset it has the content of that record."""
    return Shown("produce.html", {"topic": request.params["topic"], "form": request.query, "error": ""})


def produce(request: ViewRequest) -> Redirect | Shown:
    """Write a record."""
    topic, form = request.params["topic"], request.form
    try:
        headers = _headers(form.get("headers", ""))
        partition = request.number("partition")
        key = None if not form.get("key") else form["key"].encode()
        value = None if "tombstone" in form else form.get("value", "").replace("\r\n", "\n").encode()
        place, offset = request.workspace.browser.write(topic, partition, key, value, headers)
    except (BadInputError, KafkaError) as error:
        return Shown("produce.html", {"topic": topic, "form": form, "error": str(error)}, 400)
    number = place.rpartition("-")[2]
    return Redirect(f"/topics/{topic}/messages/{number}/{offset}", f"The record is at offset {offset} of {place}.")


def query_of(request: ViewRequest) -> RecordQuery:
    """The records that the query of a page asks for. Raises BadInputError, MomentError."""
    fields = request.query
    start = fields.get("start", STARTS[0])
    if start not in STARTS:
        raise BadInputError(f"start: {start!r} is none of {', '.join(STARTS)}")
    if start == STARTS[0]:  # an offset or a time that is filled in is meant
        start = next((name for name in ("offset", "time") if fields.get(name, "").strip()), start)
    amount = 0
    if start == "offset":
        amount = request.number("offset", 0) or 0
    elif start == "time":
        amount = moment_ms(fields.get("time", "").strip() or "1h", int(time.time() * 1000))
    return RecordQuery(
        request.params["topic"],
        request.number("partition"),
        start,
        amount,
        min(max(1, request.number("limit", 50) or 50), MOST_SHOWN),
        fields.get("text", "").strip(),
        fields.get("key", "").strip(),
        fields.get("header", "").strip(),
        fields.get("where", "").strip(),
        "uncommitted" not in fields,
        "raw" in fields,
        _positions("from", fields.get("from", "")),
        _positions("before", fields.get("before", "")),
    )


def _positions(name: str, text: str) -> dict[int, int]:
    """The offset of each partition: 0:12,1:7."""
    try:
        pairs = [each.split(":") for each in text.split(",") if each]
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise BadInputError(f"{name}: {text!r} is not PARTITION:OFFSET,…") from None


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    """Lines NAME=VALUE. Raises BadInputError."""
    found: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise BadInputError(f"headers: {line.strip()!r} is not NAME=VALUE")
            found.append((name.strip(), value.encode()))
    return found


def _lines(records: tuple[ConsumedRecord, ...]) -> Iterator[bytes]:
    for record in records:
        yield json_line(record)
