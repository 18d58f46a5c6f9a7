"""A missing or outdated C extension of the streams runtime: the fallback runs, and a client warns at its start."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import odradek.streams.clients
import odradek.streams.stores
from odradek.streams import STRING, Consumed, KafkaStreams, Produced, StreamsBuilder
from odradek.streams.clients import accumulator, received
from odradek.streams.errors import StreamsError
from odradek.streams.extensions import missing_extensions
from odradek.streams.stores import lru_entries

USERS = {
    "_lru_entries": (odradek.streams.stores, lru_entries),
    "_received": (odradek.streams.clients, received),
    "_accumulator": (odradek.streams.clients, accumulator),
}
"""The package of each extension, and the module that uses it."""


@pytest.fixture(params=["missing", "outdated"])
def without_extensions(request: pytest.FixtureRequest) -> Iterator[None]:
    """The users of the extensions imported anew, as where these are missing or have no functions."""
    kept = {user: dict(vars(user)) for _, user in USERS.values()}
    with pytest.MonkeyPatch.context() as patch:
        for name, (package, user) in USERS.items():
            full = f"{package.__name__}.{name}"
            found = None if request.param == "missing" else ModuleType(full)
            patch.setitem(sys.modules, full, found)
            if found is None:
                patch.delattr(package, name, raising=False)
            else:
                patch.setattr(package, name, found, raising=False)
            importlib.reload(user)
        yield
    for user, names in kept.items():
        vars(user).update(names)


def start(folder: Path) -> None:
    """Start a client that has no broker; the start of its threads fails."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(STRING, STRING)).to("out", Produced(STRING, STRING))
    config = {"application.id": "warned", "bootstrap.servers": "127.0.0.1:1", "state.dir": str(folder)}
    streams = KafkaStreams(builder.build(), config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_make_application", fail)
        with pytest.raises(StreamsError, match="no broker"):
            streams.start()


def fail() -> None:
    raise StreamsError("no broker")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if each.startswith("C extensions")]


def test_a_client_logs_one_warning_for_all_missing_extensions(
    without_extensions: None, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert missing_extensions().keys() == USERS.keys()
    with caplog.at_level(logging.WARNING):
        start(tmp_path)
    (warning,) = warnings(caplog)
    modules, works = ",".join(USERS), "caches,own-consumer,own-producer"
    assert warning == f"C extensions missing, using pure Python modules={modules} slow={works}"


@pytest.mark.skipif(bool(missing_extensions()), reason="built without a C compiler")
def test_a_client_logs_nothing_where_no_extension_is_missing(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    start(tmp_path)
    assert not warnings(caplog)
