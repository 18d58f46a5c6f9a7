"""What answers say of topics, encoded once and kept until it is something else.

Hundreds of clients ask for the metadata of thousands of partitions, most of all at once after a leader has changed,
and all get the same bytes. So the bytes of a topic are kept together with the view that they were made of. Views are
immutable and replaced as a whole (`cluster_view`): bytes hold while the view is the same object and everything else
that they depend on is equal, and they go when the view goes.

What is kept is bounded. Where there is no more room, what was not asked for the longest goes: all answers of one form,
such as a version that no client speaks any more. If one form alone is too large, the rest of it is made anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from odradek.broker.metadata.cache import MetadataCache, TopicMetadata
from odradek.protocol.encoded import EncodedElement

MOST_BYTES: Final = 16 * 1024 * 1024
"""For one API of a broker. A topic of 1,000 partitions with three replicas takes some 42 KB in one form."""
OVERHEAD_BYTES: Final = 300
"""What an element takes beside its bytes: its objects and its place in a dictionary."""


class _Form:
    """The topics in one form, by name."""

    __slots__ = ("circumstances", "kept", "size_bytes")

    def __init__(self, circumstances: Hashable) -> None:
        self.circumstances = circumstances
        self.kept: dict[str, tuple[TopicMetadata, EncodedElement]] = {}
        self.size_bytes = 0


class TopicAnswers:
    """The topics of one API, as its answers have them."""

    def __init__(self, metadata_cache: MetadataCache, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._forms: dict[Hashable, _Form] = {}  # the one that was asked for last stands last
        metadata_cache.watch_topics(self._forget)

    @property
    def size_bytes(self) -> int:
        """How much is kept, in bytes, with the overhead; never more than `most_bytes`."""
        return sum(form.size_bytes for form in self._forms.values())

    def of(
        self,
        topics: Iterable[TopicMetadata],
        form: Hashable,
        circumstances: Hashable,
        make: Callable[[TopicMetadata], EncodedElement],
    ) -> list[EncodedElement]:
        """The elements of these topics; what is not kept is made.

        `form` is what clients choose: several stand side by side. `circumstances` are what else the elements depend on:
        where they are others than the last time, nothing of the form holds any more.
        """
        in_form = self._forms.pop(form, None)
        if in_form is None or in_form.circumstances != circumstances:
            in_form = _Form(circumstances)
        self._forms[form] = in_form
        kept, found = in_form.kept, []
        for topic in topics:
            known = kept.get(topic.name)
            if known is None or known[0] is not topic:
                known = (topic, make(topic))
                self._keep(in_form, known)
            found.append(known[1])
        return found

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
        """What is said of this topic has changed."""
        for form in self._forms.values():
            _drop(form, name)


def _drop(form: _Form, name: str) -> None:
    if (known := form.kept.pop(name, None)) is not None:
        form.size_bytes -= _size(known[1])


def _size(element: EncodedElement) -> int:
    return len(element.data) + OVERHEAD_BYTES
