"""User functions: normalizes functions with and without the key.

Java overloads most operators for functions with and without the key. Here one parameter takes either, and the signature
of the function decides: `map_values(str.upper)` and `map_values(lambda key, value: ...)` are both right.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def arity(function: Callable[..., Any], otherwise: int = 1) -> int:
    """How many arguments without defaults `function` takes by position; `otherwise` where its signature is unknown.

    A function of any number of arguments (`*args`) also counts as `otherwise`, where it requires no more.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return otherwise
    wanted = sum(1 for each in parameters if each.kind in _BY_POSITION and each.default is each.empty)
    open_ended = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    if wanted == 0 or (open_ended and wanted < otherwise):
        return otherwise
    return wanted


def with_key(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A function of (key, value) from one of (value) or of (key, value). Raises TypeError for any other."""
    count = arity(function)
    if count == 1:
        return lambda key, value: function(value)
    if count == 2:
        return function
    raise TypeError(f"{_name(function)} takes {count} arguments; expected a function of (value) or of (key, value)")


def takes_key(joiner: Callable[..., Any]) -> bool:
    """Whether a joiner is of (key, left, right) rather than of (left, right). Raises TypeError for any other."""
    count = arity(joiner, otherwise=2)
    if count not in (2, 3):
        raise TypeError(
            f"{_name(joiner)} takes {count} arguments; expected a function of (left, right) or of (key, left, right)"
        )
    return count == 3


def joiner_with_key(function: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    """A function of (key, left, right) from one of (left, right) or of (key, left, right). Raises TypeError."""
    return function if takes_key(function) else lambda key, left, right: function(left, right)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", function))
