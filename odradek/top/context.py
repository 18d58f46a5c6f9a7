"""What the views of `odradek top` read from, and the errors that a read may end with."""

from __future__ import annotations

from typing import Final, NamedTuple

import click

from odradek.commands.failures import failure_of
from odradek.console.log_inspector import LogInspector
from odradek.console.moments import MomentError
from odradek.console.sample import CLIENT_ERRORS
from odradek.console.workspace import Workspace
from odradek.records.filters import FilterError

READ_ERRORS: Final = (*CLIENT_ERRORS, FilterError, MomentError, LookupError, click.ClickException)
"""What a view's read raises: the client's errors, a search that cannot be used, an object that is gone."""


class TopContext(NamedTuple):
    """The connections of one run, and the data directories of brokers on this machine."""

    workspace: Workspace
    inspector: LogInspector


def reason_of(error: Exception) -> str:
    """One of READ_ERRORS in words."""
    if isinstance(error, CLIENT_ERRORS):
        return failure_of(error).message
    if isinstance(error, click.ClickException):
        return error.message
    return f"there is no {error.args[0]}" if isinstance(error, LookupError) and error.args else str(error)
