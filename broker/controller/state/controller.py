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

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from odradek.broker.controller.state.context import NO_LEADER, Context, KnownState, LiveBroker
from odradek.broker.controller.state.control_requests import ControlRequestBatch
from odradek.broker.controller.state.partitions import Partitions
from odradek.broker.controller.state.reassignment import Reassignments
from odradek.broker.controller.state.steps import Children, Read, Send, Steps, Watch
from odradek.broker.controller.state.topic_deletion import Deletions
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Delete, NoNodeError, RegistryError, Set, Stat
from odradek.broker.registry.znodes import BrokerRegistration, Replicas, TopicAssignment, ZnodeError
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
        self.context = Context()
        self.context.epoch, self.context.epoch_version = epoch, epoch_version
        self._settings = settings
        self._control_requests = ControlRequestBatch(settings.broker_id, settings.listener, self.context)
        self._partitions = Partitions(self.context, self._control_requests)
        self._reassignments = Reassignments(self.context, self._control_requests, self._partitions)
        self._deletions = Deletions(
            self.context, self._control_requests, self._partitions, enabled=settings.allow_deletion
        )

    def drain(self) -> list[Send]:
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
            self._control_requests.begin(broker_id)
            self._control_requests.tell([broker_id], context.partitions())
        for partition in context.states:
            for broker_id in self._assigned(partition):
                self._control_requests.lead_or_follow([broker_id], partition)
        yield from self._begin_missing(context.partitions())
        yield from self._renew(list(context.states))
        yield from self._replace_lost(list(context.states))
        yield from self.isr_changed()
        yield from self.log_dirs_changed()
        yield from self.reassignments_wished()
        for partition in self._reassignments.under_way():
            yield from self._reassignments.go_on(partition)
        yield from self.elections_wished()
        yield from self._deletions.look()

    def _assigned(self, partition: TopicPartition) -> tuple[int, ...]:
        replicas = self.context.replicas(partition)
        return replicas.replicas if replicas is not None else ()

    def _read_topics(self, topics: Iterable[str], spare_ids: list[bytes]) -> Steps[None]:
        """Read the assignments of these topics; a topic without an id gets one (KIP-516)."""
        names = list(topics)
        found = yield Read(tuple(znodes.topic_path(name) for name in names), watch=True)
        for name, node in zip(names, found, strict=True):
            if node is None:
                continue
            data, stat = node
            assignment = TopicAssignment.decode(data)
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
            yield from self._replace_lost(here)
        if come:
            yield from self._welcome(come)
        if gone or come or moved:
            self._control_requests.tell_all([])
        # A lost replica that was not in sync changes no state, but clients see in the metadata that it is offline.
        self._control_requests.tell_all(context.on_brokers([*gone, *moved]))

    def _renew(self, partitions: Iterable[TopicPartition], back: Sequence[int] = ()) -> Steps[None]:
        """Elect anew where brokers are back in another incarnation; `back` are those that this event detected."""
        kept = [each for each in partitions if each[0] not in self.context.deleting]
        yield from self._partitions.change(kept, self._partitions.renew(back))

    def _welcome(self, come: Sequence[int]) -> Steps[None]:
        """Send the whole state to brokers that have come, and continue what waited for them."""
        context = self.context
        for broker_id in come:
            self._control_requests.begin(broker_id)
            self._control_requests.tell([broker_id], context.partitions())
            for partition in context.on_brokers([broker_id]):
                if partition[0] not in context.deleting:
                    self._control_requests.lead_or_follow([broker_id], partition)
        here = context.on_brokers(come)
        yield from self._begin_missing(here)
        yield from self._replace_lost([each for each in here if context.is_leaderless(each)])
        for partition in here:
            yield from self._reassignments.go_on(partition)
        if self._deletions.retry_on(come):
            yield from self._deletions.go_on()

    def _replace_lost(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Elect leaders where they are offline, and remove offline replicas from the ISRs."""
        context = self.context
        lost = [each for each in partitions if each[0] not in context.deleting]
        leaderless = {topic: None for topic, index in lost if context.is_leaderless((topic, index))}
        unclean = yield from self._unclean_topics(list(leaderless))
        yield from self._partitions.change(lost, self._partitions.replace_lost(unclean))

    def _unclean_topics(self, topics: list[str]) -> Steps[frozenset[str]]:
        """Those of the topics whose configuration, or the broker's, allows unclean elections."""
        found = yield Read(tuple(znodes.config_path(f"topics/{topic}") for topic in topics))
        allowed = []
        for topic, node in zip(topics, found, strict=True):
            try:
                text = znodes.decode_config(node[0]).get(UNCLEAN_PROPERTY) if node is not None else None
            except ZnodeError:
                text = None
            if self._settings.allow_unclean if text is None else text == "true":
                allowed.append(topic)
        return frozenset(allowed)

    # ---- topics

    def topics_changed(self, new_topic_ids: Sequence[bytes]) -> Steps[None]:
        """Handle topics that were created or removed."""
        context = self.context
        names = yield Children(znodes.TOPICS)
        for topic in [each for each in context.assignments if each not in names]:
            context.forget_topic(topic)
        new = [each for each in names if each not in context.assignments]
        yield from self._read_topics(new, list(new_topic_ids))
        yield from self._begin_missing(
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
        assignment = TopicAssignment.decode(node[0])
        new = {
            index: replicas for index, replicas in assignment.partitions.items() if (topic, index) not in context.states
        }
        context.assignments[topic].update(new)
        yield from self._begin_missing([(topic, index) for index in new])

    def _begin_missing(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Create the first state of partitions that have none."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            if (topic, index) not in self.context.states and topic not in self.context.deleting:
                topics.setdefault(topic, []).append(index)
        for topic, indexes in topics.items():
            yield from self._partitions.begin(topic, indexes)

    def deletions_changed(self) -> Steps[None]:
        """Handle new requests to delete topics."""
        yield from self._deletions.look()

    def stop_replica_answered(self, broker_id: int, response: m.StopReplicaResponse) -> Steps[None]:
        """Handle a broker's StopReplica response."""
        yield from self._deletions.stopped(broker_id, response)

    # ---- notifications of brokers

    def isr_changed(self) -> Steps[None]:
        """Handle ISRs that leaders with an older protocol wrote themselves."""
        notices = yield Children(znodes.ISR_CHANGES)
        paths = tuple(f"{znodes.ISR_CHANGES}/{each}" for each in notices)
        changed: dict[TopicPartition, None] = {}
        for node in (yield Read(paths)):
            if node is not None:
                try:
                    changed.update(dict.fromkeys(znodes.decode_partitions(node[0])))
                except ZnodeError:
                    continue
        known = [each for each in changed if self.context.replicas(each) is not None]
        yield from self._partitions.read_states(known)
        self._control_requests.tell_all(known) if known else None
        yield from self._remove(paths)
        for partition in known:
            yield from self._reassignments.go_on(partition)

    def log_dirs_changed(self) -> Steps[None]:
        """Handle failed disks: send LeaderAndIsr to those brokers, whose response names lost replicas (KIP-112)."""
        notices = yield Children(znodes.LOG_DIR_EVENTS)
        paths = tuple(f"{znodes.LOG_DIR_EVENTS}/{each}" for each in notices)
        brokers: dict[int, None] = {}
        for node in (yield Read(paths)):
            if node is not None:
                try:
                    brokers[znodes.decode_log_dir_event(node[0])] = None
                except ZnodeError:
                    continue
        yield from self._remove(paths)
        for broker_id in brokers:
            for partition in self.context.on_brokers([broker_id]):
                self._control_requests.lead_or_follow([broker_id], partition)

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
            yield from self._replace_lost(lost)
        if found:
            yield from self._replace_lost([each for each in found if self.context.is_leaderless(each)])
        self._control_requests.tell_all([*lost, *found]) if lost or found else None

    def alter_partition(self, request: m.AlterPartitionRequest, *, by_id: bool) -> Steps[m.AlterPartitionResponse]:
        """Handle a leader's request for another ISR (KIP-497, KIP-841, KIP-903).

        `by_id` is whether the request names topics by id.
        """
        context = self.context
        broker = context.brokers.get(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return m.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        names = {topic_id: name for name, topic_id in context.topic_ids.items()}
        present = yield from self._present_epochs(_members(request))
        response = m.AlterPartitionResponse()
        changed: list[TopicPartition] = []
        for topic in request.topics:
            name = names.get(topic.topic_id) if by_id else topic.topic_name
            answer = m.AlterPartitionResponse.TopicData(topic_name=name or "", topic_id=topic.topic_id)
            response.topics.append(answer)
            for pending in topic.partitions:
                result = m.AlterPartitionResponse.PartitionData(partition_index=pending.partition_index)
                answer.partitions.append(result)
                try:
                    if name is None:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                    partition = (name, pending.partition_index)
                    before = context.states.get(partition)
                    known = yield from self._alter(request.broker_id, partition, pending, present)
                except KafkaError as error:
                    result.error_code = error.code
                    if error.code is ErrorCode.INELIGIBLE_REPLICA and not by_id:
                        result.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED  # version 1 does not have the other
                    continue
                if known is not before:
                    changed.append(partition)
                result.leader_id, result.leader_epoch = known.state.leader, known.state.leader_epoch
                result.isr, result.partition_epoch = list(known.state.isr), known.version
                result.leader_recovery_state = int(known.state.is_recovering)
        self._control_requests.tell_all(changed) if changed else None
        for partition in changed:
            yield from self._reassignments.go_on(partition)
        return response

    def _present_epochs(self, brokers: Sequence[int]) -> Steps[dict[int, int]]:
        """Read the present registrations: a broker may have come back before the controller was notified of it, and an
        ISR that is written after that would hide the restart from the next controller.
        """
        found = yield Read(tuple(znodes.broker_path(each) for each in brokers))
        return {each: node[1].czxid for each, node in zip(brokers, found, strict=True) if node is not None}

    def _check_members(self, pending: m.AlterPartitionRequest.PartitionData, present: Mapping[int, int]) -> None:
        """Raise INELIGIBLE_REPLICA unless every broker of the requested ISR is live, in the requested incarnation."""
        for each, epoch in _isr(pending):
            broker = self.context.brokers.get(each)
            if broker is None or each in self.context.leaving or present.get(each) != broker.epoch:
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
            if epoch not in (-1, broker.epoch):
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)

    def _alter(
        self,
        broker_id: int,
        partition: TopicPartition,
        pending: m.AlterPartitionRequest.PartitionData,
        present: Mapping[int, int],
    ) -> Steps[KnownState]:
        """Set an ISR if the requesting leader has the present partition epoch. Raises KafkaError."""
        context = self.context
        known = context.states.get(partition)
        if known is None or partition[0] in context.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = known.state
        isr = tuple(each for each, _ in _isr(pending))
        is_recovering = bool(pending.leader_recovery_state)
        if pending.leader_epoch > state.leader_epoch or pending.partition_epoch > known.version:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER
            )  # the leader has newer state than this controller, which must then be an old one
        if pending.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if broker_id != state.leader or not isr or broker_id not in isr:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if isr == state.isr and is_recovering == state.is_recovering:
            return known  # a repeated request
        if pending.partition_epoch != known.version:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
        if is_recovering and (len(isr) > 1 or not state.is_recovering):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not set(isr) <= set(self._assigned(partition)):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._check_members(pending, present)
        new = state._replace(isr=isr, controller_epoch=context.epoch, is_recovering=is_recovering)
        try:
            (written,) = yield from self._partitions.write(
                [Set(znodes.partition_state_path(*partition), new.encode(), known.version)]
            )
        except RegistryError as error:
            if error.index is None:
                raise
            yield from self._partitions.read_states([partition])
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION) from error
        assert isinstance(written, Stat)
        context.states[partition] = known = KnownState(new, written.version, written.mzxid)
        return known

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
        several = [each for each in context.on_brokers([broker_id]) if len(self._assigned(each)) > 1]
        yield from self._partitions.change(several, self._partitions.leave(broker_id))
        for partition in several:
            known = context.states.get(partition)
            if known is not None and known.state.leader != broker_id:
                self._control_requests.stop(broker_id, partition, delete=False)
        return [each for each in context.led_by(broker_id) if len(self._assigned(each)) > 1]

    # ---- administrative requests

    def elect_preferred(self, partitions: Iterable[TopicPartition] | None) -> Steps[dict[TopicPartition, ErrorCode]]:
        """Elect the preferred leaders of these partitions, or of all."""
        context = self.context
        results: dict[TopicPartition, ErrorCode] = {}
        wanted = []
        for partition in context.partitions() if partitions is None else partitions:
            replicas = context.replicas(partition)
            if replicas is None:
                results[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition[0] in context.deleting:
                results[partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif partition in context.states and context.states[partition].state.leader == replicas.replicas[0]:
                results[partition] = ErrorCode.ELECTION_NOT_NEEDED
            else:
                wanted.append(partition)
        yield from self._partitions.change(wanted, self._partitions.prefer)
        for partition in wanted:
            known, preferred = context.states.get(partition), self._assigned(partition)[0]
            elected = known is not None and known.state.leader == preferred
            results[partition] = ErrorCode.NONE if elected else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        return results

    def elect_unclean(self, partitions: Iterable[TopicPartition] | None) -> Steps[dict[TopicPartition, ErrorCode]]:
        """Elect any live replica as leader of leaderless partitions; records that only others had are lost."""
        context = self.context
        results: dict[TopicPartition, ErrorCode] = {}
        wanted = []
        for partition in context.partitions() if partitions is None else partitions:
            if context.replicas(partition) is None:
                results[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition[0] in context.deleting:
                results[partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif not context.is_leaderless(partition):
                results[partition] = ErrorCode.ELECTION_NOT_NEEDED
            else:
                wanted.append(partition)
        yield from self._begin_missing(wanted)
        topics = frozenset(topic for topic, _ in wanted)
        yield from self._partitions.change(wanted, self._partitions.replace_lost(topics))
        for partition in wanted:
            led = not context.is_leaderless(partition)
            results[partition] = ErrorCode.NONE if led else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return results

    def topic_config_changed(self, topic: str) -> Steps[None]:
        """Elect leaders of a topic whose configuration has changed; it may allow unclean elections now."""
        partitions = [(topic, index) for index in self.context.assignments.get(topic, {})]
        yield from self._replace_lost([each for each in partitions if self.context.is_leaderless(each)])

    def unclean_default_changed(self, allow: bool) -> Steps[None]:
        """Apply a changed default of unclean.leader.election.enable, for topics that do not set it."""
        before, self._settings = self._settings, self._settings._replace(allow_unclean=allow)
        if allow and not before.allow_unclean:
            yield from self._replace_lost(filter(self.context.is_leaderless, list(self.context.partitions())))

    def balance(self) -> Steps[None]:
        """Elect preferred leaders for brokers whose imbalance exceeds leader.imbalance.per.broker.percentage."""
        context = self.context
        wanted: dict[int, list[TopicPartition]] = {}
        for partition in context.partitions():
            if partition[0] not in context.deleting:
                wanted.setdefault(self._assigned(partition)[0], []).append(partition)
        for broker_id, partitions in wanted.items():
            if broker_id not in context.brokers:
                continue
            elsewhere = [
                each
                for each in partitions
                if (known := context.states.get(each)) is not None and known.state.leader not in (broker_id, NO_LEADER)
            ]
            if len(elsewhere) * 100 > len(partitions) * self._settings.imbalance_percentage:
                able = [each for each in elsewhere if not context.is_reassigning(each)]
                yield from self._partitions.change(able, self._partitions.prefer)

    def elections_wished(self) -> Steps[None]:
        """Handle a request of an older tool to elect preferred leaders, made by a node of the metadata store."""
        if (yield Watch(znodes.PREFERRED_REPLICA_ELECTION)) is None:
            return
        (node,) = yield Read((znodes.PREFERRED_REPLICA_ELECTION,))
        if node is not None:
            with suppress(ZnodeError):
                yield from self.elect_preferred(znodes.decode_partitions(node[0]))
            yield from self._remove([znodes.PREFERRED_REPLICA_ELECTION])
            yield Watch(znodes.PREFERRED_REPLICA_ELECTION)

    def reassignments_wished(self) -> Steps[None]:
        """Handle a request of an older tool to reassign partitions, made by a node of the metadata store."""
        if (yield Watch(znodes.REASSIGN_PARTITIONS)) is None:
            return
        (node,) = yield Read((znodes.REASSIGN_PARTITIONS,))
        if node is not None:
            with suppress(ZnodeError):
                yield from self.reassign(znodes.decode_reassignment(node[0]))
            yield from self._remove([znodes.REASSIGN_PARTITIONS])
            yield Watch(znodes.REASSIGN_PARTITIONS)

    def reassign(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Steps[dict[TopicPartition, KafkaError | None]]:
        """Reassign partitions; None cancels a reassignment (KIP-455). Each succeeds or fails by itself."""
        results: dict[TopicPartition, KafkaError | None] = {}
        for partition, replicas in wanted.items():
            try:
                yield from self._reassignments.begin(partition, replicas)
            except KafkaError as error:
                results[partition] = error
            else:
                results[partition] = None
        return results

    def reassignments(self) -> dict[TopicPartition, Replicas]:
        """The ongoing reassignments."""
        return self._reassignments.under_way()

    def _remove(self, paths: Iterable[str]) -> Steps[None]:
        """Remove nodes that the controller has handled."""
        for path in paths:
            try:
                yield from self._partitions.write([Delete(path)])
            except NoNodeError:
                continue


def _isr(pending: m.AlterPartitionRequest.PartitionData) -> list[tuple[int, int]]:
    """The ISR that a leader requests, with the broker epochs that the request has (-1 where it has none)."""
    with_epochs = [(each.broker_id, each.broker_epoch) for each in pending.new_isr_with_epochs]
    return with_epochs or [(each, -1) for each in pending.new_isr]


def _members(request: m.AlterPartitionRequest) -> list[int]:
    """Every broker that a request adds to or keeps in some ISR."""
    pending = [pending for topic in request.topics for pending in topic.partitions]
    return sorted({broker_id for pending in pending for broker_id, _ in _isr(pending)})
