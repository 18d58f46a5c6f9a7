"""docs/groups.md shows the tables of the docstrings of the machines, unchanged."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "groups.md"
MODULES = (
    "group.state.classic_membership",
    "group.state.consumer_group",
    "group.state.consumer_group_reconciliation",
    "group.state.consumer_group_classic_members",
    "group.state.migration",
    "group.state.offsets",
    "coordinator.state.pending_writes",
    "group.state.records",
    "group.state.consumer_group_records",
)


def tables(text: str) -> list[str]:
    return [part.strip() for part in text.split("\n\n") if part.startswith("|")]


@pytest.mark.parametrize("name", MODULES)
def test_the_page_has_the_tables_of_the_code(name: str) -> None:
    head = importlib.import_module(f"odradek.broker.{name}").__doc__
    assert head is not None
    found = tables(head)
    assert found
    shown = tables(PAGE.read_text())
    assert [table for table in found if table not in shown] == []


def test_the_page_has_no_other_tables() -> None:
    heads = [importlib.import_module(f"odradek.broker.{name}").__doc__ or "" for name in MODULES]
    known = [table for head in heads for table in tables(head)]
    assert [table for table in tables(PAGE.read_text()) if table not in known] == []
