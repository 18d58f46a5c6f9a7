"""Python packages that exist for one test."""

from __future__ import annotations

from pathlib import Path

import pytest


def install(patch: pytest.MonkeyPatch, folder: Path, source: str, group: str, entries: dict[str, str]) -> None:
    """Make a package of one module importable, with entry points of a group: name -> class in the module."""
    name = f"example_{group.replace('.', '_')}"
    (folder / f"{name}.py").write_text(source)
    metadata = folder / f"{name}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    lines = "".join(f"{entry} = {name}:{class_name}\n" for entry, class_name in entries.items())
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    patch.syspath_prepend(str(folder))
