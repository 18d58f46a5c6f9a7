"""A missing or outdated C extension: the pure-Python fallback runs, and the broker logs one warning at its start."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

import odradek.protocol
from odradek.broker import server
from odradek.protocol import chain, constructors, frames, legacy_walks, log_append, offset_map, programs, reads
from odradek.protocol.extensions import missing_extensions

USERS = {
    "_chain": chain,
    "_offset_map": offset_map,
    "_legacy": legacy_walks,
    "_codec": programs,
    "_constructors": constructors,
    "_frames": frames,
    "_log_append": log_append,
    "_reads": reads,
}


@pytest.fixture(params=["missing", "outdated"])
def without(request: pytest.FixtureRequest) -> Iterator[object]:
    """A function that imports the user of an extension anew, as where the extension is missing or has no functions.

    The names of the reloaded modules are put back afterwards, so that other tests see the same classes as before.
    """
    kept = {user: dict(vars(user)) for user in USERS.values()}
    with pytest.MonkeyPatch.context() as patch:

        def reload(name: str) -> None:
            full = f"odradek.protocol.{name}"
            found = None if request.param == "missing" else ModuleType(full)
            patch.setitem(sys.modules, full, found)
            if found is None:
                patch.delattr(odradek.protocol, name, raising=False)
            else:
                patch.setattr(odradek.protocol, name, found, raising=False)
            importlib.reload(USERS[name])

        yield reload
    for user, names in kept.items():
        vars(user).update(names)


@pytest.mark.parametrize("name", USERS)
def test_the_fallback_runs_where_an_extension_cannot_be_used(name: str, without: object) -> None:
    before = missing_extensions()
    without(name)  # type: ignore[operator]
    assert missing_extensions().keys() == {*before, name}


def test_the_broker_logs_one_warning_for_all_missing_extensions(
    without: object, caplog: pytest.LogCaptureFixture
) -> None:
    for name in USERS:
        without(name)  # type: ignore[operator]
    with caplog.at_level(logging.WARNING):
        server._warn_of_missing_extensions()
    assert caplog.messages == [
        "C extensions missing, using pure Python modules=_chain,_offset_map,_legacy,_codec,_constructors,_frames,"
        "_log_append,_reads "
        "slow=produce,compaction,message-format-conversion,requests,messages,small-requests,appends,connections"
    ]


def test_the_broker_logs_nothing_where_no_extension_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "missing_extensions", dict)
    server._warn_of_missing_extensions()
    assert not caplog.messages
