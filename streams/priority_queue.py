"""Priority queue with the order of Java's queues for equal entries (java.util.PriorityQueue).

Kafka Streams keeps partitions and punctuators in priority queues (PartitionGroup, PunctuationQueue). The order of two
entries with the same time is visible in the output, and follows from how java.util.PriorityQueue moves its entries,
which differs from heapq.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class PriorityQueue(Generic[T]):
    """java.util.PriorityQueue: the lowest rank first, and those of equal rank in Java's order."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, T]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()

    def peek(self) -> tuple[int, T] | None:
        """The first with its rank; None where there is none."""
        return self._entries[0] if self._entries else None

    def offer(self, rank: int, item: T) -> None:
        """Add an entry."""
        entries = self._entries
        at = len(entries)
        entries.append((rank, item))
        while at:
            parent = (at - 1) >> 1
            if rank >= entries[parent][0]:
                break
            entries[at] = entries[parent]
            at = parent
        entries[at] = (rank, item)

    def poll(self) -> T | None:
        """Remove and return the first; None where there is none."""
        entries = self._entries
        if not entries:
            return None
        first, last = entries[0], entries.pop()
        size = len(entries)
        if size:
            at, rank = 0, last[0]
            while at < size >> 1:
                child = 2 * at + 1
                if child + 1 < size and entries[child][0] > entries[child + 1][0]:
                    child += 1
                if rank <= entries[child][0]:
                    break
                entries[at] = entries[child]
                at = child
            entries[at] = last
        return first[1]
