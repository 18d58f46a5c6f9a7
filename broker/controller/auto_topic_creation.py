"""Automatic topic creation, for a client's Metadata request or a group that needs its coordinator log (Kafka:
AutoTopicCreationManager).

Any broker can receive a request that needs a new topic, and only the controller creates topics: the broker sends the
controller a CreateTopics request. A created topic reaches this broker's metadata cache a little later, with the next
UpdateMetadata request. `TopicsKnown` waits for that, so that a client gets no error for a topic that exists.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from odradek.broker.metadata.cache import NO_LEADER, MetadataCache
from odradek.broker.network.controller_channel import SendToController
from odradek.broker.network.inter_broker_connection import PeerLostError
from odradek.broker.runtime.timers import Clock, Timer, Timers
from odradek.broker.runtime.turns import each as items_of
from odradek.broker.runtime.turns import keep, later
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode

log = logging.getLogger(__name__)

BROKER_DEFAULT = -1
TIMEOUT_MS = 5_000
DEADLINE_MS = 3_000
"""How long a request waits for its topics. Kafka answers such a client with a retriable error at once; Odradek does so
only where the controller does not answer within this time."""
CHECKED_AT_ONCE: Final = 500
"""Topics that a wait checks in one iteration of the event loop: a millisecond for topics of one partition."""
T = TypeVar("T")
Creatable = m.CreateTopicsRequest.CreatableTopic
CreatableConfig = m.CreateTopicsRequest.CreatableTopicConfig


@dataclass(frozen=True, slots=True)
class AutoCreatedTopic:
    """A topic that a broker needs; -1 leaves a number to the controller's configuration."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: dict[str, str] = field(default_factory=dict)


Outcomes = dict[str, ErrorCode]
"""The result of each topic's creation; REQUEST_TIMED_OUT where the result is unknown."""


