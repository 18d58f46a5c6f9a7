"""FindCoordinator: the direct answer for one known coordinator equals the answer of the general way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.apis.find_coordinator import FindCoordinator
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode


class Lookup:
    """Has the coordinator of every key but one."""

    def __init__(self) -> None:
        self.awaited: list[list[str]] = []

    def coordinator(self, kind: int, key: str, listener: str) -> tuple[ErrorCode, int, str, int, str | None]:
        if key == "unknown":
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1, None
        return ErrorCode.NONE, 3 + kind, f"{listener}.{key}", 9092, None

    def await_coordinators(self, _: int, keys: list[str], *__: Any) -> None:
        self.awaited.append(keys)


def handler(lookup: Lookup, *, authorizes: bool) -> FindCoordinator:
    auth = SimpleNamespace(is_enabled=authorizes, authorize=lambda *_: True)
    quotas = SimpleNamespace(permissive_mutations=lambda _: SimpleNamespace(record=None))
    return FindCoordinator(lookup, quotas, auth)  # type: ignore[arg-type]


def request(version: int, key: str, kind: int) -> m.FindCoordinatorRequest:
    if version < 4:
        return m.FindCoordinatorRequest(key=key, key_type=kind)
    return m.FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("version", range(7))
def test_both_ways_have_the_same_answer(version: int, kind: int) -> None:
    call: Any = SimpleNamespace(version=version, listener="PLAINTEXT")
    kind *= version > 0
    direct, general = (
        handler(Lookup(), authorizes=authorizes).handle(call, request(version, "group", kind))
        for authorizes in (False, True)
    )
    assert direct is not None
    assert general is not None
    assert direct.encode(version) == general.encode(version)
    assert b"PLAINTEXT.group" in direct.encode(version)


@pytest.mark.parametrize("version", [3, 4])
def test_a_request_without_a_coordinator_waits_for_one(version: int) -> None:
    lookup = Lookup()
    call: Any = SimpleNamespace(version=version, listener="PLAINTEXT")
    assert handler(lookup, authorizes=False).handle(call, request(version, "unknown", 0)) is None
    assert lookup.awaited == [["unknown"]]
