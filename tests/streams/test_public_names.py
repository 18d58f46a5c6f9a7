"""The public names of `odradek.streams`: what its pages and its errors name is importable from the package itself."""

from __future__ import annotations

import inspect
import re
from typing import Final

import pytest

from odradek import streams
from odradek.streams import errors
from tests.streams import guide

NAMESPACES: Final = {"assignment", "connectors", "examples", "state_query", "stats", "stores", "testing"}
"""Packages and modules that the pages import from because they have a subject of their own."""
_IMPORT: Final = re.compile(r"^ *from odradek\.streams\.(\w+)[\w.]* import", re.MULTILINE)


def test_every_name_of_the_package_can_be_imported() -> None:
    assert [name for name in streams.__all__ if not hasattr(streams, name)] == []
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchOperator'"):
        streams.NoSuchOperator  # type: ignore[attr-defined] # noqa: B018


def test_every_error_is_a_name_of_the_package() -> None:
    kinds = inspect.getmembers(errors, lambda each: inspect.isclass(each) and issubclass(each, errors.StreamsError))
    assert {name for name, _ in kinds} <= {*streams.__all__}


def test_the_pages_import_names_from_the_package() -> None:
    pages = [*guide.DOCS.glob("streams*.md"), guide.DOCS / "testing.md"]
    found = {module for page in pages for module in _IMPORT.findall(page.read_text())}
    assert "assignment" in found
    assert found <= NAMESPACES
