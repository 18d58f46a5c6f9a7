"""Pending calls of an asynchronous operator: the records whose results have not been forwarded yet.

Results leave a node in the order of its input. A result that is there early waits for those before it, and counts
against `concurrency` until it is forwarded (as in Flink's ordered asynchronous wait), so that a slow call stops the
intake instead of filling a buffer. The stream thread alone forwards results, calls handlers and checks timeouts, so no
node is ever called by two threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from odradek.streams.calls import AsyncCall, CallRunner, CoroutineFunction
from odradek.streams.errors import StreamsError
from odradek.streams.event_loop import event_loop
from odradek.streams.nodes import NodeContext, failed
from odradek.streams.recorded_metrics import CallMetrics
from odradek.streams.records import Headers

Output = Callable[[AsyncCall], tuple[Any, Any]]
"""The key and the value that a finished call forwards. Raises where the result has another form."""


class NodeCalls:
    """The pending calls of one node of one task, in the order of its input."""

    def __init__(
        self, node: NodeContext, function: CoroutineFunction, concurrency: int, timeout_s: float, output: Output
    ) -> None:
        context = node.task
        if context.results_ready is None:
            context.results_ready = threading.Event()
        self.name = node.name
        self.metrics = CallMetrics()
        self.ready = context.results_ready
        self.pending: deque[AsyncCall] = deque()
        """All calls whose results have not been forwarded."""
        self._context = context
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._output = output
        self._forward = node.forward
        self._new: list[AsyncCall] = []
        """The last of the pending calls, which the event loop has not received yet."""
        self._runner = CallRunner(event_loop(), function, concurrency, self.ready)
        node.on_close(self._close)

    def add(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """The function of the node: make a call for a record. `start` starts it."""
        call = AsyncCall(key, value, timestamp, headers, self._context)
        self._context.commit_needed = True
        self.pending.append(call)
        self._new.append(call)

    def start(self) -> None:
        """Start the new calls, all of them by one message to the event loop."""
        if self._new:
            new, self._new = self._new, []
            self._runner.start(new)

    @property
    def room(self) -> int:
        """How many records the node may take. A flat_map or a flush of a cache before it may add more."""
        return max(0, self._concurrency - len(self.pending))

    @property
    def has_result(self) -> bool:
        """Whether `forward` has anything to do."""
        return bool(self.pending) and self._is_over(self.pending[0])

    def forward(self) -> int:
        """Forward the results that are next in order. Returns how many. Raises StreamsError."""
        context, pending = self._context, self.pending
        stream_time, count = context.stream_time, 0
        try:
            while pending and self._is_over(pending[0]):
                self._finish(pending.popleft())
                count += 1
        finally:
            context.stream_time = stream_time
        if count:
            context.topic = context.source_message = None
        return count

    def _is_over(self, call: AsyncCall) -> bool:
        started_s = call.started_s
        return call.done or (started_s is not None and time.monotonic() - started_s > self._timeout_s)

    def _finish(self, call: AsyncCall) -> None:
        context = self._context
        call.restore(context)
        try:
            key, value = self._output_of(call)
        except StreamsError:
            raise
        except Exception as error:
            failed(context, self.name, call.key, call.value, error)
            return
        self._forward(key, value, call.timestamp, call.headers)

    def _output_of(self, call: AsyncCall) -> tuple[Any, Any]:
        """Raises the error of the function, or TimeoutError."""
        if not call.done:
            self._runner.abandon(call)
            self.metrics.timeouts += 1
            raise TimeoutError(f"no result within {self._timeout_s:g} s, the timeout of {self.name}")
        assert call.started_s is not None
        self.metrics.latency.record((call.ended_s - call.started_s) * 1000)
        error, call.error = call.error, None  # the error refers to the call by its traceback
        if error is None:
            return self._output(call)
        if isinstance(error, Exception):
            raise error
        raise RuntimeError(f"the function of {self.name} ended by {error!r}") from error

    def _close(self) -> None:
        self.pending.clear()
        self._new.clear()
        self._runner.cancel()
