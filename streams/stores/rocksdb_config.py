"""Changes of the options of RocksDB by the user (Kafka: org.apache.kafka.streams.state.RocksDBConfigSetter).

The property rocksdb.config.setter is a function of a store's name and its options, or of name, options and the
application's configuration; or a class with `set_config` and `close`, of which each store makes an object when it is
opened, as in Java; or an object of such a class, which all stores have in common; or the dotted name of one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from odradek.streams.functions import Forms, arity, problem_of

FORMS: Final[Forms] = (("store_name", "options", "configs"), ("store_name", "options"))
"""The parameters of a function, and of a `set_config`."""


class RocksDBConfigSetter:
    """The base of a class of one's own; any class with these methods will do."""

    def set_config(self, store_name: str, options: Any, configs: Mapping[str, Any]) -> None:
        """Change the options (`rocksdict.Options`) of a store before it is opened.

        `configs` is the configuration of the application. Replacing the table options or the write buffer manager
        takes the store out of the memory that rocksdb.memory.max.bytes bounds. Exceptions end the thread.
        """

    def close(self, store_name: str, options: Any) -> None:
        """Release what `set_config` made for this store, after the store was closed; not what stores share."""


class _Function(RocksDBConfigSetter):
    """A function as a setter."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self._arguments = arity(function, otherwise=len(FORMS[0]))

    def set_config(self, store_name: str, options: Any, configs: Mapping[str, Any]) -> None:
        self._function(*(store_name, options, configs)[: self._arguments])


class _Object(RocksDBConfigSetter):
    """An object with `set_config`, and with or without `close`, as a setter."""

    def __init__(self, setter: Any) -> None:
        self._inner = _Function(setter.set_config)
        self._close: Callable[[str, Any], None] | None = getattr(setter, "close", None)

    def set_config(self, store_name: str, options: Any, configs: Mapping[str, Any]) -> None:
        self._inner.set_config(store_name, options, configs)

    def close(self, store_name: str, options: Any) -> None:
        if self._close is not None:
            self._close(store_name, options)


def setter_of(value: Any) -> RocksDBConfigSetter:
    """The setter for one store from the value of rocksdb.config.setter; None is a setter that changes nothing."""
    if value is None:
        return RocksDBConfigSetter()
    if isinstance(value, type):
        value = value()
    return _Object(value) if hasattr(value, "set_config") else _Function(value)


def problem_of_setter(value: Any) -> str | None:
    """Why this is no setter; None where it is one."""
    method = getattr(value, "set_config", None)
    if isinstance(value, type):
        if method is None:
            return f"is {value!r}; expected a class with the method set_config(store_name, options, configs)"
        return problem_of(method, tuple(("self", *form) for form in FORMS))
    return problem_of(value if method is None else method, FORMS)
