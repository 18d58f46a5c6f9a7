"""`odradek user`: list, set, delete users of SASL/SCRAM (Kafka: kafka-configs --entity-type users)."""

from __future__ import annotations

import sys
from typing import Final

import click

from odradek.admin import users
from odradek.commands.failures import failure_of
from odradek.commands.output import Column, TextTable
from odradek.commands.session import CommandSession, connects, dry_run_option, usage, yes_option
from odradek.protocol.errors import KafkaError

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""Those of `odradek.admin.users`, which the help of the commands does without."""
ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
_LIST: Final = (Column("USER", "user"), Column("MECHANISMS", "mechanisms"))


@click.group()
def user() -> None:
    """List, set and delete users of SASL/SCRAM."""


@user.command("list")
@click.argument("names", nargs=-1, metavar="[USER]...")
@connects
def list_users(session: CommandSession, names: tuple[str, ...]) -> None:
    """List users with the mechanisms and iterations of their credentials."""
    results = users.describe_users(session.client, list(dict.fromkeys(names)) or None)
    found = session.succeeded(results, "user")
    rows = [{"user": each.name, "mechanisms": each.iterations} for _, each in sorted(found.items())]
    session.show(rows, TextTable(_LIST, rows))
    session.end(results)


@user.command("set")
@click.argument("name", metavar="USER")
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS),
    default=("SCRAM-SHA-512",),
    show_default=True,
    help="Can be given again.",
)
@click.option("--password-stdin", is_flag=True, help="Read the password from the first line of standard input.")
@click.option("--iterations", type=click.IntRange(ITERATIONS, MOST_ITERATIONS), default=ITERATIONS, show_default=True)
@connects
def set_user(
    session: CommandSession, name: str, mechanisms: tuple[str, ...], password_stdin: bool, iterations: int
) -> None:
    """Create a user, or replace the password. It asks for the password, which is not sent to the brokers."""
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        usage("the password is empty")
    credentials = [users.NewCredential(mechanism, password, iterations) for mechanism in dict.fromkeys(mechanisms)]
    users.set_credentials(session.client, name, credentials)
    row = {"user": name, "mechanisms": dict.fromkeys(mechanisms, iterations)}
    session.show([row], TextTable(_LIST, [row]))


@user.command()
@click.argument("name", metavar="USER")
@click.option(
    "--mechanism", "mechanisms", multiple=True, type=click.Choice(MECHANISMS), help="Only this one.  [default: all]"
)
@yes_option
@dry_run_option
@connects
def delete(session: CommandSession, name: str, mechanisms: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Delete the credentials of a user. Connections that are authenticated already stay."""
    found = users.describe_users(session.client, [name])[name]
    if isinstance(found, KafkaError):
        raise failure_of(found, f"user {name}")
    chosen = list(dict.fromkeys(mechanisms)) or list(found.iterations)
    rows = [{"user": name, "mechanisms": _kept(found, chosen)}]
    if not dry_run:
        session.confirm([f"delete {', '.join(chosen)} of user {name}"], yes=yes, question="Delete?")
        users.delete_credentials(session.client, name, chosen)
    session.show(rows, TextTable(_LIST, rows, "Would be deleted:" if dry_run else "Deleted:"))


def _kept(found: users.ScramUser, chosen: list[str]) -> dict[str, int]:
    return {mechanism: number for mechanism, number in found.iterations.items() if mechanism in chosen}
