"""Controller state machine: decides about leaders, ISRs and topics when brokers or topics change (Kafka:
KafkaController).

One broker of the cluster is the controller. It reads the whole state from the metadata store when it is elected. After
that it is notified of changes: by watches of the metadata store, by requests, and by the responses to its control
requests. Each is an event: a method that returns a generator of steps (`steps.py`), which the shell runs to its end
before the next. The control requests of an event gather in a batch, which the shell drains after the event.

The machine has no clock, random numbers or connections. A failure of the metadata store in the middle of an event ends
the event and the controller epoch. The next controller, perhaps the same broker again, reads the whole state anew and
finishes what was begun: every event can be restarted from the content of the metadata store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from odradek.broker.controller.state.alter_partition import AlterPartitionHandler
from odradek.broker.controller.state.context import Context, LiveBroker
from odradek.broker.controller.state.control_requests import ControlRequestBatch
from odradek.broker.controller.state.leader_elections import LeaderElections
from odradek.broker.controller.state.notifications import Notifications
from odradek.broker.controller.state.partition_state_machine import PartitionStateMachine
from odradek.broker.controller.state.reassignment import Reassignments
from odradek.broker.controller.state.steps import PAUSE, Children, Pause, Read, Send, Steps, is_pause_due, with_pauses
from odradek.broker.controller.state.topic_deletion_manager import TopicDeletionManager
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Set
from odradek.broker.registry.znodes import BrokerRegistration, TopicAssignment, ZnodeError
from odradek.protocol import messages as m
from odradek.protocol.errors import ErrorCode, KafkaError
from odradek.protocol.topic_partition import TopicPartition

UNCLEAN_PROPERTY: Final = "unclean.leader.election.enable"
NO_TOPIC_ID: Final = bytes(16)


class ControllerSettings(NamedTuple):
    """The controller's broker id, and the properties that it decides by."""

    broker_id: int
    listener: str
    """The name of the listener through which brokers reach each other."""
    allow_unclean: bool = False
    allow_deletion: bool = True
    imbalance_percentage: int = 10


