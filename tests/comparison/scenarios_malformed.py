"""Scenarios of malformed requests: every field of every request, headers, frames, unknown APIs."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

from odradek.protocol.framing import frame, request_header
from tests.comparison.malformed import shapes, sound, spoiled
from tests.comparison.requests import name_of
from tests.comparison.side import Side

AT_ONCE = 32
"""Connections at the same time."""


async def _all(s: Side, jobs: list[tuple[str, int, int, bytes]]) -> None:
    """Send each over a connection of its own, several at once; they are recorded in their order."""
    for start in range(0, len(jobs), AT_ONCE):
        part = jobs[start : start + AT_ONCE]
        answers = await asyncio.gather(*(s.exchange(key, version, body) for _, key, version, body in part))
        for (notified, key, version, _), data in zip(part, answers, strict=True):
            s.note_bytes(notified, key, version, data)


async def samples(s: Side) -> None:
    """A request with a value in every field, also in unknown tagged fields."""
    for key, (low, high) in s.versions.items():
        for version in range(low, high + 1):
            body = sound(name_of(key), version)
            s.note_bytes("a sample", key, version, await s.exchange(key, version, body))


async def spoiled_fields(s: Side) -> None:
    """One malformed field after the other, in every shape that the requests of every API have had."""
    for key, (low, high) in s.versions.items():
        jobs = []
        for version in shapes(name_of(key), low, high):
            jobs += [(notified, key, version, body) for notified, body in spoiled(name_of(key), version)]
        await _all(s, jobs)


async def headers(s: Side) -> None:
    """Malformed headers and frames."""
    versions = sound("ApiVersions", 3)
    head = request_header(18, 3, 1, "teller")
    cases: dict[str, bytes] = {
        "an empty frame": frame(b""),
        "one byte": frame(b"\0"),
        "half a header": frame(head[:6]),
        "a client id beyond the end": frame(struct.pack(">hhih", 18, 3, 1, 500) + b"x"),
        "a client id of length -2": frame(struct.pack(">hhih", 18, 3, 1, -2) + b"\0" + versions),
        "no client id": frame(struct.pack(">hhih", 18, 3, 1, -1) + b"\0" + versions),
        "a client id that is not UTF-8": frame(struct.pack(">hhih", 18, 3, 1, 2) + b"\xff\xfe\0" + versions),
        "unknown tags": frame(struct.pack(">hhih", 18, 3, 1, -1) + b"\1\5\2??" + versions),
        "tags beyond the end": frame(struct.pack(">hhih", 18, 3, 1, -1) + b"\1\5\x7f??"),
        "many tags announced": frame(struct.pack(">hhih", 18, 3, 1, -1) + b"\xff\xff\xff\xff\x07"),
        "no tags in the header": frame(struct.pack(">hhih", 18, 3, 1, -1)),
        "a negative correlation id": frame(request_header(18, 3, -5, "teller"), versions),
        "a negative size": struct.pack(">i", -1),
        "the lowest size": struct.pack(">i", -(2**31)),
        "an absurd size": struct.pack(">i", 2**31 - 1) + b"x",
        "more than the limit": struct.pack(">i", 100 * 1024 * 1024 + 1) + b"x",
        "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    }
    for notified, data in cases.items():
        await s.raw_frame(notified, data)
    for key, (low, high) in s.versions.items():
        for version in (low - 1, high + 50, 32767, -32768):
            head = struct.pack(">hhih", key, version, 1, -1)
            await s.raw("a version that there is not", key, version, b"\0" * 8, head)
    for key in (52, 53, 54, 59, 62, 63, 70, 82, 99, 1000, 32767, -1, -32768):
        for version in (0, 1, -1):
            await s.raw("an API that there is not", key, version, b"\0" * 8, struct.pack(">hhih", key, version, 1, -1))


MALFORMED: tuple[Callable[[Side], Awaitable[None]], ...] = (samples, spoiled_fields, headers)
