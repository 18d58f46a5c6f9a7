"""Foreign-key joins of tables: five operators and two internal topics (KIP-213, KIP-775).

    left table  -> SubscriptionSend -> registration topic -> SubscriptionReceive -> SubscriptionJoin -> response topic
    right table -> ForeignTableJoin -> response topic -> ResponseJoin -> result

A row of the left table subscribes under its foreign key in the partition of the right table's row with that key; a new
subscription and a change of the right row both send the value back. A response to an outdated value of the left row is
dropped: the hash of the left value identifies it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.streams.murmur3 import hash128
from odradek.streams.nodes import NodeContext, default_serde
from odradek.streams.operators.emission import skipping
from odradek.streams.operators.subscriptions import (
    DELETE_KEY_AND_PROPAGATE,
    DELETE_KEY_NO_PROPAGATE,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,
    CombinedKey,
    CombinedKeys,
    SubscriptionResponseWrapper,
    SubscriptionWrapper,
)
from odradek.streams.operators.table import View
from odradek.streams.records import Change, Headers, Process
from odradek.streams.serdes import Serde

Instructions = Callable[[Any, Any], tuple[tuple[Any, int], ...]]
"""A function of the foreign keys of a row before and after a change: the instructions to send, by foreign key."""
KEY_SETTING = "default.key.serde"
VALUE_SETTING = "default.value.serde"


class ForeignKeySerdes:
    """The serdes of one join; those that are None are the application's. `topic` is the registration topic's name."""

    def __init__(
        self, topic: str, primary_key: Serde[Any] | None, foreign_key: Serde[Any] | None, value: Serde[Any] | None
    ) -> None:
        self._topic = topic
        self._primary_key = primary_key
        self._foreign_key = foreign_key
        self._value = value

    def hash_of(self, node: NodeContext) -> Callable[[Any], bytes]:
        """The hash of a value of the left table."""
        serde = default_serde(self._value, VALUE_SETTING, node.task)
        write = serde.for_topic(self._pseudo_topic(node, "vh"), False).serialize
        return lambda value: hash128(write(value))

    def foreign_key(self, node: NodeContext) -> Serde[Any]:
        """The serde of foreign keys."""
        serde = default_serde(self._foreign_key, KEY_SETTING, node.task)
        return serde.for_topic(self._pseudo_topic(node, "fk"), True)

    def combined(self, node: NodeContext) -> CombinedKeys:
        """The serialization of foreign and primary keys in the store."""
        primary_key = default_serde(self._primary_key, KEY_SETTING, node.task)
        return CombinedKeys(self.foreign_key(node), primary_key.for_topic(self._pseudo_topic(node, "pk"), True))

    def _pseudo_topic(self, node: NodeContext, suffix: str) -> str:
        return f"{node.task.application_id}-{self._topic}-{suffix}"


class SubscriptionSend:
    """Sends a subscription for each change of the left table (SubscriptionSendProcessorSupplier)."""

    def __init__(
        self, extractor: Callable[[Any], Any], serdes: ForeignKeySerdes, *, left: bool, versioned: bool = False
    ) -> None:
        """`extractor` returns the foreign key of a value; `versioned` drops changes of older versions of the table."""
        self._extractor = extractor
        self._serdes = serdes
        self._left = left
        self.versioned = versioned

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward, task, dropped, extractor = node.forward, node.task, node.dropped, self._extractor
        hash_of, versioned = self._serdes.hash_of(node), self.versioned
        instructions = (self._left_join if self._left else self._inner_join)(node)

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            new, old = change
            if versioned and not change.is_latest:
                dropped()
                return
            if new is None and old is None:
                return
            digest = None if new is None else hash_of(new)
            after = None if new is None else extractor(new)
            before = None if old is None else extractor(old)
            for foreign_key, instruction in instructions(before, after):
                subscription = SubscriptionWrapper(digest, instruction, key, 1, task.partition)
                forward(foreign_key, subscription, timestamp, headers)

        return process

    def _left_join(self, node: NodeContext) -> Instructions:
        write = self._serdes.foreign_key(node).serialize

        def instructions(before: Any, after: Any) -> tuple[tuple[Any, int], ...]:
            if before is not None and (after is None or write(after) != write(before)):
                return (before, DELETE_KEY_NO_PROPAGATE), (after, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
            return ((after, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE),)

        return instructions

    def _inner_join(self, node: NodeContext) -> Instructions:
        write, skip = self._serdes.foreign_key(node).serialize, skipping(node, "foreign key")

        def instructions(before: Any, after: Any) -> tuple[tuple[Any, int], ...]:
            if before is None:
                if after is None:
                    skip()
                    return ()
                return ((after, PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE),)
            if after is None:
                return ((before, DELETE_KEY_AND_PROPAGATE),)
            if write(after) != write(before):
                # the old row's result has to be deleted, also where the new key has no row
                return (before, DELETE_KEY_NO_PROPAGATE), (after, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
            return ((after, PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE),)

        return instructions


class SubscriptionReceive:
    """Stores or deletes a subscription (SubscriptionReceiveProcessorSupplier)."""

    def __init__(self, store: str, serdes: ForeignKeySerdes) -> None:
        self._store = store
        self._serdes = serdes

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward, task, skip = node.forward, node.task, skipping(node, "foreign key")
        stored = self._serdes.combined(node).stored
        store = node.store(self._store)
        put = store.put

        def process(foreign_key: Any, subscription: SubscriptionWrapper, timestamp: int, headers: Headers) -> None:
            _, instruction, primary_key, _, _ = subscription
            if foreign_key is None:
                if instruction != PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                    skip()
                    return
            else:
                task.timestamp, task.headers = timestamp, headers
                keeps = instruction >= PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
                put(stored(foreign_key, primary_key), (subscription, timestamp) if keeps else None)
            forward(CombinedKey(foreign_key, primary_key), subscription, timestamp, headers)

        return process


class SubscriptionJoin:
    """Answers a subscription with the right table's value (SubscriptionJoinProcessorSupplier)."""

    def __init__(self, right_table: View) -> None:
        self._right_table = right_table

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward, get = node.forward, self._right_table.get(node)

        def process(key: CombinedKey, subscription: SubscriptionWrapper, timestamp: int, headers: Headers) -> None:
            digest, instruction, _, _, partition = subscription
            if instruction == DELETE_KEY_NO_PROPAGATE:
                return
            foreign_key, primary_key = key
            row = None if foreign_key is None else get(foreign_key)
            if row is not None:
                value, row_time = row
                if row_time > timestamp:
                    timestamp = row_time
            elif instruction == PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
                return
            else:
                value = None
            if instruction == DELETE_KEY_AND_PROPAGATE:
                value = None
            forward(primary_key, SubscriptionResponseWrapper(digest, value, partition), timestamp, headers)

        return process


