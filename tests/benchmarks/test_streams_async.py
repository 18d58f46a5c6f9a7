"""The measurement of asynchronous maps runs; at this size its results have no meaning."""

from __future__ import annotations

import pytest

from tests.benchmarks import streams_async


@pytest.mark.slow
def test_each_kind_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    results = streams_async.main(["--records", "200", "--concurrency", "10"])
    assert [result.kind for result in results] == list(streams_async.KINDS)
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()] == list(streams_async.KINDS)
    assert all(result.wall_s > 0 for result in results)
