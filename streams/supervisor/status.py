"""Status protocol between the supervisor and a worker: JSON objects, one a line, over a pair of connected sockets.

    worker -> supervisor   {"topology": "..."}                        the document of its topology, at its start
    worker -> supervisor   {"state": "RUNNING"}                       at each change of the client's state
    supervisor -> worker   {"collect": 7}                             at each scrape of the metrics page
    worker -> supervisor   {"collect": 7, "samples": [[name, labels, value], ...]}

The end of the stream is a message, too: a worker closes its client when the supervisor has ended, however it ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes of one message; a sample takes about 200."""


class StatusError(ValueError):
    """A line that is no message of the protocol."""


class Sample(NamedTuple):
    """One number of the metrics page."""

    name: str
    labels: Mapping[str, str]
    value: float


class StateChanged(NamedTuple):
    """The client has a new state, by the name of its constant."""

    state: str


class TopologyLoaded(NamedTuple):
    """The worker has loaded the application; the document is that of `topology_view/document.py`."""

    document: str


class CollectRequest(NamedTuple):
    """The supervisor requests the metrics."""

    number: int


class CollectResponse(NamedTuple):
    """The metrics of the worker; `number` is that of the request."""

    number: int
    samples: Sequence[Sample]


Message = TopologyLoaded | StateChanged | CollectRequest | CollectResponse


def encode(message: Message) -> bytes:
    """The line of a message, with its end."""
    match message:
        case TopologyLoaded(document):
            fields: dict[str, Any] = {"topology": document}
        case StateChanged(state):
            fields = {"state": state}
        case CollectRequest(number):
            fields = {"collect": number}
        case CollectResponse(number, samples):
            fields = {"collect": number, "samples": samples}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message of a line. Raises StatusError."""
    try:
        fields = json.loads(line)
        if "topology" in fields:
            return TopologyLoaded(str(fields["topology"]))
        if "state" in fields:
            return StateChanged(str(fields["state"]))
        if "samples" in fields:
            samples = [Sample(str(name), dict(labels), float(value)) for name, labels, value in fields["samples"]]
            return CollectResponse(int(fields["collect"]), samples)
        return CollectRequest(int(fields["collect"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StatusError(f"no message of the status protocol: {line[:200]!r}") from error
