"""Reads the records of a partition as Arrow record batches, for pandas, Polars, DuckDB and other readers of Arrow.

    from odradek.storage.arrow import record_batches
    from odradek.storage.reading import Partition

    for batch in record_batches(Partition("/var/lib/odradek/orders-0").records(from_ms=1_700_000_000_000)):
        print(batch.to_pandas())

Needs pyarrow, which `pip install '.[arrow]'` in a clone installs. A batch holds a limited number of rows, and fewer
when keys and values are large: the size of a batch bounds the memory that is used, the size of the log does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.batch import Record

if TYPE_CHECKING:
    import pyarrow

_NO_TIMESTAMP: Final = -1
_BYTES_PER_BATCH: Final = 16 * 1024 * 1024


class ArrowMissing(ImportError):  # noqa: N818 - named after the problem
    """pyarrow is not installed."""

    def __init__(self) -> None:
        super().__init__("pyarrow is needed for Arrow record batches: pip install '.[arrow]' in a clone of Odradek")


def schema() -> pyarrow.Schema:
    """The columns. A null timestamp is Kafka's -1; headers are a list, since a name may come twice.

    Raises ArrowMissing.
    """
    arrow = _arrow()
    header = arrow.struct([arrow.field("key", arrow.string(), nullable=False), arrow.field("value", arrow.binary())])
    return arrow.schema(
        [
            arrow.field("offset", arrow.int64(), nullable=False),
            arrow.field("timestamp", arrow.timestamp("ms", tz="UTC")),
            arrow.field("key", arrow.binary()),
            arrow.field("value", arrow.binary()),
            arrow.field("headers", arrow.list_(header), nullable=False),
        ]
    )


def record_batches(records: Iterable[Record], *, rows: int = 10_000) -> Iterator[pyarrow.RecordBatch]:
    """The records, as `Partition.records` gives them, in batches of at most `rows` rows.

    A batch ends earlier once keys and values take 16 MiB, so that no column grows beyond what an offset of 32 bits
    reaches. Raises ArrowMissing and ValueError at once, and passes on the exceptions of `records`.
    """
    if rows < 1:
        raise ValueError(f"{rows} rows to a batch, where at least one is needed")
    columns = schema()
    return _batches(records, columns, rows)


def _batches(records: Iterable[Record], columns: pyarrow.Schema, rows: int) -> Iterator[pyarrow.RecordBatch]:
    pending: list[Record] = []
    size = 0
    for record in records:
        pending.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(content or b"") for name, content in record.headers)
        if len(pending) == rows or size >= _BYTES_PER_BATCH:
            yield _batch(pending, columns)
            pending, size = [], 0
    if pending:
        yield _batch(pending, columns)


def _batch(records: list[Record], columns: pyarrow.Schema) -> pyarrow.RecordBatch:
    values = [
        [record.offset for record in records],
        [None if record.timestamp_ms == _NO_TIMESTAMP else record.timestamp_ms for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [[{"key": name, "value": content} for name, content in record.headers] for record in records],
    ]
    arrow = _arrow()
    arrays = [arrow.array(column, field.type) for column, field in zip(values, columns, strict=True)]
    return arrow.RecordBatch.from_arrays(arrays, schema=columns)


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ArrowMissing from None
    return pyarrow
