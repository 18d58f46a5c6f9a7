"""The measurement of the authorizer's cost runs; at this size its results have no meaning."""

from __future__ import annotations

import pytest

from tests.benchmarks import authorizer_cost


@pytest.mark.slow
def test_both_kinds_of_requests_have_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    authorizer_cost.main(["--rounds", "1", "--requests", "200"])
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["produce", "fetch"]
    assert all(float(row.split()[5]) > 0 for row in rows)
