"""The command `odradek scram`: users of SASL/SCRAM in the metadata store, without a broker that serves.

With it brokers have credentials for each other before the first of them starts, as with Kafka's `kafka-configs
--zookeeper` and `kafka-storage format --add-scram`. While brokers serve, `kafka-configs --bootstrap-server` does the
same. Modules that it needs are imported when it runs.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from odradek.broker.config.broker_config import BrokerConfig
    from odradek.protocol.sasl.scram_credentials import (
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384
SALT_BYTES = 20
_MECHANISM = click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"])

_properties = click.argument(
    "properties", required=False, metavar="[server.properties]", type=click.Path(path_type=Path)
)
_overrides = click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a property over the file's value."
)
_user = click.option("--user", required=True, metavar="NAME", help="Name of the user, without `User:`.")
_mechanism = click.option("--mechanism", type=_MECHANISM, default="SCRAM-SHA-512", show_default=True)


@click.group()
def scram() -> None:
    """Users of SASL/SCRAM, before the first start of a broker."""


@scram.command()
@_properties
@_overrides
@_user
@_mechanism
@click.option(
    "--iterations",
    type=click.IntRange(LEAST_ITERATIONS, MOST_ITERATIONS),
    default=LEAST_ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)
@click.option(
    "--password-file",
    type=click.File("r"),
    help="Read the password from the first line of this file; - is standard input. Without it the command asks.",
)
def add(
    properties: Path | None,
    overrides: tuple[str, ...],
    user: str,
    mechanism: str,
    iterations: int,
    password_file: IO[str] | None,
) -> None:
    """Create a user's credential, or replace it.

    The properties are those of a broker: they name the metadata store. One that is embedded in a broker can be changed
    only while that broker does not run.
    """
    from odradek.protocol.sasl.scram import salted_password
    from odradek.protocol.sasl.scram_credentials import MECHANISMS, UserScramCredentialUpsertion

    if password_file is None:
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = password_file.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password is empty")
    number, kind = next((number, each) for number, each in MECHANISMS.items() if each.name == mechanism)
    salt = os.urandom(SALT_BYTES)
    hashed = salted_password(kind, password, salt, iterations)
    upsertion = UserScramCredentialUpsertion(user, number, iterations, salt, hashed)
    _alter(_load(properties, overrides), user, [], [upsertion])
    click.echo(f"{user} has a credential for {mechanism}")


@scram.command()
@_properties
@_overrides
@_user
@_mechanism
def delete(properties: Path | None, overrides: tuple[str, ...], user: str, mechanism: str) -> None:
    """Delete a user's credential."""
    from odradek.protocol.sasl.scram_credentials import MECHANISMS, UserScramCredentialDeletion

    number = next(number for number, each in MECHANISMS.items() if each.name == mechanism)
    _alter(_load(properties, overrides), user, [UserScramCredentialDeletion(user, number)], [])
    click.echo(f"{user} has no credential for {mechanism}")


def _load(properties: Path | None, overrides: tuple[str, ...]) -> BrokerConfig:
    from odradek.broker.config.broker_config import BrokerConfig
    from odradek.broker.config.types import ConfigError

    try:
        return BrokerConfig.load(properties, overrides)
    except ConfigError as error:
        raise click.ClickException(error.message) from error
    except OSError as error:
        raise click.ClickException(f"cannot read {properties}: {error.strerror}") from error


def _alter(
    config: BrokerConfig,
    user: str,
    deletions: list[UserScramCredentialDeletion],
    upsertions: list[UserScramCredentialUpsertion],
) -> None:
    import asyncio

    from odradek.protocol.errors import KafkaError
    from odradek.protocol.sasl.scram_credentials import problems
    from odradek.start_errors import START_ERRORS, explain

    for error in problems(deletions, upsertions).values():
        raise click.ClickException(error.message or error.code.name)
    try:
        asyncio.run(_write(config, user, deletions, upsertions))
    except START_ERRORS as error:
        message = error.message if isinstance(error, KafkaError) and error.message else explain(error, config)
        raise click.ClickException(message) from error


async def _write(
    config: BrokerConfig,
    user: str,
    deletions: list[UserScramCredentialDeletion],
    upsertions: list[UserScramCredentialUpsertion],
) -> None:
    """Raises START_ERRORS."""
    from odradek.broker.composition.environment import Environment
    from odradek.broker.composition.registry_access import sessions
    from odradek.broker.config.client_store import ClientConfigs
    from odradek.broker.registry import znodes
    from odradek.broker.registry.interface import ensure_path

    async with contextlib.AsyncExitStack() as undo:
        registry = await sessions(config, Environment(), undo)()
        undo.push_async_callback(registry.close)
        await ensure_path(registry, znodes.CONFIG_CHANGES)
        await ClientConfigs(lambda: registry).alter_credentials(user, deletions, upsertions)
