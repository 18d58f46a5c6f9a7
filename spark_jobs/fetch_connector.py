"""Copies the jars of Spark's Kafka connector into a folder, for machines that cannot reach Maven Central.

Spark's Ivy resolves the connector as it does for any job; afterwards ODRADEK_SPARK_JARS can name the folder. The build
of the container image uses it, so that its jobs run without a network.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from odradek.spark_jobs import connector
from odradek.spark_jobs.command import run
from odradek.spark_jobs.errors import DONE, JobError
from odradek.spark_jobs.session import job_session


@click.command("fetch_connector")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def command(folder: Path) -> int:
    """Copies the jars of Spark's Kafka connector into FOLDER, which ODRADEK_SPARK_JARS may name from then on.

    \b
        python -m odradek.spark_jobs.fetch_connector /opt/connector
        export ODRADEK_SPARK_JARS=/opt/connector
    """
    folder.mkdir(parents=True, exist_ok=True)
    with job_session("fetch_connector", "local[1]") as spark:
        names = spark.sparkContext.getConf().get("spark.jars") or ""
        jars = [Path(unquote(urlsplit(name).path)) for name in names.split(",") if name]
        if not jars:
            raise JobError(f"the Spark session names no jars of {connector.CONNECTOR}")
        for jar in jars:
            shutil.copy(jar, folder)
    click.echo(f"fetch_connector: {len(jars)} jars in {folder}; set {connector.JARS_VARIABLE}={folder}", err=True)
    return DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command with these arguments, by default the process's; returns its exit status."""
    return run(command, argv)


if __name__ == "__main__":
    sys.exit(main())
