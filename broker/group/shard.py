"""Group coordinator shard: the groups of one partition of `__consumer_offsets` (Kafka: GroupCoordinatorShard).

The shard also has the producers with offsets in an open transaction: a marker names the producer, not the groups.
"""

from __future__ import annotations

from odradek.broker.coordinator.event_processor import CoordinatorShard
from odradek.broker.group.generation_decoder import read_generation
from odradek.broker.group.state.consumer_group_requests import Topics
from odradek.broker.group.state.group import Group
from odradek.broker.group.state.loading import Loader
from odradek.broker.group.state.settings import GroupSettings
from odradek.broker.runtime.state.effects import Now
from odradek.broker.runtime.turns import each as items_of
from odradek.protocol.batch import Header, Record


class GroupCoordinatorShard(CoordinatorShard[Group]):
    """The groups of one partition, and the transactions that have offsets of them."""

    def __init__(self, settings: GroupSettings, topics: Topics) -> None:
        self.machines: dict[str, Group] = {}
        self._settings = settings
        self._topics = topics
        self._loader: Loader | None = Loader()
        # producer id -> the groups that have offsets in its open transaction
        self._in_transaction: dict[int, dict[str, None]] = {}
        # (producer id, commit or not) of the markers that were written during the load
        self._postponed: list[tuple[int, bool]] = []

    def replay(self, header: Header, record: Record) -> None:
        """Apply one record of the log. Raises ProtocolError for an invalid record."""
        assert self._loader is not None, "the load has ended"
        self._loader.feed(header, record, read_generation)

    def on_loaded(self, now: Now) -> None:
        """Create the groups, and apply the markers that were written during the load."""
        loader = self._loader
        assert loader is not None, "the load has ended"
        groups = loader.groups(self._settings, now, self._topics, items_of)
        self.machines = {group.group_id: group for group in items_of(groups)}
        self._loader = None
        self._in_transaction = loader.in_transaction
        for producer_id, commit in self._postponed:
            self.end_transaction(producer_id, commit)
        self._postponed.clear()

    def on_unloaded(self) -> None:
        """Do nothing: every group has answered its requests."""

    def perform(self, machine: Group, effect: object, epoch: int) -> None:
        """A group has no effects of its own."""
        raise AssertionError(f"group {machine.group_id} returned the unknown effect {effect}")

    def begin_transaction(self, producer_id: int, group_id: str) -> None:
        """The open transaction of a producer has offsets of a group."""
        self._in_transaction.setdefault(producer_id, {})[group_id] = None

    def groups_in_transaction(self, producer_id: int) -> list[Group]:
        """The groups that have offsets in the open transaction of a producer."""
        found = (self.machines.get(group_id) for group_id in self._in_transaction.get(producer_id, {}))
        return [group for group in found if group is not None]

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply a marker: the producer's pending offsets become valid, or are discarded.

        A marker that is written during a load has a higher offset than all records of the load, so it is applied at the
        end of the load.
        """
        if self._loader is not None:
            self._postponed.append((producer_id, commit))
            return
        for group in self.groups_in_transaction(producer_id):
            group.offsets.complete(producer_id, commit)
        self._in_transaction.pop(producer_id, None)
