"""The command `odradek streams describe`: draws a topology, with the measurements of a running application.

Exit status: 0; 1 where the metrics page cannot be read or the file not be written; 2 where the application or an option
cannot be used.

Modules that the command needs are imported when it runs: every command of `odradek` imports this one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.streams_application import application_argument, fail, load_application

if TYPE_CHECKING:
    from odradek.metrics_source import MetricsSource
    from odradek.streams.topology import Topology
    from odradek.streams.topology_view.measurements import Measurements

_INTERVAL_S: Final = 1.0
"""Between the two pages from which the first rates are computed."""


@click.command()
@application_argument
@click.option("--metrics", "url", metavar="URL", help="Add the measurements of the metrics page of an application.")
@click.option("--from", "address", metavar="HOST:PORT", help="The same, for a page at HOST:PORT/metrics.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["tree", "kafka", "json"]),
    default="tree",
    show_default=True,
    help="A tree; the text of Kafka's Topology.describe(); or the data of both as JSON.",
)
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a picture.")
@click.option("--watch", is_flag=True, help="Refresh each second until Ctrl-C, on a terminal. Needs a metrics page.")
def describe(
    application: str,
    app_dir: Path,
    url: str | None,
    address: str | None,
    form: str,
    svg: Path | None,
    watch: bool,
) -> None:
    """Draw the topology of a stream application: sub-topologies, nodes, topics and stores.

    MODULE:TOPOLOGY is a Topology, a StreamsBuilder, or a function that returns one. With --metrics or --from, the page
    of `odradek streams run --metrics` or of the application itself, each node has its records per second, and the
    average time that one record takes in it; each store its size; each topic its lag. Nodes other than sources are
    measured where the application has metrics.recording.level=DEBUG.
    """
    from odradek.live_screen import show
    from odradek.metrics_source import MetricsSource, PageError

    if url is not None and address is not None:
        raise click.UsageError("--metrics cannot be used with --from")
    if watch and url is None and address is None:
        raise click.UsageError("--watch needs --metrics or --from")
    topology = load_application(application, app_dir)
    where = url or address
    drawing = _Drawing(topology, MetricsSource(where) if where is not None else None)
    try:
        if svg is not None:
            svg.write_text(drawing.svg(), encoding="utf-8")
            click.echo(f"wrote {svg}")
            return
        show({"tree": drawing.tree, "kafka": topology.describe, "json": drawing.json}[form], live=watch)
    except PageError as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot write {svg}: {error.strerror}")


class _Drawing:
    """A topology and the metrics page of its application, which is read for each drawing."""

    def __init__(self, topology: Topology, source: MetricsSource | None) -> None:
        from odradek.streams.topology_view.model import view_of

        self._view = view_of(topology)
        self._source = source
        self._before: tuple[float, Measurements] | None = None

    def tree(self) -> str:
        """The tree. Raises PageError."""
        from odradek.streams.topology_view.tree import as_ascii, draw

        text = draw(self._view, self._measure())
        try:
            text.encode(sys.stdout.encoding or "ascii")
        except UnicodeEncodeError:
            return as_ascii(text)
        return text

    def json(self) -> str:
        """The data. Raises PageError."""
        measured = self._measure()
        data = {"topology": self._view.as_json(), "measurements": None if measured is None else measured.as_json()}
        return json.dumps(data, indent=2)

    def svg(self) -> str:
        """The picture. Raises PageError."""
        from odradek.streams.picture import NO_NOTES, picture
        from odradek.streams.topology_view.annotations import notes_of

        measured = self._measure()
        return picture(self._view, NO_NOTES if measured is None else notes_of(self._view, measured))

    def _measure(self) -> Measurements | None:
        """The measurements, with rates since the page before; the first time that page is read, too."""
        if self._source is None:
            return None
        if self._before is None:
            self._before = time.monotonic(), self._read(self._source)
            time.sleep(_INTERVAL_S)
        at, before = self._before
        measured, now = self._read(self._source), time.monotonic()
        measured.measure_rates(before, now - at)
        self._before = now, measured
        return measured

    @staticmethod
    def _read(source: MetricsSource) -> Measurements:
        from odradek.metrics_source import PageError
        from odradek.streams.topology_view.measurements import measurements_of

        try:
            return measurements_of(source.read())
        except ValueError as error:
            raise PageError(f"cannot read {source.url}: {error}") from error
