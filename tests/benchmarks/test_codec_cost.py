"""The measurement of the codecs runs; at this size its results have no meaning."""

from __future__ import annotations

import pytest

from tests.benchmarks import codec_cost


def test_every_kind_of_request_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    codec_cost.main(["--rounds", "1", "--calls", "2"])
    rows = [line for line in capsys.readouterr().out.splitlines() if ">" in line]
    assert [row[:16].strip() for row in rows] == list(codec_cost.KINDS)
    assert all(float(row.split()[-1]) > 0 for row in rows)
