"""Python runs this at the start of each process with this folder in PYTHONPATH; see the package's docstring.

It imports nothing of Odradek, which such a process may not use or may import later: a finder acts on the import of the
configuration's module.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

MODULE: Final = "odradek.streams.config"


class Loader:
    """Loads the module with another default."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the real one."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and replace the default."""
        self._loader.exec_module(module)
        path = Path(__file__).with_name("__init__.py")
        spec = importlib.util.spec_from_file_location("forced_client", path)
        assert spec is not None
        assert spec.loader is not None
        forced = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(forced)
        forced.force_client(module)


class Finder:
    """Finds the module as the other finders do."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the module alone."""
        if name != MODULE:
            return None
        for finder in sys.meta_path:
            spec = None if finder is cls else finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = Loader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


sys.meta_path.insert(0, Finder)
