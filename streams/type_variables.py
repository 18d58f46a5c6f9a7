"""Type variables whose default is Any (PEP 696), so that `Record` alone still means a record of any key and value.

Python has defaults of type variables since 3.13; type checkers take them from typing_extensions in every version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    KOut = TypeVar("KOut", default=Any)
    VOut = TypeVar("VOut", default=Any)
    VO = TypeVar("VO", default=Any)
    K2 = TypeVar("K2")
    V2 = TypeVar("V2")
else:
    from typing import TypeVar

    K, V, K2, V2, KOut, VOut, VO = (TypeVar(name) for name in ("K", "V", "K2", "V2", "KOut", "VOut", "VO"))

__all__ = ["K2", "V2", "VO", "K", "KOut", "V", "VOut"]
