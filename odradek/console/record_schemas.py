"""Keys and values with schemas in a schema registry, decoded for the pages of the console.

All users share one object: a schema is requested once. A record that cannot be decoded keeps its bytes, with the
reason, so that no page depends on the registry. One request to the console waits for new schemas for `LOOKUPS_S`, and
an error of the registry holds for `RETRY_S`: a topic of arbitrary bytes may name thousands of schema ids.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from odradek.records.consumed import ConsumedRecord, Decoded
from odradek.records.schemas.errors import SchemaError, SchemaRegistryUnreachableError

if TYPE_CHECKING:
    from odradek.records.schemas.coded import Codec
    from odradek.records.schemas.registered import RegisteredSchemas

LOOKUPS_S: Final = 3.0
RETRY_S: Final = 10.0
MOST_FAILURES: Final = 10_000
"""Schema ids whose error is kept."""
CLIENT_DEFAULTS: Final[Mapping[str, float]] = {"timeout": 2.0, "max.retries": 0}
"""Properties of the client of the registry, for what the user leaves out: a page must not wait for long."""
_ALL: Final = -1
"""In place of a schema id: the registry does not answer."""


class RecordSchemas:
    """The schemas of a registry with their codecs. Any thread may use it."""

    def __init__(self, schemas: RegisteredSchemas, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is in seconds."""
        self._schemas = schemas
        self._clock = clock
        self._lock = threading.Lock()
        self._codecs: dict[int, Codec] = {}
        self._failures: dict[int, tuple[float, str]] = {}
        """Until when an error holds, by schema id."""

    def close(self) -> None:
        """Close the connections to the registry."""
        self._schemas.close()

    def decoder(self) -> Callable[[ConsumedRecord], ConsumedRecord]:
        """What decodes the records of one request to the console. It raises nothing."""
        request = _Request(self._codec)
        return request.decoded

    def _codec(self, schema_id: int, is_late: bool) -> Codec | str:
        """The codec of a schema, or why there is none; no request is sent where it is late. Raises nothing."""
        found = self._codecs.get(schema_id)
        if found is not None:
            return found
        with self._lock:
            if schema_id in self._codecs:
                return self._codecs[schema_id]
            for each in (_ALL, schema_id):
                until_s, reason = self._failures.get(each, (0.0, ""))
                if self._clock() < until_s:
                    return reason
            if is_late:
                return f"schema id {schema_id} is one of too many new ones; load the page again"
            return self._requested(schema_id)

    def _requested(self, schema_id: int) -> Codec | str:
        from odradek.records.schemas.coded import codec_of

        try:
            self._codecs[schema_id] = codec = codec_of(self._schemas.by_id(schema_id))
        except SchemaError as error:
            if len(self._failures) >= MOST_FAILURES:
                self._failures.clear()
            about = _ALL if isinstance(error, SchemaRegistryUnreachableError) else schema_id
            self._failures[about] = (self._clock() + RETRY_S, str(error))
            return str(error)
        return codec


class _Request:
    """The decoder of one request to the console, with the time that it has waited for schemas."""

    def __init__(self, codec: Callable[[int, bool], Codec | str]) -> None:
        self._codec = codec
        self._known: dict[int, Codec | str] = {}
        self._waited_s = 0.0

    def decoded(self, record: ConsumedRecord) -> ConsumedRecord:
        key, value = self._part(record.key), self._part(record.value)
        if isinstance(key, tuple):
            record = record._replace(key=key[1], decoded_key=key[0])
        if isinstance(value, tuple):
            record = record._replace(value=value[1], decoded_value=value[0])
        failures = tuple((part, each) for part, each in (("key", key), ("value", value)) if isinstance(each, str))
        return record._replace(failures=failures) if failures else record

    def _part(self, data: bytes | None) -> tuple[Decoded, bytes] | str | None:
        """A key or value with its text, why it could not be decoded, or None where it has no schema."""
        from odradek.records.schemas.coded import decoded, schema_id_of

        schema_id = schema_id_of(data)
        if data is None or schema_id is None:
            return None
        codec = self._known.get(schema_id)
        if codec is None:
            begin_s = time.monotonic()
            codec = self._known[schema_id] = self._codec(schema_id, self._waited_s > LOOKUPS_S)
            self._waited_s += time.monotonic() - begin_s
        if isinstance(codec, str):
            return codec
        try:
            found = decoded(schema_id, codec, data)
            return found, found.text()
        except SchemaError as error:
            return f"schema id {schema_id}: {error}"
        except RecursionError:
            return f"schema id {schema_id}: the data are nested too deeply"