class TopicsKnown:
    """Waits until the metadata cache of this broker has topics and their leaders."""

    def __init__(self, metadata_cache: MetadataCache, clock: Clock, timers: Timers) -> None:
        """`metadata_cache` calls its watchers when it changes."""
        self._metadata_cache = metadata_cache
        self._clock = clock
        self._timers = timers

    def wait(self, topics: Iterable[str] | Mapping[str, int], timeout_ms: int, done: Callable[[], None]) -> None:
        """Call `done` once, when all of these topics have leaders (for at least the given number of partitions if
        `topics` maps to numbers) or the timeout has expired; possibly before this returns.
        """
        missing = list(topics.items() if isinstance(topics, Mapping) else ((topic, 1) for topic in topics))
        self.wait_for_each(missing, lambda item: self.knows(*item), timeout_ms, done)

    def knows(self, topic: str, partitions: int = 1, topic_id: bytes | None = None) -> bool:
        """Whether the metadata cache has leaders of all partitions of the topic, and at least this many partitions.

        With `topic_id` a topic of this name with another id does not count: it was deleted before.
        """
        metadata_cache = self._metadata_cache.topics.get(topic)
        if metadata_cache is not None and topic_id is not None and metadata_cache.topic_id != topic_id:
            return False
        known = metadata_cache.partitions if metadata_cache is not None else ()
        return len(known) >= partitions and all(each.leader != NO_LEADER for each in known)

    def wait_until(self, holds: Callable[[], bool], timeout_ms: int, done: Callable[[], None]) -> None:
        """Call `done` once, when `holds` returns true after a change of the metadata cache or the timeout has expired;
        possibly before this returns.
        """
        self.wait_for_each([None], lambda _: holds(), timeout_ms, done)

    def wait_for_each(
        self, left: list[T], holds: Callable[[T], bool], timeout_ms: int, done: Callable[[], None]
    ) -> None:
        """Call `done` once, when `holds` has returned true for each item, after changes of the metadata cache, or the
        timeout has expired; possibly before this returns.

        Items for which it holds are removed from `left`, CHECKED_AT_ONCE in one iteration of the event loop: one change
        may be that of thousands of topics. What is left at the end does not hold or was not checked.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        _Wait(self._metadata_cache, left, holds, done).start(self._timers, deadline_ms)


class _Wait(Generic[T]):
    """One call of `wait_for_each`. Two closures that refer to each other would be a cycle, which only the garbage
    collector frees.
    """

    __slots__ = ("_done", "_handle", "_holds", "_left", "_metadata_cache", "_timer")

    def __init__(
        self, metadata_cache: MetadataCache, left: list[T], holds: Callable[[T], bool], done: Callable[[], None]
    ) -> None:
        self._metadata_cache = metadata_cache
        self._left = left
        self._holds = holds
        self._done = done
        self._timer: Timer | None = None
        self._handle: asyncio.Handle | None = None
        """The next part of a check."""

    def start(self, timers: Timers, deadline_ms: int) -> None:
        self._metadata_cache.watch(self._check)
        self._timer = timers.at(deadline_ms, self._finish)
        self._check()

    def _check(self) -> None:
        if self._handle is None:
            self._check_part()

    def _check_part(self) -> None:
        self._handle = None
        for _ in range(CHECKED_AT_ONCE):
            if not self._left:
                self._finish()
                return
            if not self._holds(self._left[-1]):
                return
            self._left.pop()
        self._handle = asyncio.get_running_loop().call_soon(self._check_part)

    def _finish(self) -> None:
        self._metadata_cache.unwatch(self._check)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._done()


class TopicCreator:
    """Sends CreateTopics requests to the controller."""

    def __init__(self, send_request: SendToController, known: TopicsKnown, clock: Clock, timers: Timers) -> None:
        """`send_request` sends a request to the controller."""
        self._send_request = send_request
        self._known = known
        self._clock = clock
        self._timers = timers
        self._under_way: dict[str, list[Callable[[str, ErrorCode], None]]] = {}

    def is_creating(self, name: str) -> bool:
        """Whether a request for this topic is pending."""
        return name in self._under_way

    def create(self, wanted: list[AutoCreatedTopic], done: Callable[[Outcomes], None]) -> None:
        """Create topics that do not exist. `done` receives the results once the metadata cache has the topics, once
        the controller has rejected them, or after DEADLINE_MS.

        A topic that a pending request already creates is not requested again.
        """
        outcomes: Outcomes = keep({})
        left = keep({topic.name for topic in items_of(wanted)})

        def settle(name: str, code: ErrorCode) -> None:
            if name in left:
                left.discard(name)
                outcomes[name] = code
                if not left:
                    timer.cancel()
                    done(outcomes)

        def give_up() -> None:
            for name in items_of(list(left)):
                settle(name, ErrorCode.REQUEST_TIMED_OUT)

        timer = self._timers.at(self._clock.monotonic_ms() + DEADLINE_MS, later(give_up))
        new = []
        once = keep({topic.name: topic for topic in items_of(wanted)})
        for topic in items_of(once.values()):
            waiting = self._under_way.setdefault(topic.name, [])
            waiting.append(settle)
            if len(waiting) == 1:
                new.append(topic)
        if new:
            names = keep([topic.name for topic in items_of(new)])
            self._send_request(keep(_request(new)), self._answered, lambda error: self._lost(names, error))

    def _answered(self, response: m.CreateTopicsResponse) -> None:
        keep(response)
        codes = keep({result.name: ErrorCode(result.error_code) for result in items_of(response.topics)})
        found = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        made = keep({name for name, code in items_of(codes.items()) if code in found})
        for name, code in items_of(codes.items()):
            if name not in made:
                self._settle(name, code)
        if made:
            self._known.wait(made, TIMEOUT_MS, lambda: self._made(made))

    def _made(self, names: Iterable[str]) -> None:
        for name in items_of(names):
            self._settle(name, ErrorCode.NONE)

    def _lost(self, names: list[str], error: PeerLostError) -> None:
        log.info("topic creation request failed topics=%s error=%s", names, error)
        for name in items_of(names):
            self._settle(name, ErrorCode.REQUEST_TIMED_OUT)

    def _settle(self, name: str, code: ErrorCode) -> None:
        for settle in self._under_way.pop(name, ()):
            settle(name, code)


def _request(topics: list[AutoCreatedTopic]) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(
        topics=[
            Creatable(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[CreatableConfig(name=name, value=value) for name, value in topic.configs.items()],
            )
            for topic in items_of(topics)
        ],
        timeout_ms=TIMEOUT_MS,
    )
