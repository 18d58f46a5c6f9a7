"""The tree as a value: atomic transactions, and equal trees from its journal and from its snapshot."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import zlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.registry import snapshot_in_parts
from odradek.broker.registry.interface import (
    BadArgumentsError,
    Create,
    Event,
    EventKind,
    NoNodeError,
    Operation,
    RegistryError,
    Set,
)
from odradek.broker.registry.jute import JuteError
from odradek.broker.registry.snapshot_in_parts import SnapshotInParts
from odradek.broker.registry.transactions import (
    TreeSnapshot,
    decode_snapshot,
    encode_snapshot,
    frame,
    read_record,
    take_snapshot,
)
from odradek.broker.registry.tree import MAX_DATA_BYTES, JournalTransaction, Node, Tree, Watches
from tests.registry.operations import bare_creates, transactions, writes

ROOT = "/r"
histories = st.lists(
    st.one_of(writes.map(lambda write: [write]), bare_creates.map(lambda write: [write]), transactions)
)


def content(tree: Tree) -> dict[str, Node]:
    return {path: node.copy() for path, node in tree.nodes()}


def below_root(operation: Operation) -> Operation:
    return dataclasses.replace(operation, path=ROOT + operation.path)


def play(history: list[list[Operation]]) -> tuple[Tree, list[JournalTransaction]]:
    """A tree with two sessions, the first of which is closed at the end, and its journal."""
    tree = Tree()
    journal = [tree.open_session(1, 10_000, 5).transaction, tree.open_session(2, 10_000, 6).transaction]
    journal.append(tree.submit(1, [Create(ROOT)], 7).transaction)
    for index, operations in enumerate(history):
        before, zxid = content(tree), tree.zxid
        multi = len(operations) > 1
        try:
            session = index % 2 + 1
            committed = tree.submit(session, [below_root(operation) for operation in operations], index, multi=multi)
            journal.append(committed.transaction)
        except RegistryError:
            assert content(tree) == before
        assert tree.zxid == zxid + 1
    journal.append(tree.close_session(1, 99).transaction)
    return tree, journal


@settings(deadline=None)
@given(history=histories)
def test_a_failed_transaction_leaves_no_trace_and_a_closed_session_no_node(history: list[list[Operation]]) -> None:
    tree, _ = play(history)
    nodes = content(tree)
    assert {node.ephemeral_owner for node in nodes.values()} <= {0, 2}
    assert tree.sessions == {2: 10_000}
    for path, node in nodes.items():
        names = {
            other.rpartition("/")[2] for other in nodes if other != "/" and (other.rpartition("/")[0] or "/") == path
        }
        assert set(node.children) == names
    tree.close_session(2, 100)
    assert {node.ephemeral_owner for _, node in tree.nodes()} == {0}


@settings(deadline=None)
@given(history=histories)
def test_the_journal_gives_the_same_tree(history: list[list[Operation]]) -> None:
    tree, journal = play(history)
    again = Tree()
    position = 0
    log = memoryview(b"".join(frame(transaction, 0) for transaction in journal))
    while (record := read_record(log, position)) is not None:
        assert record.transaction is not None
        again.replay(record.transaction)
        position = record.end
    assert position == len(log)
    assert content(again) == content(tree)
    assert again.sessions == tree.sessions


@settings(deadline=None)
@given(history=histories)
def test_a_snapshot_gives_the_same_tree(history: list[list[Operation]]) -> None:
    tree, _ = play(history)
    again = decode_snapshot(encode_snapshot(tree), tree.zxid)
    assert content(again) == content(tree)
    assert (again.zxid, again.sessions) == (tree.zxid, tree.sessions)
    again.close_session(2, 100)
    assert {node.ephemeral_owner for _, node in again.nodes()} == {0}


@settings(deadline=None)
@given(history=histories, later=histories)
def test_a_snapshot_that_is_encoded_later_has_the_tree_of_its_moment(
    history: list[list[Operation]], later: list[list[Operation]]
) -> None:
    """A thread encodes it while the tree changes."""
    tree, _ = play(history)
    snapshot, expected = take_snapshot(tree), encode_snapshot(tree)
    for operations in later:
        with contextlib.suppress(RegistryError):
            tree.submit(2, [below_root(each) for each in operations], 50, multi=True)
    assert snapshot.encode() == expected


@settings(deadline=None)
@given(history=histories, later=histories, at_once=st.integers(1, 4), random=st.randoms(use_true_random=False))
def test_a_snapshot_in_parts_has_the_tree_of_its_last_part(
    history: list[list[Operation]], later: list[list[Operation]], at_once: int, random: Random
) -> None:
    """The event loop serves others between two parts: for 40,000 nodes it served none for 20 ms."""
    tree, _ = play(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_in_parts, "NODES_AT_ONCE", at_once)
        patch.setattr(snapshot_in_parts, "FEW_NODES", at_once)
        snapshot = SnapshotInParts(tree)
        parts = snapshot.take()
        taken: tuple[TreeSnapshot, int] | None = None
        while taken is None:
            try:
                next(parts)
            except StopIteration as end:
                taken = end.value
            while later and taken is None and random.random() < 0.5:
                with contextlib.suppress(RegistryError):
                    operations = [below_root(each) for each in later.pop()]
                    snapshot.changed(tree.submit(2, operations, 50, multi=True).transaction)
            if taken is None and random.random() < 0.1 and 2 in tree.sessions:
                snapshot.changed(tree.close_session(2, 60).transaction)
    again = decode_snapshot(taken[0].encode(), taken[1])
    assert content(again) == content(tree)
    assert (again.zxid, again.sessions) == (tree.zxid, tree.sessions)


def test_no_part_of_a_snapshot_copies_all_nodes() -> None:
    tree = Tree()
    tree.open_session(1, 1000, 0)
    for number in range(3 * snapshot_in_parts.NODES_AT_ONCE):
        tree.submit(1, [Create(f"/{number}", None)], 0)
    assert len(list(SnapshotInParts(tree).take())) == 3


@settings(deadline=None)
@given(data=st.binary(max_size=200), cut=st.integers(0, 400), flip=st.integers(0, 10_000))
def test_damaged_snapshots_are_refused(data: bytes, cut: int, flip: int) -> None:
    tree, _ = play([[Create("/a", data)]])
    whole = encode_snapshot(tree)
    damaged = bytearray(whole)
    # The number in the header that names the database is the one field that no reader checks.
    damaged[16 + flip % (len(whole) - 16)] ^= 1 << flip % 8
    for bad in (whole[: -1 - cut % (len(whole) - 1)], bytes(damaged), data):
        with pytest.raises(JuteError):
            decode_snapshot(bad, 1)


@settings(deadline=None)
@given(payload=st.binary(min_size=32, max_size=200), kind=st.sampled_from([-11, -10, -1, 1, 2, 5, 7, 13, 14, 15, 19]))
def test_records_with_any_content_are_read_or_refused(payload: bytes, kind: int) -> None:
    payload = payload[:28] + struct.pack(">i", kind) + payload[32:]
    record = struct.pack(">qi", zlib.adler32(payload), len(payload)) + payload + b"B"
    with contextlib.suppress(JuteError):
        assert read_record(memoryview(record), 0) is not None


def test_a_path_is_checked_as_by_zookeeper() -> None:
    tree = Tree()
    tree.open_session(1, 10_000, 0)
    for path in ("", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a/./b", "/\x01", "/\ud7ff\ue000", "/\U0001f600"):
        with pytest.raises(BadArgumentsError):
            tree.submit(1, [Create(path)], 0)
        with pytest.raises(BadArgumentsError):
            tree.get(path)
    for path in ("/...", "/a b", "/ü", "/<default>", "/\ud7ff"):
        assert tree.submit(1, [Create(path)], 0).results == [path]


def test_system_nodes_cannot_be_deleted_and_data_has_a_size_limit() -> None:
    tree = Tree()
    tree.open_session(1, 10_000, 0)
    with pytest.raises(BadArgumentsError, match="at most"):
        tree.submit(1, [Create("/a", bytes(MAX_DATA_BYTES + 1))], 0)
    tree.submit(1, [Create("/a", bytes(MAX_DATA_BYTES))], 0)
    with pytest.raises(BadArgumentsError, match="at most"):
        tree.submit(1, [Set("/a", bytes(MAX_DATA_BYTES + 1))], 0)


def test_watches_of_an_expired_session_are_dropped() -> None:
    watches: Watches[str] = Watches()
    for session in (1, 2):
        watches.watch_data("/a", session, "data")
        watches.watch_children("/a", session, "children")
        watches.watch_data(f"/only-{session}", session, "data")
    watches.forget(1)
    assert len(watches) == 3
    event = Event(EventKind.DELETED, "/a")
    assert watches.fire([event, event]) == [(2, "data", event), (2, "children", event)]
    assert len(watches) == 1


def test_a_journal_that_does_not_fit_is_refused() -> None:
    _, journal = play([[Create("/a")], [Create("/a/b")]])
    tree = Tree()
    with pytest.raises(NoNodeError):
        tree.replay(journal[4])
