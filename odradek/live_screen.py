"""A text that a command prints once, or again each second on a terminal until Ctrl-C."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Final

import click

from odradek.standard_streams import print_line

_REFRESH_S: Final = 1.0
_CLEAR: Final = "\033[H\033[J"
"""Moves the cursor of a terminal to the first line and clears what follows."""


def show(text: Callable[[], str], *, live: bool) -> None:
    """Print the text. With `live` it is refreshed on a terminal; elsewhere it is printed once."""
    if not live or not sys.stdout.isatty():
        print_line(text())
        return
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            click.echo(f"{_CLEAR}{text()}")
            time.sleep(_REFRESH_S)
