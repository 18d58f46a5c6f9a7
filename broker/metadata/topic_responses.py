"""Encoded topics of responses, cached until their metadata changes.

Hundreds of clients request the metadata of thousands of partitions, mostly at the same time after a leader has changed,
and all get the same bytes. So the bytes of a topic are kept together with the `TopicMetadata` that they encode. These
objects are immutable and replaced as a whole (`cache`): bytes are valid while the topic's metadata is the same object
and everything else that they depend on is equal, and they are dropped when the metadata is replaced.

The size of the cache is bounded. When it is full, the least recently requested form is dropped with all its topics,
such as a version that no client uses any more. If one form alone is too large, the rest of it is encoded each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from odradek.broker.metadata.cache import MetadataCache, TopicMetadata
from odradek.broker.runtime.turns import each as items_of
from odradek.protocol.encoded import EncodedElement

MOST_BYTES: Final = 16 * 1024 * 1024
"""The limit for one API of a broker. A topic of 1,000 partitions with three replicas takes some 42 KB in one form."""
OVERHEAD_BYTES: Final = 300
"""What an element takes beside its bytes: its objects and its entry in a dictionary."""


class _Form:
    """The topics in one form, by name."""

    __slots__ = ("circumstances", "kept", "size_bytes")

    def __init__(self, circumstances: Hashable) -> None:
        self.circumstances = circumstances
        self.kept: dict[str, tuple[TopicMetadata, EncodedElement]] = {}
        self.size_bytes = 0


class TopicAnswers:
    """The encoded topics of one API's responses."""

    def __init__(self, metadata_cache: MetadataCache, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._forms: dict[Hashable, _Form] = {}  # the most recently requested form is last
        metadata_cache.watch_topics(self._forget)

    @property
    def size_bytes(self) -> int:
        """The size of the cache in bytes, with the overhead; never more than `most_bytes`."""
        return sum(form.size_bytes for form in self._forms.values())

    def of(
        self,
        topics: Iterable[TopicMetadata],
        form: Hashable,
        circumstances: Hashable,
        make: Callable[[TopicMetadata], EncodedElement],
    ) -> list[EncodedElement]:
        """The elements of these topics; those that are not cached are encoded.

        `form` is what clients choose: the cache keeps several forms. `circumstances` are what else the elements depend
        on: when they change, all cached elements of the form are dropped.
        """
        in_form = self._forms.pop(form, None)
        if in_form is None or in_form.circumstances != circumstances:
            in_form = _Form(circumstances)
        self._forms[form] = in_form
        kept, found = in_form.kept, []
        for topic in items_of(topics):
            known = kept.get(topic.name)
            if known is None or known[0] is not topic:
                known = (topic, make(topic))
                self._keep(in_form, known)
            found.append(known[1])
        return found

    def partitions_to_encode(self, topics: Iterable[TopicMetadata], form: Hashable, circumstances: Hashable) -> int:
        """How many partitions the topics have that `of` would encode."""
        in_form = self._forms.get(form)
        if in_form is None or in_form.circumstances != circumstances:
            return sum(len(topic.partitions) for topic in topics)
        kept = in_form.kept
        return sum(
            len(topic.partitions)
            for topic in topics
            if (known := kept.get(topic.name)) is None or known[0] is not topic
        )

    def _keep(self, form: _Form, known: tuple[TopicMetadata, EncodedElement]) -> None:
        """Keep an element if there is room, or if other forms can make room."""
        topic, element = known
        _drop(form, topic.name)
        needed = _size(element)
        free = self._most_bytes - self.size_bytes
        while needed > free:
            oldest = next(iter(self._forms))
            if self._forms[oldest] is form:
                return
            free += self._forms.pop(oldest).size_bytes
        form.kept[topic.name] = known
        form.size_bytes += needed

    def _forget(self, name: str) -> None:
        """Drop a topic whose metadata has changed."""
        for form in self._forms.values():
            _drop(form, name)


def _drop(form: _Form, name: str) -> None:
    if (known := form.kept.pop(name, None)) is not None:
        form.size_bytes -= _size(known[1])


def _size(element: EncodedElement) -> int:
    return len(element.data) + OVERHEAD_BYTES
