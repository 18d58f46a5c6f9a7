"""A controller machine over a tree without disk or delay, and brokers that are znodes.

`Harness.run` carries an event out as the controller's shell does; `Harness.cut` ends it after some steps, as when a
controller dies, and elects a fresh machine on the same tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from odradek.broker.controller.state.controller import ControllerMachine, ControllerSettings
from odradek.broker.controller.state.steps import Children, Pause, Read, Send, Step, Steps, Watch, Write
from odradek.broker.registry import znodes
from odradek.broker.registry.interface import Check, Create, Delete, NoNodeError, RegistryError, Set
from odradek.broker.registry.tree import Tree
from odradek.protocol import messages as m
from odradek.protocol.topic_partition import TopicPartition

LISTENER = "PLAINTEXT"


def replicas(*brokers: int) -> znodes.ReplicaAssignment:
    return znodes.ReplicaAssignment(brokers)


class Harness:
    """The tree, the brokers in it, and the current controller."""

    def __init__(self, *, allow_unclean: bool = False) -> None:
        self.tree = Tree()
        self.session = 0
        self.epochs: dict[int, int] = {}
        self.sent: list[Send] = []
        self.history: dict[TopicPartition, list[znodes.PartitionState]] = {}
        self.asked_for_more: set[TopicPartition] = set()
        self._allow_unclean = allow_unclean
        self._now = 0
        self._new_session()
        for path in znodes.PERSISTENT_PATHS:
            self.make(path)
        self.make(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))
        self.machine: ControllerMachine

    # ---- the registry

    def _new_session(self) -> None:
        self.session += 1
        self.tree.open_session(self.session, 1000, 0)

    def make(self, path: str, data: bytes | None = None) -> int:
        """Create a node, and those above it; returns its transaction."""
        parent = path.rpartition("/")[0]
        if parent and self.tree.exists(parent) is None:
            self.make(parent)
        self.tree.submit(self.session, [Create(path, data)], 0)
        return self.tree.zxid

    def state(self, partition: TopicPartition) -> znodes.PartitionState:
        return znodes.PartitionState.decode(self.tree.get(znodes.partition_state_path(*partition))[0])

    def assignment(self, partition: TopicPartition) -> znodes.ReplicaAssignment:
        data, _ = self.tree.get(znodes.topic_path(partition[0]))
        return znodes.TopicAssignment.decode(data).partitions[partition[1]]

    def states(self) -> dict[TopicPartition, znodes.PartitionState]:
        found = {}
        for topic in self.tree.children(znodes.TOPICS)[0]:
            try:
                indexes = self.tree.children(znodes.partitions_path(topic))[0]
            except NoNodeError:
                continue
            for index in indexes:
                if self.tree.exists(znodes.partition_state_path(topic, int(index))) is not None:
                    found[topic, int(index)] = self.state((topic, int(index)))
        return found

    def write_state(self, partition: TopicPartition, state: znodes.PartitionState) -> None:
        """A leader of a broker with an older protocol writes its ISR itself, and notifies the controller."""
        self.tree.submit(self.session, [Set(znodes.partition_state_path(*partition), state.encode())], 0)
        notice = Create(znodes.ISR_CHANGE_PREFIX, znodes.encode_partitions([partition]), sequential=True)
        self.tree.submit(self.session, [notice], 0)

    # ---- brokers

    def start(self, broker_id: int) -> None:
        endpoint = znodes.Endpoint(LISTENER, "127.0.0.1", 9000 + broker_id, "PLAINTEXT")
        data = znodes.BrokerRegistration((endpoint,), 1).encode()
        self.epochs[broker_id] = self.make(znodes.broker_path(broker_id), data)

    def stop(self, broker_id: int) -> None:
        self.tree.submit(self.session, [Delete(znodes.broker_path(broker_id))], 0)
        del self.epochs[broker_id]

    # ---- the controller

    def elect(self, *, steps: int | None = None) -> None:
        """A fresh controller is elected; with `steps` it dies after so many, and the next one follows."""
        data, stat = self.tree.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.decode_controller_epoch(data) + 1
        self.tree.submit(
            self.session, [Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), stat.version)], 0
        )
        settings = ControllerSettings(0, LISTENER, self._allow_unclean)
        self.machine = ControllerMachine(settings, epoch, stat.version + 1)
        event = self.machine.elected([bytes([each] * 16) for each in range(1, 9)])
        if steps is not None and self._some(event, steps):
            self.elect()
        elif steps is None:
            self._all(event)
        self._deliver()

    def run(self, event: Callable[[ControllerMachine], Steps[Any]]) -> Any:
        """An event from beginning to end, its control requests, and the events that follow from the responses."""
        result = self._all(event(self.machine))
        self._deliver()
        return result

    def cut(self, event: Callable[[ControllerMachine], Steps[Any]], steps: int) -> None:
        """The controller dies after so many steps of an event."""
        if self._some(event(self.machine), steps):
            self.elect()
        else:
            self._deliver()

    def _some(self, event: Steps[Any], steps: int) -> bool:
        """Whether the event was cut off before its end."""
        try:
            self._drive(event, steps)
        except StopIteration:
            return False
        event.close()
        list(self.machine.drain())
        return True

    def _all(self, event: Steps[Any]) -> Any:
        try:
            self._drive(event, None)
        except StopIteration as end:
            return end.value
        raise AssertionError("an event has no end")

    def _drive(self, event: Steps[Any], steps: int | None) -> None:
        step = next(event)
        while steps is None or steps > 0:
            steps = None if steps is None else steps - 1
            try:
                result = self._execute(step)
            except RegistryError as error:
                step = event.throw(error)
            else:
                step = event.send(result)

    def _execute(self, step: Step) -> Any:
        if isinstance(step, Write):
            first = step.operations[0]
            assert isinstance(first, Check), "Z1: a write begins with a check"
            assert (first.path, first.version) == (znodes.CONTROLLER_EPOCH, self.machine.context.epoch_version), "Z1"
            return self.tree.submit(self.session, step.operations, 0, multi=True).results[1:]
        if isinstance(step, Children):
            try:
                return self.tree.children(step.path)[0]
            except NoNodeError:
                return []
        if isinstance(step, Watch):
            return self.tree.exists(step.path)
        if isinstance(step, Pause):
            return None
        assert isinstance(step, Read)
        return [self._read(path) for path in step.paths]

    def _read(self, path: str) -> Any:
        try:
            return self.tree.get(path)
        except NoNodeError:
            return None

    def _deliver(self) -> None:
        """Brokers apply the control requests, and answer them."""
        while control_requests := [each for each in self.machine.drain() if isinstance(each, Send)]:
            self.sent.extend(control_requests)
            for broker_id, message in control_requests:
                assert broker_id in self.machine.context.brokers, "a control request for a broker that is not alive"
                assert message.controller_epoch == self.machine.context.epoch
                if isinstance(message, m.StopReplicaRequest):
                    self._check_deletions(broker_id, message)
                    answer = m.StopReplicaResponse(
                        partition_errors=[
                            m.StopReplicaResponse.StopReplicaPartitionError(
                                topic_name=topic.topic_name, partition_index=each.partition_index
                            )
                            for topic in message.topic_states
                            for each in topic.partition_states
                        ]
                    )
                    self._all(self.machine.topic_deletion.stop_replica_answered(broker_id, answer))

    def _check_deletions(self, broker_id: int, message: m.StopReplicaRequest) -> None:
        """The controller deletes nothing that is still needed."""
        for topic in message.topic_states:
            if self.tree.exists(znodes.delete_topic_path(topic.topic_name)) is None:
                for each in topic.partition_states:
                    partition = (topic.topic_name, each.partition_index)
                    needed = broker_id in (*self.assignment(partition).replicas, *self.state(partition).isr)
                    assert not (each.delete_partition and needed), f"{broker_id} deletes {partition}, which it has"

    def lose_disk(self, broker_id: int, partitions: Iterable[TopicPartition], *, code: int) -> None:
        """A broker answers a control request with this error for these partitions; with 0 it has them again."""
        topic_ids = self.machine.context.topic_ids
        topics = [
            m.LeaderAndIsrResponse.LeaderAndIsrTopicError(
                topic_id=topic_ids[topic],
                partition_errors=[
                    m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=index, error_code=code)
                ],
            )
            for topic, index in partitions
        ]
        self.run(lambda machine: machine.leader_and_isr_answered(broker_id, m.LeaderAndIsrResponse(topics=topics)))

    # ---- requests of leaders

    def alter(
        self, partition: TopicPartition, isr: tuple[int, ...], *, by_id: bool = True
    ) -> m.AlterPartitionResponse.PartitionData:
        """The leader requests an ISR, based on the current state; `by_id` as from version 2 on."""
        data, stat = self.tree.get(znodes.partition_state_path(*partition))
        state = znodes.PartitionState.decode(data)
        pending = m.AlterPartitionRequest.PartitionData(
            partition_index=partition[1],
            leader_epoch=state.leader_epoch,
            partition_epoch=stat.version,
            new_isr_with_epochs=[m.AlterPartitionRequest.BrokerState(broker_id=each) for each in isr],
        )
        request = m.AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=self.epochs.get(state.leader, -1),
            topics=[
                m.AlterPartitionRequest.TopicData(
                    topic_name="" if by_id else partition[0],
                    topic_id=self.machine.context.topic_ids.get(partition[0], bytes(16)),
                    partitions=[pending],
                )
            ],
        )
        self.asked_for_more.add(partition)
        response = self.run(lambda machine: machine.alter_partition.handle(request, by_id=by_id))
        if response.error_code:
            return m.AlterPartitionResponse.PartitionData(error_code=response.error_code)
        answer: m.AlterPartitionResponse.PartitionData = response.topics[0].partitions[0]
        return answer

    def make_topic(self, name: str, assignment: dict[int, znodes.ReplicaAssignment]) -> None:
        """Writes as those of AdminZkClient and kafka-topics --zookeeper."""
        self.make(znodes.config_path(f"topics/{name}"), znodes.encode_config({}))
        self.make(znodes.topic_path(name), znodes.TopicAssignment(name.encode().ljust(16, b"."), assignment).encode())

    # ---- invariants

    def check(self) -> None:
        """Every state in the registry, beside the previous one."""
        for partition, state in self.states().items():
            replicas = self.assignment(partition).replicas
            assert set(state.isr) <= set(replicas), f"{partition}: {state} is not of {replicas}"
            past = self.history.setdefault(partition, [])
            before = past[-1] if past else None
            if before == state:
                continue
            past.append(state)
            assert state.leader == -1 or state.leader in state.isr, f"{partition} has a leader outside its ISR: {state}"
            assert state.isr, f"{partition} has no ISR"
            if before is None:
                continue
            assert state.leader_epoch >= before.leader_epoch, f"{partition}: the epoch fell"
            if state.leader != before.leader:
                assert state.leader_epoch > before.leader_epoch, f"{partition}: another leader in the same epoch"
                clean = state.leader in (-1, *before.isr) or partition in self.asked_for_more
                assert clean or self._allow_unclean, f"{partition}: {state} after {before} is an unclean election"
            grown = set(state.isr) - set(before.isr)
            assert not grown or partition in self.asked_for_more or state.is_recovering, f"{partition}: grew by {grown}"
        self.asked_for_more.clear()
