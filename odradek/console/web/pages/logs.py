"""The log inspector: logs of the data directories that the console was started with."""

from __future__ import annotations

from odradek.console.log_inspector import LogInspector
from odradek.console.web.views import BadInputError, Shown, ViewRequest


def list_all(request: ViewRequest) -> Shown:
    """All logs."""
    inspector = LogInspector(request.settings.data_dirs)
    identities = [(path, inspector.identity(number)) for number, path in enumerate(inspector.directories)]
    return Shown("logs.html", {"page": inspector.logs(request.listing("log")), "identities": identities})


def show(request: ViewRequest) -> Shown:
    """One log."""
    directory, name = int(request.params["directory"]), request.params["log"]
    detail = LogInspector(request.settings.data_dirs).detail(directory, name)
    return Shown("log.html", {"detail": detail, "base": f"/logs/{directory}/{name}"})


def show_segment(request: ViewRequest) -> Shown:
    """The batches of a segment."""
    directory, name = int(request.params["directory"]), request.params["log"]
    position = request.number("position", 0) or 0
    if position < 0:
        raise BadInputError("position: a number of bytes from the start of the file")
    try:
        page = LogInspector(request.settings.data_dirs).batches(
            directory, name, int(request.params["base_offset"]), position
        )
    except FileNotFoundError as error:
        raise KeyError(f"segment {request.params['base_offset']}") from error
    return Shown("segment.html", {"page": page, "name": name, "base": f"/logs/{directory}/{name}"})


def show_indexes(request: ViewRequest) -> Shown:
    """The indexes of a segment."""
    directory, name = int(request.params["directory"]), request.params["log"]
    base_offset = int(request.params["base_offset"])
    page = LogInspector(request.settings.data_dirs).indexes(directory, name, base_offset)
    values = {"page": page, "name": name, "base_offset": base_offset, "base": f"/logs/{directory}/{name}"}
    return Shown("indexes.html", values)
