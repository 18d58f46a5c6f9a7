"""Addresses on the command line: HOST:PORT."""

from __future__ import annotations

import click


def host_and_port(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """The callback of an option whose value is HOST:PORT. Raises click.BadParameter."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not host or not port.isdecimal():
        raise click.BadParameter(f"{value!r} is not HOST:PORT, as 127.0.0.1:9404 is", context, parameter)
    return host.strip("[]"), int(port)
