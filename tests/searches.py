"""How hypothesis searches: the same way in every run of the tests, and anew in `make explore`.

    ODRADEK_EXPLORE=20     twenty times the examples that a test names, drawn from `--hypothesis-seed`
    (unset)                two fifths of them in a quick test, all in a slow one, the same ones in every run

Hypothesis draws from the constants in the modules that the process has imported so far, so it would depend on the tests
that ran before on the same worker. Neither kind of search uses them: a seed means the same examples in every process.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

FACTOR: Final = int(os.environ.get("ODRADEK_EXPLORE", "0"))
"""How many times as many examples; 0 for the search that is always the same."""
SEED: Final = 1
MOST_EXAMPLES: Final = 100
"""The default of hypothesis, for a test that sets no number."""
SHARE: Final = 0.4
"""How many of the examples that a quick test names it draws without `make explore`. Examples that are the same in every
run find a mistake of today's change; the rare ones are for `make explore`.
"""
CLIENTS: Final = ("kazoo.", "kafka.", "aiokafka.")
"""The modules of client libraries in Python that draw random numbers."""
FEW: Final = 10
"""The examples that a test draws at least, where it names as many."""
_OF_CLIENTS: Final = random.Random(SEED)
_newest_module: object = None
"""The module that was loaded last when `seed_random` looked."""


def load() -> None:
    """Set up hypothesis, before any test module is imported."""
    # The time of an example depends on the machine; a test that sets its number of examples sets its own time.
    settings.register_profile("odradek", deadline=None, derandomize=True, print_blob=True)
    phases = (Phase.explicit, Phase.generate, Phase.shrink)
    settings.register_profile(
        "explore",
        deadline=None,
        database=None,
        print_blob=True,
        phases=phases,
        max_examples=MOST_EXAMPLES * max(FACTOR, 1),
    )
    settings.load_profile("explore" if FACTOR else "odradek")
    without_modules = providers._local_constants
    providers._get_local_constants = lambda: without_modules
    os.environ.setdefault("PYTHONHASHSEED", "0")  # of the processes that this one starts


def seed_random() -> None:
    """Give a test the same numbers of the module `random` wherever it runs."""
    global _newest_module
    newest = sys.modules[next(reversed(sys.modules))]
    if newest is not _newest_module:  # thousands are loaded, and nearly no test loads another
        separate_clients()
        _newest_module = newest
    random.seed(SEED)
    _OF_CLIENTS.seed(SEED)


def separate_clients() -> None:
    """Give the loaded modules of client libraries a generator of their own.

    Their threads draw pauses: kazoo's before each ping of a session. From the module `random`, they would take numbers
    of the test, and Hypothesis would blame the strategy whose example it draws at that moment.
    """
    for name, module in tuple(sys.modules.items()):
        if name.startswith(CLIENTS) and getattr(module, "random", None) is random:
            module.random = _OF_CLIENTS  # type: ignore[attr-defined]


def is_search(item: pytest.Item) -> bool:
    """Whether hypothesis draws the examples of a test."""
    function, machine = getattr(item, "obj", None), getattr(item, "cls", None)
    return hasattr(function, "hypothesis") or hasattr(getattr(machine, "settings", None), "stateful_step_count")


def scaled(examples: int) -> int:
    """How many examples a quick test draws where it names this number."""
    return max(round(examples * SHARE), min(examples, FEW))


def shorten(items: Iterable[pytest.Item]) -> None:
    """Let each search of a quick test draw fewer examples."""
    quick = (item for item in items if not any(map(item.get_closest_marker, ("slow", "jvm"))))
    for owner, name, own in _settings_of(quick):
        setattr(owner, name, settings(own, max_examples=scaled(own.max_examples)))


def enlarge(items: Iterable[pytest.Item]) -> None:
    """Let each search that names its number of examples draw more; the profile does so for the others."""
    for owner, name, own in _settings_of(items):
        if own.max_examples != settings().max_examples:
            setattr(owner, name, settings(own, max_examples=own.max_examples * FACTOR))


def _settings_of(items: Iterable[pytest.Item]) -> Iterator[tuple[Any, str, settings]]:
    """The settings of each search, with the object and the name of its attribute that hold them."""
    known: set[Any] = set()
    for item in items:
        function, machine = getattr(item, "obj", None), getattr(item, "cls", None)
        for owner, name in ((machine, "settings"), (function, "_hypothesis_internal_use_settings")):
            owner = getattr(owner, "__func__", owner)
            own = getattr(owner, name, None)
            if isinstance(own, settings) and owner not in known:
                known.add(owner)
                yield owner, name, own