class ControllerMachine:
    """The controller, from its election to its resignation. A new election creates a new machine."""

    def __init__(self, settings: ControllerSettings, epoch: int, epoch_version: int) -> None:
        """`epoch_version` is the version of /controller_epoch that belongs to `epoch`."""
        self.context = Context(epoch, epoch_version)
        requests = ControlRequestBatch(settings.broker_id, settings.listener, self.context)
        self._control_requests = requests
        self._partitions = PartitionStateMachine(self.context, requests)
        self.reassignments = Reassignments(self.context, requests, self._partitions)
        self.topic_deletion = TopicDeletionManager(
            self.context, requests, self._partitions, enabled=settings.allow_deletion
        )
        self.elections = LeaderElections(
            self.context,
            self._partitions,
            allow_unclean=settings.allow_unclean,
            imbalance_percentage=settings.imbalance_percentage,
        )
        self.notifications = Notifications(self.context, requests, self._partitions, self.elections, self.reassignments)
        self.alter_partition = AlterPartitionHandler(self.context, requests, self._partitions, self.reassignments)

    def drain(self) -> Iterator[Send | Pause]:
        """The control requests that were added since the last call."""
        return self._control_requests.drain()

    # ---- election

    def elected(self, new_topic_ids: Sequence[bytes]) -> Steps[None]:
        """Read the whole state, send it to all brokers, and finish what the previous controller has begun.

        `new_topic_ids` are random ids (16 bytes each) for topics that an older broker created without one.
        """
        context = self.context
        yield from self._read_brokers()
        topics = yield Children(znodes.TOPICS)
        yield from self._read_topics(topics, list(new_topic_ids))
        yield from self._partitions.read_states(list(context.partitions()))
        for broker_id in context.brokers:
            self._control_requests.add_full_leader_and_isr(broker_id)
            self._control_requests.add_update_metadata([broker_id], context.partitions())
        for number, partition in enumerate(context.states):
            if is_pause_due(number):
                yield PAUSE
            for broker_id in context.assigned(partition):
                self._control_requests.add_leader_and_isr([broker_id], partition)
        yield from self._partitions.begin_missing(context.partitions())
        yield from self._renew(list(context.states))
        yield from self.elections.replace_lost(list(context.states))
        yield from self.notifications.isr_changed()
        yield from self.notifications.log_dirs_changed()
        yield from self.notifications.reassignment_requested()
        for partition in self.reassignments.under_way():
            yield from self.reassignments.go_on(partition)
        yield from self.notifications.preferred_election_requested()
        yield from self.topic_deletion.deletions_changed()

    def _read_topics(self, topics: Iterable[str], spare_ids: list[bytes]) -> Steps[None]:
        """Read the assignments of these topics; a topic without an id gets one (KIP-516)."""
        names = list(topics)
        found = yield Read(tuple(znodes.topic_path(name) for name in names), watch=True)
        for number, (name, node) in enumerate(zip(names, found, strict=True)):
            if is_pause_due(number):
                yield PAUSE
            if node is None:
                continue
            data, stat = node
            assignment = yield from with_pauses(TopicAssignment.decode_in_parts(data))
            topic_id = assignment.topic_id
            if topic_id is None and spare_ids:
                topic_id = spare_ids.pop()
                new = TopicAssignment(topic_id, assignment.partitions).encode()
                yield from self._partitions.write([Set(znodes.topic_path(name), new, stat.version)])
            self.context.topic_ids[name] = topic_id or NO_TOPIC_ID
            self.context.assignments[name] = dict(assignment.partitions)

    # ---- brokers

    def _read_brokers(self) -> Steps[None]:
        ids = yield Children(znodes.BROKER_IDS)
        found = yield Read(tuple(znodes.broker_path(int(each)) for each in ids), watch=True)
        brokers = {}
        for each, node in zip(ids, found, strict=True):
            if node is None:
                continue
            try:
                brokers[int(each)] = LiveBroker(BrokerRegistration.decode(node[0]), node[1].czxid)
            except ZnodeError:
                continue  # without a decodable registration the broker has no address to connect to
        self.context.brokers = dict(sorted(brokers.items()))

    def brokers_changed(self) -> Steps[None]:
        """Handle brokers that came, went, or came back in a new incarnation since the last read."""
        context = self.context
        before = dict(context.brokers)
        yield from self._read_brokers()
        now = context.brokers
        gone = [each for each in before if each not in now or now[each].epoch != before[each].epoch]
        come = [each for each in now if each not in before or now[each].epoch != before[each].epoch]
        moved = [each for each in now if each in before and each not in come and now[each] != before[each]]
        for broker_id in gone:
            context.leaving.pop(broker_id, None)
            context.offline_replicas.pop(broker_id, None)
        if gone:
            here = context.on_brokers(gone)
            yield from self._renew(here, [each for each in gone if each in now])
            yield from self.elections.replace_lost(here)
        if come:
            yield from self._welcome(come)
        if gone or come or moved:
            self._control_requests.add_update_metadata_for_all([])
        # A lost replica that was not in sync changes no state, but clients see in the metadata that it is offline.
        self._control_requests.add_update_metadata_for_all(context.on_brokers([*gone, *moved]))

    def _renew(self, partitions: Iterable[TopicPartition], back: Sequence[int] = ()) -> Steps[None]:
        """Elect anew where brokers are back in another incarnation; `back` are those that this event detected."""
        kept = [each for each in partitions if each[0] not in self.context.deleting]
        yield from self._partitions.change(kept, self._partitions.renew(back))

    def _welcome(self, come: Sequence[int]) -> Steps[None]:
        """Send the whole state to brokers that have come, and continue what waited for them."""
        context = self.context
        for broker_id in come:
            self._control_requests.add_full_leader_and_isr(broker_id)
            self._control_requests.add_update_metadata([broker_id], context.partitions())
            for number, partition in enumerate(context.on_brokers([broker_id])):
                if is_pause_due(number):
                    yield PAUSE
                if partition[0] not in context.deleting:
                    self._control_requests.add_leader_and_isr([broker_id], partition)
        here = context.on_brokers(come)
        yield from self._partitions.begin_missing(here)
        yield from self.elections.replace_lost([each for each in here if context.is_leaderless(each)])
        for number, partition in enumerate(here):
            if is_pause_due(number):
                yield PAUSE
            yield from self.reassignments.go_on(partition)
        if self.topic_deletion.retry_on(come):
            yield from self.topic_deletion.go_on()

    # ---- topics

    def topics_changed(self, new_topic_ids: Sequence[bytes]) -> Steps[None]:
        """Handle topics that were created or removed."""
        context = self.context
        names = yield Children(znodes.TOPICS)
        present = frozenset(names)
        for topic in [each for each in context.assignments if each not in present]:
            context.forget_topic(topic)
        new = [each for each in names if each not in context.assignments]
        yield from self._read_topics(new, list(new_topic_ids))
        yield from self._partitions.begin_missing(
            [(topic, index) for topic in new for index in context.assignments.get(topic, {})]
        )

    def partitions_changed(self, topic: str) -> Steps[None]:
        """Handle a changed assignment of a topic, which may have more partitions."""
        context = self.context
        if topic not in context.assignments:
            return
        (node,) = yield Read((znodes.topic_path(topic),), watch=True)
        if node is None or topic in context.deleting:
            return
        assignment = yield from with_pauses(TopicAssignment.decode_in_parts(node[0]))
        new = {
            index: replicas for index, replicas in assignment.partitions.items() if (topic, index) not in context.states
        }
        context.assignments[topic].update(new)
        yield from self._partitions.begin_missing([(topic, index) for index in new])

    # ---- requests and responses of brokers

    def leader_and_isr_answered(self, broker_id: int, response: m.LeaderAndIsrResponse) -> Steps[None]:
        """Handle a broker's LeaderAndIsr response: replicas whose disk has failed, or works again."""
        if response.error_code or broker_id not in self.context.brokers:
            return
        names = {topic_id: name for name, topic_id in self.context.topic_ids.items()}
        results = [
            ((names.get(topic.topic_id, ""), result.partition_index), result.error_code)
            for topic in response.topics
            for result in topic.partition_errors
        ] or [((result.topic_name, result.partition_index), result.error_code) for result in response.partition_errors]
        known = self.context.offline_replicas.setdefault(broker_id, {})
        lost = [each for each, code in results if code == ErrorCode.KAFKA_STORAGE_ERROR and each not in known]
        found = [each for each, code in results if code == ErrorCode.NONE and each in known]
        for partition in found:
            del known[partition]
        known.update(dict.fromkeys(lost))
        if lost:
            yield from self.elections.replace_lost(lost)
        if found:
            yield from self.elections.replace_lost([each for each in found if self.context.is_leaderless(each)])
        if lost or found:
            self._control_requests.add_update_metadata_for_all([*lost, *found])

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Steps[list[TopicPartition]]:
        """Move leadership away from a broker that is about to stop. Returns the partitions that it still leads.

        Raises KafkaError with BROKER_NOT_AVAILABLE or STALE_BROKER_EPOCH.
        """
        context = self.context
        broker = context.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
        if broker_epoch not in (-1, broker.epoch):
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"the epoch of broker {broker_id} is {broker.epoch}")
        context.leaving[broker_id] = None
        several = [each for each in context.on_brokers([broker_id]) if len(context.assigned(each)) > 1]
        yield from self._partitions.change(several, self._partitions.leave(broker_id))
        for number, partition in enumerate(several):
            if is_pause_due(number):
                yield PAUSE
            known = context.states.get(partition)
            if known is not None and known.state.leader != broker_id:
                self._control_requests.add_stop_replica(broker_id, partition, delete=False)
        return [each for each in context.led_by(broker_id) if len(context.assigned(each)) > 1]
