"""A scripted cluster for parts of the clients: requests are recorded, and a test's function answers each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from odradek.protocol import messages as m
from odradek.protocol.topic_partition import TopicPartition
from odradek.streams.clients.metadata import Leader


class ScriptedNetwork:
    """In place of a ClientNetwork, all of whose channels are open. `answer` returns the response to a request, or an
    exception in place of one.
    """

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self.sent: list[tuple[int, Any]] = []
        """The node and the request, in order."""
        self.login_failure = None
        self._answer = answer
        self._pending: deque[tuple[Any, Callable[[Any, Exception | None], None]]] = deque()

    def ready(self, channel: tuple[int, str]) -> bool:
        """Always."""
        return True

    def supports(self, channel: tuple[int, str], api_key: int, version: int) -> bool:
        """Always."""
        return True

    def knows(self, node: int) -> bool:
        """Always."""
        return True

    def any_node(self) -> int:
        """The first broker."""
        return 0

    def add_node(self, node: int, address: tuple[str, int]) -> None:
        """Not used."""

    def send(self, channel: tuple[int, str], request: Any, on_response: Any, **_: Any) -> None:
        """Record a request."""
        self.sent.append((channel[0], request))
        self._pending.append((request, on_response))

    def poll(self, timeout_s: float = 0) -> None:
        """Answer the requests so far."""
        for _ in range(len(self._pending)):
            request, on_response = self._pending.popleft()
            answer = self._answer(request)
            if isinstance(answer, Exception):
                on_response(None, answer)
            else:
                on_response(answer, None)


class ScriptedMetadata:
    """In place of ClientMetadata: a test sets the leader of all partitions."""

    def __init__(self, node: int, epoch: int) -> None:
        self.current = Leader(node, epoch)
        self.requests = 0

    def leader(self, place: TopicPartition) -> Leader:
        """The current one."""
        return self.current

    def request(self) -> None:
        """Count a request."""
        self.requests += 1


def fetched(request: m.FetchRequest, error_code: int = 0, end: int = 0, records: bytes = b"") -> m.FetchResponse:
    """The response to a fetch of one partition."""
    kind = m.FetchResponse
    part = kind.PartitionData(
        partition_index=request.topics[0].partitions[0].partition,
        error_code=error_code,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=0,
        aborted_transactions=None,
        records=memoryview(records),
    )
    return kind(responses=[kind.FetchableTopicResponse(topic=request.topics[0].topic, partitions=[part])])
