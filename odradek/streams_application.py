"""The application of a command of `odradek streams`: MODULE:TOPOLOGY and its properties on the command line.

Modules that a command needs are imported when it runs: every command of `odradek` imports this one.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from odradek.streams.topology import Topology

_FOLDER: Final = click.Path(path_type=Path, file_okay=False, exists=True)
_FILE: Final = click.Path(path_type=Path, dir_okay=False, exists=True)
_Function = TypeVar("_Function", bound=Callable[..., Any])
UNUSABLE: Final = 2
"""The exit status where the application cannot be loaded, as where the options are wrong."""


def app_dir_option(function: _Function) -> _Function:
    """The parameter `app_dir`, of every command that imports what an application names."""
    return click.option(
        "--app-dir",
        type=_FOLDER,
        default=".",
        show_default=True,
        metavar="FOLDER",
        help="Where modules are searched for first.",
    )(function)


def application_argument(function: _Function) -> _Function:
    """The parameters `application` and `app_dir`, of every command that loads a topology."""
    return click.argument("application", metavar="MODULE:TOPOLOGY")(app_dir_option(function))


def application_options(function: _Function) -> _Function:
    """The same, and the parameters `properties` and `overrides`."""
    file = click.option(
        "--properties",
        type=_FILE,
        metavar="FILE",
        help="Properties of the application. `run` reads them again at each start of a process.",
    )
    overrides = click.option(
        "--set",
        "--config",
        "overrides",
        multiple=True,
        metavar="NAME=VALUE|@FILE",
        help="Set a property over the file's value, or those of another file; the later one wins.",
    )
    return application_argument(file(overrides(function)))


def read_properties(path: Path | None, overrides: Sequence[str]) -> dict[str, str]:
    """The properties of a file, overridden by NAME=VALUE texts and @FILE. Ends the command where they cannot be
    read.
    """
    properties = _of_file(path) if path is not None else {}
    for text in overrides:
        if text.startswith("@"):
            properties |= _of_file(Path(text[1:]))
            continue
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--set {text}: must be NAME=VALUE, or @FILE")
        properties[name.strip()] = value
    return properties


def _of_file(path: Path) -> dict[str, str]:
    from odradek.broker.config.properties import parse_properties
    from odradek.broker.config.types import ConfigError

    try:
        return parse_properties(path.read_bytes())
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")
    except ConfigError as error:
        fail(f"cannot read {path}: {error.message}")


def load_application(name: str, folder: Path) -> Topology:
    """The topology of MODULE:TOPOLOGY. Ends the command where there is none."""
    from odradek.streams.errors import StreamsError
    from odradek.streams.supervisor.loading import ApplicationError, load_topology

    try:
        return load_topology(name, folder)
    except (ApplicationError, StreamsError) as error:
        fail(str(error), UNUSABLE)
    except Exception as error:  # of the user's module
        traceback.print_exc()
        fail(f"cannot load {name}: {type(error).__name__}: {error}", UNUSABLE)


def fail(message: str, status: int = 1) -> NoReturn:
    """End the command with an error message."""
    click.echo(f"odradek: {message}", err=True)
    sys.exit(status)
