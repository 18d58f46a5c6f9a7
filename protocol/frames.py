"""Frame handler in C: the usual request, from its frame to the queued response, with few Python calls.

`frame_handler` returns the C extension's function where there is one. It reads the header, decodes the request, calls
the handler of its API, encodes the response, puts it into the send queue of the connection and counts it, as the
function `behind` does. It leaves every frame to that function that is not usual: an unknown API or version, a header
without a client id or with tagged fields, a malformed or large request, a client with quotas. It decides this before
the API's handler runs, and nothing has changed by then. A request without a response at once is passed on afterwards;
`reply_function` returns the function of the extension that answers it later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.protocol.net import Connection, FrameHandler
from odradek.protocol.outbox import Outbox
from odradek.protocol.read_turn import ReadTurn

Reply = Callable[[Any, Any], bool]
"""Takes a call and its response. Returns whether the response is queued and counted; if not, nothing has changed."""


class Classes(NamedTuple):
    """The classes whose slots the extension reads and writes."""

    route: type
    call: type
    connection: type
    outbox: type
    metrics: type
    turn: type


class Calls(NamedTuple):
    """What the frame handler calls beside the handlers of APIs."""

    now_ns: Callable[[], int]
    behind: FrameHandler
    """Handles a frame from the start."""
    unanswered: Callable[[Any], None]
    """Takes the call of a handler that has returned no response."""
    failed: Callable[[Any, Exception], None]
    """Takes the call of a handler that has raised, or whose response cannot be encoded."""


def in_c(routes: dict[int, Any], route: type, call: type, metrics: type, *, largest: int, calls: Calls) -> FrameHandler:
    """The function of the extension. `routes` has the routes in use, by API key and version as one number; requests of
    more than `largest` bytes are left to `calls.behind`.
    """
    classes = Classes(route, call, Connection, Outbox, metrics, ReadTurn)
    return _frames.FrameHandler(routes, classes, calls.now_ns, largest, calls.behind, calls.unanswered, calls.failed)


def in_python(
    routes: dict[int, Any], route: type, call: type, metrics: type, *, largest: int, calls: Calls
) -> FrameHandler:
    """The function for an installation without the extension."""
    return calls.behind


def not_in_c(call: Any, response: Any) -> bool:
    """The `Reply` of an installation without the extension."""
    return False


def reply_function(handler: FrameHandler) -> Reply:
    """The function that answers calls later, of a frame handler."""
    reply: Reply = getattr(handler, "reply", not_in_c)
    return reply


try:
    from odradek.protocol import _frames

    _frames.FrameHandler.reply  # noqa: B018  # absent where the extension was built from other sources
    frame_handler = in_c
except (ImportError, AttributeError):  # installed without a compiler, or built from older sources
    frame_handler = in_python