class ForeignTableJoin:
    """Sends a changed row of the right table to all its subscribers (ForeignTableJoinProcessorSupplier)."""

    def __init__(self, store: str, serdes: ForeignKeySerdes, *, versioned: bool = False) -> None:
        self._store = store
        self._serdes = serdes
        self.versioned = versioned

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward, dropped, versioned = node.forward, node.dropped, self.versioned
        combined = self._serdes.combined(node)
        prefix_of, primary_key_of = combined.prefix, combined.primary_key
        scan = node.store(self._store).prefix_scan

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            if key is None or (versioned and not change.is_latest):
                dropped()
                return
            value = change[0]
            for stored, (subscription, _) in scan(key, prefix_of):
                response = SubscriptionResponseWrapper(subscription.hash, value, subscription.primary_partition)
                forward(primary_key_of(stored), response, timestamp, headers)

        return process


class ResponseJoin:
    """Joins a response with its left row, if that has not changed since (ResponseJoinProcessorSupplier)."""

    def __init__(
        self, left_table: View, joiner: Callable[[Any, Any], Any], serdes: ForeignKeySerdes, *, left: bool
    ) -> None:
        self._left_table = left_table
        self._joiner = joiner
        self._serdes = serdes
        self._left = left

    def bind(self, node: NodeContext) -> Process:
        """The function of one task."""
        forward, dropped, joiner, left = node.forward, node.dropped, self._joiner, self._left
        get, hash_of = self._left_table.get(node), self._serdes.hash_of(node)

        def process(key: Any, response: SubscriptionResponseWrapper, timestamp: int, headers: Headers) -> None:
            digest, foreign, _ = response
            row = get(key)
            if digest != (None if row is None else hash_of(row[0])):
                dropped()  # the row has changed since, and has sent a new subscription
                return
            if foreign is None and (row is None or not left):
                forward(key, None, timestamp, headers)
            else:
                forward(key, joiner(None if row is None else row[0], foreign), timestamp, headers)

        return process
