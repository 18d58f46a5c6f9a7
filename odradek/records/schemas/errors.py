"""What can be wrong with a schema, its registry, or a record for it."""

from __future__ import annotations

from typing import Self


class SchemaError(ValueError):
    """A schema, or an option for one, that cannot be used; the message states why."""

    def at(self, place: str) -> Self:
        """The same error, with the place in front of its message."""
        self.args = (f"{place}: {self}",)
        return self


class SchemaOptionError(SchemaError):
    """An option or a property that cannot be used."""


class SchemaNotFoundError(SchemaError):
    """A schema id, subject or version that the registry does not have."""


class SchemaRegistryDeniedError(SchemaError):
    """The registry rejects the credentials, or the user may not do this."""


class SchemaRegistryUnreachableError(SchemaError, ConnectionError):
    """The registry does not answer."""


class MisfitError(SchemaError):
    """A record that does not fit its schema; the message names the field and what is allowed there."""

    def __init__(self, path: str, reason: str) -> None:
        """`path` is the field: `value.items[2].pieces`."""
        super().__init__(f"{path}: {reason}")
