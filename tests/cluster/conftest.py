"""Tests that start whole clusters belong to `make test`, not to the quick part."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
QUICK = {"test_links.py", "test_checker.py", "test_service.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.name not in QUICK:
            item.add_marker(pytest.mark.slow)
