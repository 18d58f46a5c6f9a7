"""Garbage collection: fewer searches for reference cycles while an application runs.

Python searches the young objects for cycles once 700 more exist than at the last search (`gc.set_threshold`), and all
objects when enough of them have survived. A poll returns up to 1,000 records, so each poll would start searches whose
every object is in use: of a count with exactly-once processing they took 12 % of the CPU time. Reference counts free
records and cache entries without a search. So the threshold is raised while applications run; cycles, as exceptions
create them, are freed as before, only a few thousand objects later.
"""

from __future__ import annotations

import gc
import threading
from typing import Final

Threshold = tuple[int, int, int]


class YoungObjectThreshold:
    """The threshold of this process, which its applications raise. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: list[int] = []
        """One number for each application that runs."""
        self._before: Threshold = gc.get_threshold()
        self._raised = self._before

    def hold(self, objects: int) -> None:
        """An application starts: collect no sooner than after so many new objects."""
        with self._lock:
            if not self._wanted:
                self._before = self._raised = gc.get_threshold()
            self._wanted.append(objects)
            self._set()

    def release(self, objects: int) -> None:
        """An application that called `hold` has ended; the last one restores the threshold."""
        with self._lock:
            self._wanted.remove(objects)
            self._set()

    def _set(self) -> None:
        young, middle, old = self._before
        if young == 0 or gc.get_threshold() != self._raised:  # switched off, or changed by the program meanwhile
            return
        self._raised = (max(young, *self._wanted, 0), middle, old)
        gc.set_threshold(*self._raised)


YOUNG_OBJECTS: Final = YoungObjectThreshold()
"""The one of this process."""
