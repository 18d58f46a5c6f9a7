"""Purgatory: keeps operations that cannot complete yet (Kafka: DelayedOperationPurgatory, DelayedOperation).

A delayed operation is a request that waits for a condition on its keys, the replicas that it reads or writes. Each key
has its own watch list (Kafka: Watchers), a plain dict, so that a key without operations costs its writer one test:

    if replica.watchers:
        check_and_complete(replica)

Everything runs on the event loop. An operation has one timer, and neither a task nor a future.

    | event                                   | call                                               |
    |-----------------------------------------|----------------------------------------------------|
    | the caller finds the condition not met  | `DelayedOperationPurgatory.try_complete_else_watch` |
    | a key has changed                       | `check_and_complete(key)`, then `try_complete(key)` |
    | the condition holds                     | `force_complete`, then `on_complete`, once          |
    | the client disconnects                  | `client_left`; unless overridden, `cancel`         |
    | the deadline passes                     | `expire`; unless overridden, `force_complete`       |
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, Protocol, TypeVar

from odradek.broker.runtime.timers import Timer, Timers


class WatchKey(Protocol):
    """An object whose changes complete delayed operations (Kafka: DelayedOperationKey)."""

    @property
    def watchers(self) -> Watchers:
        """The operations to notify of changes, in order of arrival."""
        ...


Key = TypeVar("Key", bound=WatchKey)


class DelayedOperation(Generic[Key]):
    """An operation that completes when its condition holds, or at its deadline (Kafka: DelayedOperation)."""

    __slots__ = ("_keys", "_timer", "is_completed")

    def __init__(self) -> None:
        self.is_completed = False
        self._keys: Collection[Key] = ()
        self._timer: Timer | None = None

    def try_complete(self, key: Key) -> None:
        """`key` has changed: call `force_complete` if the condition holds now."""
        raise NotImplementedError

    def try_complete_all(self) -> None:
        """Check every key: one may have changed after the caller's check and before the operation watched it."""
        for key in self._keys:
            self.try_complete(key)

    def on_complete(self) -> None:
        """Send the response, from the state that the operation has now. Runs once."""
        raise NotImplementedError

    def expire(self) -> None:
        """The deadline has passed."""
        self.force_complete()

    def force_complete(self) -> bool:
        """Complete the operation if it is not complete: cancel its timer, leave its watch lists, call `on_complete`.
        Returns whether this call completed it.
        """
        if not self.cancel():
            return False
        self.on_complete()
        return True

    def cancel(self) -> bool:
        """End the operation without a response: cancel its timer and leave its watch lists. Returns whether this call
        ended it.
        """
        if self.is_completed:
            return False
        self.is_completed = True
        self.cancel_timer()
        for key in self._keys:
            key.watchers.pop(self, None)
        return True

    def client_left(self) -> None:
        """The client of the request has disconnected."""
        self.cancel()

    def watch(self, keys: Collection[Key]) -> None:
        """Enter the watch lists of these keys; the collection must not change before the operation is complete."""
        self._keys = keys
        for key in keys:
            key.watchers[self] = None

    def unwatch(self, key: Key) -> None:
        """Leave the watch list of a key before the operation is complete: no change of this key matters any more."""
        key.watchers.pop(self, None)

    @property
    def has_timer(self) -> bool:
        """Whether the operation has a deadline."""
        return self._timer is not None

    def set_timer(self, timer: Timer) -> None:
        """Replace the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer

    def cancel_timer(self) -> None:
        """Wait without a deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


Watchers = dict[DelayedOperation[Any], None]
"""The watch list of one key, in order of arrival (Kafka: DelayedOperationPurgatory.Watchers)."""


def check_and_complete(key: WatchKey) -> None:
    """`key` has changed: complete the operations whose condition holds now. Calls nest, because the completion of one
    operation may change the key; operations that a nested call completes are skipped.
    """
    watchers = key.watchers
    for operation in list(watchers):
        if operation in watchers:
            operation.try_complete(key)


class DelayedOperationPurgatory:
    """Registers operations with their keys, and expires them."""

    __slots__ = ("_timers",)

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def try_complete_else_watch(self, operation: DelayedOperation[Key], keys: Collection[Key], timeout_ms: int) -> None:
        """Wait for changes of `keys` for at most `timeout_ms`; the operation may complete before this returns.

        The caller has found the condition not met, but may have completed other operations since, and these may have
        changed a key: so the operation watches its keys first, and checks them again afterwards.
        """
        operation.watch(keys)
        self.start_timer(operation, timeout_ms)
        operation.try_complete_all()

    def start_timer(self, operation: DelayedOperation[Any], timeout_ms: int) -> None:
        """Expire the operation after `timeout_ms`, in place of its earlier deadline."""
        operation.set_timer(self._timers.after(timeout_ms, operation.expire))
