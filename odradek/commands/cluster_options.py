"""Options of the commands that watch a cluster: data directories, metrics pages, and the schemas of records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.commands.schema_options import registry_url, schema_failures

if TYPE_CHECKING:
    from odradek.console.record_schemas import RecordSchemas

data_dir_option: Final = click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="A data directory of a broker on this machine, for the log inspector. Can be given again.",
)
metrics_option: Final = click.option(
    "--metrics",
    "metrics",
    multiple=True,
    metavar="HOST:PORT",
    help="A broker's metrics page, for request latencies. Can be given again.",
)


def record_schemas(properties: Mapping[str, str], url: str | None) -> RecordSchemas | None:
    """The schemas of --schema-registry or of the profile; None without a registry. Raises CommandFailure."""
    url = registry_url(properties, url)
    if url is None:
        return None
    from odradek.console.record_schemas import CLIENT_DEFAULTS, RecordSchemas
    from odradek.records.schemas.registered import RegisteredSchemas, client_config

    with schema_failures():
        config = client_config(properties, url, CLIENT_DEFAULTS)
        return None if config is None else RecordSchemas(RegisteredSchemas(config))
