"""User functions: normalizes functions with and without the key, and checks their parameters.

Java overloads most operators for functions with and without the key. Here one parameter takes either, and the signature
of the function decides: `map_values(str.upper)` and `map_values(lambda key, value: ...)` are both right. Operators
accept any function; `problem_of` finds the wrong ones, and StreamsBuilder.build() reports them with their operators.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, Final

_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Forms = tuple[tuple[str, ...], ...]
"""The parameters that a function may have; several possibilities, the one without optional parameters first."""
OF_RECORD: Final[Forms] = (("value",), ("key", "value"))
OF_VALUE: Final[Forms] = (("value",),)
OF_NOTHING: Final[Forms] = ((),)
JOINER: Final[Forms] = (("left", "right"), ("key", "left", "right"))
OF_TWO: Final[Forms] = (("left", "right"),)
REDUCER: Final[Forms] = (("current", "new"),)
AGGREGATOR: Final[Forms] = (("key", "value", "aggregate"),)
MERGER: Final[Forms] = (("key", "aggregate", "aggregate"),)
TOPIC_CHOOSER: Final[Forms] = (("key", "value", "source"),)
PARTITIONER: Final[Forms] = (("topic", "key", "value", "partitions"),)
EXTRACTOR: Final[Forms] = (("key", "value", "timestamp", "partition_time", "source"),)
_OWN: Final = os.path.dirname(__file__) + os.sep
_EXAMPLES: Final = os.path.join(_OWN, "examples") + os.sep


def arity(function: Callable[..., Any], otherwise: int = 1) -> int:
    """How many arguments without defaults `function` takes by position; `otherwise` where its signature is unknown.

    A function of any number of arguments (`*args`) also counts as `otherwise`, where it requires no more.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature, or no function
        return otherwise
    wanted = sum(1 for each in parameters if each.kind in _BY_POSITION and each.default is each.empty)
    open_ended = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    if wanted == 0 or (open_ended and wanted < otherwise):
        return otherwise
    return wanted


def with_key(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A function of (key, value) from one of (value) or of (key, value)."""
    return (lambda key, value: function(value)) if arity(function) == 1 else function


def takes_key(joiner: Callable[..., Any]) -> bool:
    """Whether a joiner is of (key, left, right) rather than of (left, right)."""
    return arity(joiner, otherwise=2) == 3


def joiner_with_key(function: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    """A function of (key, left, right) from one of (left, right) or of (key, left, right)."""
    return function if takes_key(function) else lambda key, left, right: function(left, right)


def problem_of(function: Any, forms: Forms, awaited: bool = False) -> str | None:
    """Why `function` cannot be called with any of these parameters; None where it can, or its signature is unknown.

    A coroutine function is wrong, too, unless its result is `awaited`.
    """
    expected = " or of ".join(f"({', '.join(form)})" for form in forms)
    if not callable(function):
        return f"is {function!r}; expected a function of {expected}"
    if not awaited and inspect.iscoroutinefunction(function):
        return f"is {name_of(function)}, a coroutine function; map_async and map_values_async await such functions"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    counts = [len(form) for form in forms]
    chosen = counts[0] if len(counts) == 1 else arity(function, otherwise=counts[0])
    try:
        if chosen in counts:
            signature.bind(*range(chosen))
            return None
    except TypeError:
        pass
    parameters = signature.replace(return_annotation=inspect.Signature.empty)
    return f"is {name_of(function)}, a function of {parameters}; expected a function of {expected}"


def imported(dotted: str) -> Any:
    """What a dotted name such as "package.module.function" names. Raises ValueError."""
    module, _, attribute = dotted.replace(":", ".").rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{dotted!r}; expected a function or its dotted name such as 'package.module.function': {error}"
        ) from error


def name_of(function: Any) -> str:
    """The name of a function and the place of its definition, for a message."""
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = str(getattr(inner, "__qualname__", function))
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}:{code.co_firstlineno})"


def place_of_call() -> str:
    """The file and the line of the user's code that called this package, for a message."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_own(file: str) -> bool:
    """Whether a file belongs to this package; the generated `__init__` of a data class has a file named `<string>`."""
    return file == "<string>" or (file.startswith(_OWN) and not file.startswith(_EXAMPLES))
