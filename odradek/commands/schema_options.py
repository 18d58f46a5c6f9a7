"""The options of `odradek produce` and `consume` for keys and values with schemas in a schema registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from odradek.admin.properties import REGISTRY_URL
from odradek.commands.failures import DENIED, FAILED, NOT_FOUND, UNREACHABLE, USAGE, CommandFailure
from odradek.commands.session import CommandSession, F, fail, is_overridden_by_profile, usage

if TYPE_CHECKING:
    from odradek.records.consumed import ConsumedRecord
    from odradek.records.inputs import InputRecord
    from odradek.records.schemas.registered import RegisteredSchemas

DECODED: Final = ("both", "key", "value")
REFERENCE: Final = "SCHEMA"
Encode = Callable[[bytes | None], bytes | None]
_HELP: Final = "ID, SUBJECT, SUBJECT:VERSION or @FILE"
registry_option: Final = click.option(
    "--schema-registry",
    metavar="URL",
    envvar="ODRADEK_SCHEMA_REGISTRY",
    help="Confluent's REST API of a schema registry.  [default: schema.registry.url of the profile]",
)


def writes_schemas(function: F) -> F:
    """Give a command the options of `writers`."""
    function = click.option("--key-schema", metavar=REFERENCE, help="The same for keys.")(function)
    function = click.option(
        "--value-schema", metavar=REFERENCE, help=f"Encode values, which are JSON: {_HELP} (.avsc, .json, .proto)."
    )(function)
    return registry_option(function)


def reads_schemas(function: F) -> F:
    """Give a command the options of `reader`."""
    function = click.option(
        "--decode",
        type=click.Choice(DECODED),
        default=DECODED[0],
        show_default=True,
        help="With a schema registry: which parts of a record have the ids of schemas.",
    )(function)
    return registry_option(function)


@contextmanager
def schema_failures() -> Iterator[None]:
    """End the command with one line after an error of a schema or of its registry."""
    from odradek.records.schemas import errors

    try:
        yield
    except errors.SchemaError as error:
        codes = {
            errors.SchemaOptionError: USAGE,
            errors.SchemaNotFoundError: NOT_FOUND,
            errors.SchemaRegistryDeniedError: DENIED,
            errors.SchemaRegistryUnreachableError: UNREACHABLE,
        }
        raise CommandFailure(str(error), codes.get(type(error), FAILED)) from error
    except ImportError as error:
        fail(f"schemas need the packages of the extra `schema-registry`: {error}")


@contextmanager
def opened(session: CommandSession, url: str | None, *, wanted: bool = True) -> Iterator[RegisteredSchemas | None]:
    """The registry of --schema-registry or of the profile, until the end; None without one, and if it is not wanted.

    Raises CommandFailure.
    """
    properties = session.properties()
    url = registry_url(properties, url)
    if not wanted or url is None:
        yield None
        return
    from odradek.records.schemas.registered import RegisteredSchemas, client_config

    with schema_failures():
        config = client_config(properties, url)
        schemas = None if config is None else RegisteredSchemas(config)
    try:
        yield schemas
    finally:
        if schemas is not None:
            schemas.close()


def registry_url(properties: Mapping[str, str], url: str | None) -> str | None:
    """The URL of --schema-registry, else that of the properties; None without either."""
    configured = properties.get(REGISTRY_URL)
    if url is None or (configured is not None and is_overridden_by_profile("schema_registry")):
        return configured  # the credentials of the profile are for its own schema registry
    return url


def reader(schemas: RegisteredSchemas | None, decode: str) -> Callable[[ConsumedRecord], ConsumedRecord]:
    """What decodes a consumed record; without a registry nothing."""
    if schemas is None:
        return lambda record: record
    from odradek.records.schemas.coded import SchemaReader

    found = SchemaReader(schemas, keys=decode != "value", values=decode != "key")

    def read(record: ConsumedRecord) -> ConsumedRecord:
        with schema_failures():
            return found.read(record)

    return read


class RecordWriters:
    """Encodes the keys and values of records for a topic, with the schemas of --key-schema and --value-schema."""

    def __init__(
        self, schemas: RegisteredSchemas | None, topic: str, key_schema: str | None, value_schema: str | None
    ) -> None:
        """Raises CommandFailure, click.UsageError."""
        self.schema_ids: dict[str, int] = {}
        self._key: Encode = _unchanged
        self._value: Encode = _unchanged
        given = {part: text for part, text in (("key", key_schema), ("value", value_schema)) if text is not None}
        if not given:
            return
        if schemas is None:
            usage(f"--{min(given)}-schema needs --schema-registry, or a profile with schema.registry.url")
        from odradek.records.schemas.coded import writer_of

        with schema_failures():
            writers = {part: writer_of(schemas, text, topic, part) for part, text in given.items()}
        self.schema_ids = {f"{part}_schema_id": each.schema_id for part, each in writers.items()}
        self._key = writers["key"].write if "key" in writers else _unchanged
        self._value = writers["value"].write if "value" in writers else _unchanged

    def encode(self, records: Iterator[InputRecord]) -> Iterator[InputRecord]:
        """The records with encoded parts. Raises InputError for one that does not fit, with its number."""
        if not self.schema_ids:
            yield from records
            return
        from odradek.records.inputs import InputError
        from odradek.records.schemas.errors import MisfitError

        for number, record in enumerate(records, 1):
            try:
                key, value = self._key(record.key), self._value(record.value)
            except MisfitError as error:
                raise InputError(f"record {number}: {error}") from error
            yield record._replace(key=key, value=value)


def _unchanged(data: bytes | None) -> bytes | None:
    return data
