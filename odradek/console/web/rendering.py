"""Templates: every value is escaped (Jinja's autoescape), and an undefined name is an error."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
import js_lib_htmx  # htmx as a package

from odradek.console.timeline import ChangeKind, ClusterChange

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
DASH: Final = "–"
HTMX_INTEGRITY: Final = "sha384-0895/pl2MU10Hqc6jd4RvrthNlDiE9U1tWmX7WRESftEDRosgxNsQG/Ze9YMRzHq"
"""Of htmx.min.js 2.0.3: the browser runs no other file."""


def bytes_text(value: float | None) -> str:
    """A size with a unit of 1024: 1.5 KiB."""
    if value is None:
        return DASH
    size, unit = float(value), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.1f} {_UNITS[unit]}"


def number_text(value: float | None) -> str:
    """A number with commas."""
    return DASH if value is None else f"{value:,.0f}"


def rate_text(value: float | None) -> str:
    """A number for each second: small ones with a decimal."""
    if value is None:
        return DASH
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def duration_text(seconds: float) -> str:
    """A duration in its largest unit, and the next."""
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s" if seconds % 60 and seconds < 600 else f"{seconds // 60} min"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600} h"


def clock_text(time_s: float) -> str:
    """A time of day in UTC, with the date where it is not today's."""
    moment = time.gmtime(time_s)
    today = time.strftime("%Y-%m-%d", moment) == time.strftime("%Y-%m-%d", time.gmtime())
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", moment) + "Z"


def ids_text(values: Sequence[int]) -> str:
    """Broker ids with commas."""
    return ", ".join(map(str, values)) or DASH


def words_text(name: str) -> str:
    """A name in capitals as words: DYNAMIC_TOPIC_CONFIG."""
    return name.replace("_", " ").lower()


def change_path(change: ClusterChange) -> str:
    """The page about the object of an event; empty where it names several."""
    subject = change.subject
    if subject.endswith("…"):
        return ""
    if change.kind in (ChangeKind.GROUP, ChangeKind.REBALANCE):
        return link("/group", id=subject)
    if change.kind in (ChangeKind.BROKER, ChangeKind.CONTROLLER):
        number = subject.removeprefix("broker ")
        return f"/brokers/{number}" if number.isdigit() else ""
    topic = subject if change.kind == ChangeKind.TOPIC else subject.rpartition("-")[0]
    return f"/topics/{quote(topic, safe='')}"


def link(path: str, **query: Any) -> str:
    """A path with a query; values that are empty are left out."""
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path


def static_version(name: str) -> str:
    """A part of the digest of a static file: a browser loads a new version when the file changes."""
    return hashlib.sha256(static_file(name)).hexdigest()[:12]


@functools.cache
def static_file(name: str) -> bytes:
    """A file of `static/`, or htmx. Raises FileNotFoundError."""
    if name == "htmx.min.js":
        return importlib.resources.files(js_lib_htmx).joinpath("static/htmx/htmx.min.js").read_bytes()
    return importlib.resources.files("odradek.console.web").joinpath("static", name).read_bytes()


@functools.cache
def environment() -> jinja2.Environment:
    """The templates with their filters."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("odradek.console.web", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        bytes=bytes_text,
        number=number_text,
        rate=rate_text,
        duration=duration_text,
        clock=clock_text,
        ids=ids_text,
        words=words_text,
        change_path=change_path,
        segment=lambda text: quote(str(text), safe=""),
    )
    made.globals.update(
        link=link,
        static_version=functools.cache(static_version),
        htmx_integrity=HTMX_INTEGRITY,
    )
    return made


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """A page."""
    return environment().get_template(template).render(values)
