"""Records as Arrow record batches. pyarrow is the oracle for its own types."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from odradek.protocol.batch import Record, build
from odradek.storage.arrow import ArrowMissing, record_batches
from odradek.storage.reading import Partition
from tests.storage.batches import NOW_MS

ODD = [
    Record(0, NOW_MS, b"k", b"v", (("a", b"1"), ("a", None))),
    Record(1, -1, None, b"\xff"),
    Record(2, NOW_MS + 5, b"", None),
]


def test_without_pyarrow_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArrowMissing, match=r"pip install '\.\[arrow\]'"):
        record_batches([])


def test_columns_have_the_values_of_the_records(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[arrow]'")
    (tmp_path / f"{0:020d}.log").write_bytes(build(ODD))
    (batch,) = record_batches(Partition(str(tmp_path)).records())
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "offset": 0,
            "timestamp": datetime.fromtimestamp(NOW_MS / 1000, UTC),
            "key": b"k",
            "value": b"v",
            "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        },
        {"offset": 1, "timestamp": None, "key": None, "value": b"\xff", "headers": []},
        {
            "offset": 2,
            "timestamp": datetime.fromtimestamp((NOW_MS + 5) / 1000, UTC),
            "key": b"",
            "value": None,
            "headers": [],
        },
    ]


def test_batches_end_at_a_limit_of_rows_or_bytes() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[arrow]'")
    records = [Record(number, NOW_MS, None, b"") for number in range(25)]
    assert [batch.num_rows for batch in record_batches(records, rows=10)] == [10, 10, 5]
    large = [Record(number, NOW_MS, None, bytes(6 << 20)) for number in range(5)]
    assert [batch.num_rows for batch in record_batches(large)] == [3, 2]
    assert list(record_batches([])) == []
    with pytest.raises(ValueError, match="at least one"):
        record_batches([], rows=0)
