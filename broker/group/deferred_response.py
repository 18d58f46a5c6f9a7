"""Deferred response: sends the response to a group request during the call or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from odradek.broker.network.dispatcher import Call

Result = TypeVar("Result")


class DeferredResponse(Generic[Result]):
    """The answer of a request, given during the call or later.

    A handler passes it as the token of the request and then returns `response()`: the response when the group has
    already given it, otherwise None, and `Call.reply` sends the answer later.
    """

    __slots__ = ("_call", "_deferred", "_reply_long", "_response", "_translate")

    def __init__(
        self,
        call: Call,
        translate: Callable[[Call, Result], Any],
        reply_long: Callable[[Call, Result], bool] | None = None,
    ) -> None:
        """`translate` makes the response; `reply_long` first returns whether it makes and sends a long one itself."""
        self._call: Call | None = call
        self._translate = translate
        self._reply_long = reply_long
        self._deferred = False
        self._response: Any = None

    def __call__(self, result: Result) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        if self._deferred:
            call.operation = None
        if self._reply_long is not None and self._reply_long(call, result):
            return
        response = self._translate(call, result)
        if self._deferred:
            call.reply(response)
        else:
            self._response = response

    def response(self) -> Any:
        """Return the response if there is one; a later answer is sent when it is given."""
        self._deferred = True
        if self._call is not None:
            self._call.operation = self
        return self._response

    def client_left(self) -> None:
        """The client has disconnected: keep nothing of its request.

        The group takes no notice, as in Kafka: a member whose JoinGroup or SyncGroup waits stays until the rebalance is
        complete, or until the timeout for new members; then its session begins, and expires without heartbeats.
        """
        self._call = None
