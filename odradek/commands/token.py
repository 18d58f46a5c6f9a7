"""`odradek token`: list, create, renew, expire delegation tokens (Kafka: kafka-delegation-tokens)."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import click

from odradek.admin import tokens
from odradek.commands.output import Column, TextTable, time_text
from odradek.commands.session import CommandSession, connects, usage, yes_option
from odradek.commands.times import duration_ms

BROKER_DEFAULT: Final = -1
_COLUMNS: Final = (
    Column("TOKEN ID", "token_id"),
    Column("OWNER", "owner"),
    Column("RENEWERS", "renewers"),
    Column("EXPIRES", "expiry_ms", shown=time_text),
    Column("LATEST EXPIRY", "max_ms", shown=time_text),
    Column("ISSUED", "issue_ms", wide=True, shown=time_text),
    Column("REQUESTER", "requester", wide=True),
    Column("HMAC", "hmac", wide=True),
)


@click.group()
def token() -> None:
    """List, create, renew and expire delegation tokens.

    The connection has to be authenticated by SASL or by a client certificate, and not by a token.
    """


@token.command("list")
@click.option("--owner", "owners", multiple=True, metavar="User:NAME", help="Whose tokens. Can be given again.")
@connects
def list_tokens(session: CommandSession, owners: tuple[str, ...]) -> None:
    """List tokens. `--output wide` shows their HMACs, with which a client logs in."""
    found = tokens.describe_tokens(session.client, [parse_principal(each) for each in owners] or None)
    _show(session, found)


@token.command()
@click.option("--owner", metavar="User:NAME", help="A token of another user.")
@click.option("--renewer", "renewers", multiple=True, metavar="User:NAME", help="A user that may renew it, too.")
@click.option("--max-life", metavar="DURATION", help="1h, 7d, PT1H.  [default: the longest that the brokers allow]")
@connects
def create(session: CommandSession, owner: str | None, renewers: tuple[str, ...], max_life: str | None) -> None:
    """Create a token, and show its id and HMAC."""
    made = tokens.create_token(
        session.client,
        None if owner is None else parse_principal(owner),
        [parse_principal(each) for each in renewers],
        BROKER_DEFAULT if max_life is None else duration_ms(max_life, "--max-life"),
    )
    if session.output == "table":
        session.note(f"token id: {made.token_id}\nHMAC:     {made.hmac}\nexpires:  {time_text(made.expiry_ms)}")
    else:
        _show(session, [made])


@token.command()
@click.argument("hmac")
@click.option("--period", metavar="DURATION", help="1h, 7d, PT1H.  [default: that of the brokers]")
@connects
def renew(session: CommandSession, hmac: str, period: str | None) -> None:
    """Let the token with this HMAC expire later."""
    _check_hmac(hmac)
    period_ms = BROKER_DEFAULT if period is None else duration_ms(period, "--period")
    _show_expiry(session, tokens.renew_token(session.client, hmac, period_ms))


@token.command()
@click.argument("hmac")
@click.option("--period", metavar="DURATION", help="In 1h, 7d, PT1H.  [default: now]")
@yes_option
@connects
def expire(session: CommandSession, hmac: str, period: str | None, yes: bool) -> None:
    """Let the token with this HMAC expire sooner: at once, unless --period is given."""
    _check_hmac(hmac)
    period_ms = BROKER_DEFAULT if period is None else duration_ms(period, "--period")
    session.confirm([f"expire the token {'at once' if period is None else f'in {period}'}"], yes=yes)
    _show_expiry(session, tokens.expire_token(session.client, hmac, period_ms))


def parse_principal(text: str) -> tokens.Principal:
    """A user as `User:alice`. Raises click.UsageError."""
    kind, colon, name = text.partition(":")
    if not kind or not colon or not name:
        usage(f"{text!r} is not like User:alice")
    return tokens.Principal(kind, name)


def _check_hmac(hmac: str) -> None:
    try:
        base64.b64decode(hmac, validate=True)
    except binascii.Error:
        usage("HMAC is not in Base64")


def _show_expiry(session: CommandSession, expiry_ms: int) -> None:
    row = {"expiry_ms": expiry_ms}
    session.show(row, TextTable((Column("EXPIRES", "expiry_ms", shown=time_text),), [row]))


def _show(session: CommandSession, found: list[tokens.TokenDescription]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "token_id": each.token_id,
            "hmac": each.hmac,
            "owner": str(each.owner),
            "requester": None if each.requester is None else str(each.requester),
            "renewers": [str(renewer) for renewer in each.renewers],
            "issue_ms": each.issue_ms,
            "expiry_ms": each.expiry_ms,
            "max_ms": each.max_ms,
        }
        for each in found
    ]
    session.show(rows, TextTable(_COLUMNS, rows))
