"""One run of a script of admin requests against one broker, and the transcript of its responses."""

from __future__ import annotations

from typing import Any

from odradek.protocol import messages as m
from tests.broker.wire import Client, batch
from tests.support.eventually import eventually_async


class Script:
    """One run of a script against one broker, and the transcript of the responses."""

    def __init__(self, client: Client, topic: str) -> None:
        self.topic = topic
        self.transcript: list[str] = []
        self._client = client

    async def begin(self) -> None:
        """A topic of two partitions with a record in the first."""
        await eventually_async(lambda: self._client.ask(m.MetadataRequest(topics=[]), 7), lambda answer: answer.brokers)
        await self._client.create_topic(self.topic, 2)
        assert (await self._client.produce(self.topic, batch(b"value"), version=9)).error_code == 0

    async def quietly(self, request: Any, version: int) -> Any:
        """Send and wait; the response is not compared."""
        return await self._client.ask(request, version)

    async def ask(self, request: Any, *versions: int) -> Any:
        """Send in each of these versions (by default all that Kafka 3.9 has), wait, record."""
        for version in versions or range(*_spoken(type(request))):
            answer = await self._client.ask(request, version)
            self.note(f"{type(request).__name__} v{version}", answer)
        return answer

    def note(self, what: str, answer: Any) -> None:
        """Record a response."""
        _tidy(answer)
        self.transcript.append(f"{what}: {answer!r}".replace(self.topic, "TOPIC"))


def _spoken(request: type) -> tuple[int, int]:
    """The versions of an API that Kafka 3.9 supports, as a range."""
    newest = {m.AlterPartitionReassignmentsRequest: 0, m.DescribeLogDirsRequest: 4}
    return request.MIN_VERSION, newest.get(request, request.MAX_VERSION) + 1  # type: ignore[attr-defined, operator]


def _tidy(part: Any) -> None:
    """Sort unordered fields, and replace messages by their presence."""
    if getattr(part, "error_message", None):
        part.error_message = "said"
    if hasattr(part, "topic_id"):
        part.topic_id = b""
    for name in (
        "configs",
        "topics",
        "results",
        "responses",
        "partitions",
        "replica_election_results",
        "partition_result",
    ):
        items = getattr(part, name, None) or []
        for item in items:
            _tidy(item)
        items.sort(key=repr)
