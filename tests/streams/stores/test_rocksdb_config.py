"""rocksdb.config.setter in its forms: its options reach RocksDB, and `close` is called after the store is closed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from odradek.streams import BYTES, RocksDBConfigSetter
from odradek.streams.config import StreamsConfig, StreamsConfigError
from odradek.streams.stores import builders
from tests.streams.stores.implementations import Context

NEEDED = {"application.id": "app", "bootstrap.servers": "localhost:9"}
SIZE = 1 << 20
CALLS: list[tuple[Any, ...]] = []
"""Of the functions and classes below, in their order."""


def two(store_name: str, options: Any) -> None:
    options.set_write_buffer_size(SIZE)
    CALLS.append(("set", store_name, None))


def three(store_name: str, options: Any, configs: Mapping[str, Any]) -> None:
    options.set_write_buffer_size(SIZE)
    CALLS.append(("set", store_name, configs["mine"]))


class Setter(RocksDBConfigSetter):
    made: ClassVar[list[Setter]] = []

    def __init__(self) -> None:
        self.made.append(self)

    def set_config(self, store_name: str, options: Any, configs: Mapping[str, Any]) -> None:
        three(store_name, options, configs)

    def close(self, store_name: str, options: Any) -> None:
        CALLS.append(("close", store_name, options is not None))


class OnlySetConfig:
    def set_config(self, store_name: str, options: Any, configs: Mapping[str, Any]) -> None:
        three(store_name, options, configs)


SHARED = Setter()


@pytest.fixture(autouse=True)
def _forget() -> None:
    CALLS.clear()
    Setter.made.clear()


def opened(folder: Path, setter: Any) -> str:
    """Open and close two stores; returns the options that RocksDB wrote for the first."""
    config = StreamsConfig({**NEEDED, "rocksdb.config.setter": setter, "mine": 7})
    stores: list[Any] = [builders.key_value_store(f"s{number}", BYTES, BYTES).build() for number in range(2)]
    for store in stores:
        store.init(Context(folder, **config))
    for store in stores:
        store.close()
        store.close()
    return next((folder / "rocksdb" / "s0").glob("OPTIONS-*")).read_text()


SETS = [("set", "s0", 7), ("set", "s1", 7)]
CLOSES = [("close", "s0", True), ("close", "s1", True)]


@pytest.mark.parametrize(
    ("setter", "calls"),
    [
        (two, [("set", "s0", None), ("set", "s1", None)]),
        (three, SETS),
        (f"{__name__}.three", SETS),
        (Setter, SETS + CLOSES),
        (f"{__name__}.Setter", SETS + CLOSES),
        (SHARED, SETS + CLOSES),
        (OnlySetConfig, SETS),
    ],
)
def test_options_reach_the_store(tmp_path: Path, setter: Any, calls: list[Any]) -> None:
    written = opened(tmp_path, setter)
    assert f"write_buffer_size={SIZE}\n" in written.replace("db_write_buffer_size", "")
    assert calls == CALLS


def test_each_store_has_an_object_of_a_class(tmp_path: Path) -> None:
    opened(tmp_path, Setter)
    assert len(Setter.made) == 2
    assert Setter.made[0] is not Setter.made[1]
    opened(tmp_path, SHARED)
    assert len(Setter.made) == 2


def test_options_without_a_setter_are_kafkas(tmp_path: Path) -> None:
    assert f"write_buffer_size={16 << 20}\n" in opened(tmp_path, None).replace("db_write_buffer_size", "")


@pytest.mark.parametrize(
    ("setter", "notified"),
    [
        (7, "expected a function of (store_name, options, configs) or of (store_name, options)"),
        (lambda name: None, "expected a function of (store_name, options, configs)"),
        (int, "expected a class with the method set_config(store_name, options, configs)"),
        ("no.such.setter", "expected a function or its dotted name"),
    ],
)
def test_what_is_no_setter_is_rejected(setter: Any, notified: str) -> None:
    with pytest.raises(StreamsConfigError, match=r"rocksdb\.config\.setter is ") as caught:
        StreamsConfig({**NEEDED, "rocksdb.config.setter": setter})
    assert notified in str(caught.value)
