"""The command `odradek tls`: certificates for a laptop or a small cluster.

Modules that it needs are imported when it runs.
"""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def tls() -> None:
    """Certificates for TLS."""


@tls.command("make-certificates")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="HOST[,HOST…]",
    help="Names and addresses at which clients reach a broker; once for each broker. Default: localhost,127.0.0.1,::1.",
)
@click.option(
    "--client", "clients", multiple=True, metavar="NAME", help="A client with a certificate of its own (mTLS)."
)
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="How long they are valid.")
@click.option("--password", help="Write PKCS12 key stores with this password, too, for Java clients before 2.7.")
def make_certificates(
    folder: Path, brokers: tuple[str, ...], clients: tuple[str, ...], days: int, password: str | None
) -> None:
    """Write an authority and certificates to FOLDER, with the properties that use them.

    An authority that is there already issues the new certificates: run the command again to renew them or to add a
    broker or client. Keep ca.key away from brokers and clients.
    """
    from odradek.certificates import make_certificates as make

    hosts = [[host.strip() for host in each.split(",") if host.strip()] for each in brokers]
    if not all(hosts):
        raise click.BadParameter("a broker needs at least one host", param_hint="--broker")
    taken = {"ca", *(f"broker-{number}" for number in range(max(1, len(hosts))))}
    for name in clients:
        if name in taken or not name or "/" in name or name.startswith("."):
            raise click.BadParameter(f"{name!r} cannot be the name of a client's file", param_hint="--client")
        taken.add(name)
    try:
        written = make(folder, hosts or [["localhost", "127.0.0.1", "::1"]], clients, days=days, password=password)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"cannot write certificates to {folder}: {error}") from error
    for path in written:
        click.echo(path)
