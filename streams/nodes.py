"""Nodes of a sub-topology as functions of one task, each calling its children (Kafka: ProcessorNode).

Children are bound before their parents, so that a node has its children's functions when it is created; a record then
travels by plain calls. After an error of a node the processing handler decides (KIP-1033): its result applies to this
node alone, and its parent continues with its other children. A `try` surrounds each node; it costs nothing as long as
nothing is raised.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from odradek.streams.context import TaskContext
from odradek.streams.errors import (
    ProcessingError,
    SerializationError,
    StreamsError,
    TopologyError,
    Undelivered,
    UnknownStateStoreError,
    ends_thread,
)
from odradek.streams.metered import NodeMeters
from odradek.streams.operators.fusion import FusedFunctionBuilder, Inlined, Writing
from odradek.streams.processor import Cancellable, FixedKeyProcessor, ProcessorContext, PunctuationType, Punctuator
from odradek.streams.processor_wrapper import wrapped
from odradek.streams.records import Headers, Process, Record, RecordMetadata, TaskId
from odradek.streams.sensors import StreamsMetrics
from odradek.streams.serdes import Serde
from odradek.streams.topology import ProcessorNode, SinkNode, SourceNode, Topology, check_topic_name

if TYPE_CHECKING:
    from odradek.streams.node_calls import NodeCalls

Schedule = Callable[[str, int, PunctuationType, Punctuator], Cancellable]


class NodeContext:
    """One node of one task, for its operator."""

    __slots__ = ("_children", "_program", "forward", "name", "stores", "task")

    def __init__(
        self,
        name: str,
        program: Program,
        children: Mapping[str, Process],
        stores: Mapping[str, Any],
        apart: Collection[str] = (),
    ) -> None:
        """`apart` are the children that get only what is forwarded to them by name."""
        self.name = name
        self.task: TaskContext = program.task
        self.forward: Process = fan_out(tuple(children[each] for each in children if each not in apart))
        """Forwards a record to all children that are not apart, in their order."""
        self.stores = stores
        self._children = children
        self._program = program

    def child(self, name: str) -> Process:
        """One child. Raises StreamsError for an unknown name."""
        try:
            return self._children[name]
        except KeyError:
            known = ", ".join(self._children) or "none"
            raise StreamsError(f"Unknown downstream node: {name} of {self.name}; its children are: {known}") from None

    def store(self, name: str) -> Any:
        """A store that this node is connected to, or a global one. Raises UnknownStateStoreError."""
        try:
            return self.stores[name]
        except KeyError:
            raise UnknownStateStoreError(
                f"Processor {self.name} has no access to StateStore {name} as the store is not connected to it"
            ) from None

    def on_init(self, callback: Callable[[], None]) -> None:
        """Call `callback` when all nodes are bound and the stores are restored."""
        self._program.on_init.append(callback)

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the task closes."""
        self._program.on_close.append(callback)

    def on_life(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Call `begin` as `on_init` does, and `end` when the task closes, if `begin` was called."""

        def callback() -> None:
            begin()
            self.on_close(end)

        self.on_init(callback)

    def schedule(self, interval_ms: int, kind: PunctuationType, callback: Punctuator) -> Cancellable:
        """Call back every `interval_ms`."""
        return self._program.schedule(self.name, interval_ms, kind, callback)

    def add_calls(self, calls: NodeCalls) -> None:
        """The node has results that it forwards later: the task waits for them before a commit."""
        self._program.calls.append(calls)

    def dropped(self) -> None:
        """Count a dropped record."""
        self.task.dropped += 1


class Program:
    """The functions of one task's nodes."""

    def __init__(
        self,
        topology: Topology,
        names: tuple[str, ...],
        task: TaskContext,
        stores: Mapping[str, Any],
        schedule: Schedule,
        meters: NodeMeters | None = None,
    ) -> None:
        """`names` are the nodes of the sub-topology; `stores` all that the task has, and the global ones, by name.

        With `meters` each node is a function of its own that is counted and timed.
        """
        self.task = task
        self.schedule = schedule
        self.on_init: list[Callable[[], None]] = []
        self.on_close: list[Callable[[], None]] = []
        self.calls: list[NodeCalls] = []
        """The calls of asynchronous nodes; those of a node are behind those of its descendants."""
        self._topology = topology
        self._names = names
        self._stores = stores
        self._bound: dict[str, Process] = {}
        self._meters = meters

    def bind(self) -> dict[str, Process]:
        """The function of each source node, by its name."""
        nodes = self._topology.nodes
        with self._closed_where_it_fails():
            return {name: self._bind(name) for name in self._names if isinstance(nodes[name], SourceNode)}

    def init(self) -> None:
        """Initialize the processors, with the stores available. If one fails, those that were initialized are closed
        again.
        """
        with self._closed_where_it_fails():
            for callback in self.on_init:
                callback()

    @contextlib.contextmanager
    def _closed_where_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            try:
                self.close()
            except Exception as another:
                error.add_note(f"and closing what had begun: {another!r}")
            raise

    def close(self) -> None:
        """Close all processors; the first error is raised afterwards."""
        failed: Exception | None = None
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            try:
                callback()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _bind(self, name: str) -> Process:
        if name in self._bound:
            return self._bound[name]
        node = self._topology.nodes[name]
        if isinstance(node, SinkNode):
            process = _sink(node, self._topology, self.task)
        elif isinstance(node, ProcessorNode) and (operator := self._inlined(node)) is not None:
            process = self._chain(node, operator)
        else:
            children = {child: self._bind(child) for child in node.children}
            apart = getattr(node.supplier, "apart", ()) if isinstance(node, ProcessorNode) else ()
            context = NodeContext(name, self, children, self._of(node), apart)
            if isinstance(node, SourceNode):
                process = context.forward
            else:
                supplier = node.supplier
                bind = getattr(supplier, "bind", None)
                made = bind(context) if bind is not None else _by_hand(supplier, context)  # type: ignore[arg-type]
                process = _guarded(made, name, self.task)
        if self._meters is not None:
            process = self._meters.metered(name, process)
        self._bound[name] = process
        return process

    def _inlined(self, node: ProcessorNode) -> Inlined | None:
        """The operator of a node that can be part of a chain; None for others."""
        supplier: Any = node.supplier
        if hasattr(supplier, "inline"):
            return supplier  # type: ignore[no-any-return]
        fused: Callable[[NodeContext], Inlined | None] | None = getattr(supplier, "fused", None)
        return None if fused is None else fused(NodeContext(node.name, self, {}, self._of(node)))

    def _chain(self, first: ProcessorNode, operator: Inlined) -> Process:
        """This node and its descendants, as far as they can be one function (see operators/fusion.py)."""
        task, nodes = self.task, self._topology.nodes
        chain = FusedFunctionBuilder(lambda node, key, value, error: failed(task, node, key, value, error))
        label: list[str] = []
        node = first
        while True:
            chain.add(node.name, operator)
            label.append(node.name)
            if len(node.children) != 1 or chain.full or self._meters is not None:
                break
            child = nodes[node.children[0]]
            if isinstance(child, SinkNode) and isinstance(child.topic, str):
                if child.partitioner is None and len(child.parents) == 1:
                    topic = self._topology.cluster_name(child.topic, task.application_id)
                    return chain.finish(_writing(child, topic, task), [*label, child.name])
                break
            if not isinstance(child, ProcessorNode) or len(child.parents) > 1:
                break
            following = self._inlined(child)
            if following is None:
                break
            node, operator = child, following
        return chain.finish(fan_out(tuple(map(self._bind, node.children))), label)

    def _of(self, node: SourceNode | ProcessorNode) -> dict[str, Any]:
        """The stores that a node may use: its own, and every global one."""
        names = [*node.stores, *self._topology.global_stores] if isinstance(node, ProcessorNode) else []
        return {name: self._stores[name] for name in names if name in self._stores}


def _ignore(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """The end of a branch without a sink."""


def fan_out(children: tuple[Process, ...]) -> Process:
    """One function that calls all of these, in this order."""
    if not children:
        return _ignore
    if len(children) == 1:
        return children[0]
    if len(children) == 2:
        first, second = children

        def both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both

    def each(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp, headers)

    return each


def _guarded(process: Process, name: str, task: TaskContext) -> Process:
    def guarded(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            process(key, value, timestamp, headers)
        except Exception as error:
            if ends_thread(error):
                raise
            failed(task, name, key, value, error)

    return guarded


def failed(task: TaskContext, name: str, key: Any, value: Any, error: Exception) -> None:
    """A node has failed: the handler decides. Raises ProcessingError where it returns FAIL."""
    where = task.where(name)
    record = Record(key, value, task.timestamp, task.headers)
    if task.failed(task.handlers.processing, where, record, error):
        raise ProcessingError(f"Exception caught in process. {where}: {error!r}") from error


# ---- sinks


def _sink(node: SinkNode, topology: Topology, task: TaskContext) -> Process:
    """Serialize the record, and send it to the collector."""
    if callable(node.topic):
        return _choosing_sink(node, task)
    topic = topology.cluster_name(node.topic, task.application_id)
    return _writer(node, topic, task)


def _choosing_sink(node: SinkNode, task: TaskContext) -> Process:
    choose = node.topic
    assert callable(choose)
    writers: dict[str, Process] = {}
    name = node.name

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            topic = choose(key, value, task.record_metadata)
            writer = writers.get(topic)
            if writer is None:
                check_topic_name(topic, f"sink {name}")
                writer = writers[topic] = _writer(node, topic, task)
                task.collector.add_writer(topic, name)
        except TopologyError as error:  # the record has no topic that can exist
            failed(task, name, key, value, error)
            return
        except StreamsError:
            raise
        except Exception as error:
            failed(task, name, key, value, error)
            return
        writer(key, value, timestamp, headers)

    return process


def _writing(node: SinkNode, topic: str, task: TaskContext) -> Writing:
    where = f"sink {node.name} of topic {topic}"
    key_serde = default_serde(node.key, "default.key.serde", task, f"{where} (keys; Produced)").for_topic(topic, True)
    value_serde = default_serde(node.value, "default.value.serde", task, f"{where} (values; Produced)")
    value_serde = value_serde.for_topic(topic, False)
    name = node.name

    def refuse(key: Any, value: Any, timestamp: int, headers: Headers, error: Exception) -> None:
        record = Undelivered(topic, key, value, None, timestamp, headers, serialized=False)
        _unserializable(task, name, record, error, (key_serde, value_serde))

    def without_time(timestamp: int) -> None:
        raise StreamsError(
            f"Invalid (negative) timestamp of {timestamp} for output record of {task.where(name)} to {topic}"
        )

    write_key, write_value = (_for_client(serde.serialize, task) for serde in (key_serde, value_serde))
    return Writing(topic, write_key, write_value, task.send, refuse, without_time)


def _for_client(serialize: Callable[[Any], bytes], task: TaskContext) -> Callable[[Any], Any]:
    """A serializer; that of texts is the collector's, whose producer may write them without an object of bytes."""
    write_text: Callable[[Any], Any] = getattr(task.collector, "write_text", str.encode)
    return write_text if serialize == str.encode else serialize


def _writer(node: SinkNode, topic: str, task: TaskContext) -> Process:
    _, write_key, write_value, send, refuse, without_time = _writing(node, topic, task)
    partitioner, name = node.partitioner, node.name

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            key_bytes = None if key is None else write_key(key)
            value_bytes = None if value is None else write_value(value)
        except Exception as error:
            refuse(key, value, timestamp, headers, error)
            return
        if timestamp < 0:
            without_time(timestamp)
        if partitioner is None:
            send(topic, key_bytes, value_bytes, None, timestamp, headers)
            return
        count = task.collector.partitions_of(topic)
        try:
            chosen = partitioner(topic, key, value, count)
            partitions = None if chosen is None or isinstance(chosen, int) else sorted(set(chosen))
        except Exception as error:
            failed(task, name, key, value, error)
            return
        if partitions is None:
            send(topic, key_bytes, value_bytes, chosen, timestamp, headers)
            return
        if not partitions:
            task.dropped += 1
        for partition in partitions:
            send(topic, key_bytes, value_bytes, partition, timestamp, headers)

    return process


def _unserializable(
    task: TaskContext, name: str, record: Undelivered, error: Exception, serdes: tuple[Serde[Any], Serde[Any]]
) -> None:
    """A record cannot be written as bytes: the production handler decides (KIP-399)."""
    where = task.where(name)
    if task.failed(task.handlers.production, where, record, error):
        types = f"key {type(record.key).__name__} by {serdes[0]}, value {type(record.value).__name__} by {serdes[1]}"
        raise SerializationError(f"cannot serialize a record for {record.topic} ({types}); {where}: {error}") from error


def default_serde(serde: Serde[Any] | None, name: str, task: TaskContext, where: str = "") -> Serde[Any]:
    """The serde of a node, or else the one of the configuration. Raises StreamsError where neither is given.

    `where` is the place for the message.
    """
    return configured_serde(serde, name, task.config, where)


def configured_serde(serde: Serde[Any] | None, name: str, config: Mapping[str, Any], where: str = "") -> Serde[Any]:
    """The same for a configuration. Raises StreamsError."""
    found = serde if serde is not None else config.get(name)
    try:
        if isinstance(found, Serde):
            return found.configured(config)
        problem = f"Please specify a serde, or set one through the configuration {name}"
    except SerializationError as error:  # a serde whose inner serde is missing
        problem = str(error)
    raise StreamsError(f"{where}: {problem}" if where else problem)


# ---- the Processor API


def interval_in_ms(interval: int | timedelta) -> int:
    """The interval of a punctuation in ms. Raises ValueError below one ms."""
    interval_ms = round(interval / timedelta(milliseconds=1)) if isinstance(interval, timedelta) else interval
    if interval_ms < 1:
        raise ValueError("The minimum supported scheduling interval is 1 millisecond.")
    return interval_ms


class _HandContext:
    """The context of a user's processor (ProcessorContext)."""

    def __init__(self, node: NodeContext, fixed_key: bool) -> None:
        self._node = node
        self._task = node.task
        self._forward: Final = node.forward
        self._fixed_key = fixed_key
        self.key_at_hand: Any = None

    @property
    def application_id(self) -> str:
        return self._task.application_id

    @property
    def task_id(self) -> TaskId:
        return self._task.task_id

    @property
    def config(self) -> Mapping[str, Any]:
        return self._task.config

    @property
    def state_dir(self) -> Any:
        return self._task.state_dir

    @property
    def record_metadata(self) -> RecordMetadata | None:
        return self._task.record_metadata

    @property
    def current_stream_time_ms(self) -> int:
        return self._task.stream_time

    @property
    def current_system_time_ms(self) -> int:
        return self._task.system_time_ms()

    def forward(self, record: Record, child: str | None = None) -> None:
        if self._fixed_key and record.key is not self.key_at_hand and record.key != self.key_at_hand:
            raise StreamsError(f"{self._node.name} may not change the key {self.key_at_hand!r} to {record.key!r}")
        target = self._forward if child is None else self._node.child(child)
        task = self._task
        before = task.timestamp, task.headers
        task.timestamp, task.headers = record.timestamp, record.headers
        target(record.key, record.value, record.timestamp, record.headers)
        task.timestamp, task.headers = before

    def state_store(self, name: str) -> Any:
        return self._node.store(name)

    def schedule(self, interval: int | timedelta, kind: PunctuationType, callback: Punctuator) -> Cancellable:
        return self._node.schedule(interval_in_ms(interval), kind, callback)

    def commit(self) -> None:
        self._task.commit_wanted = True

    def metrics(self) -> StreamsMetrics:
        return self._task.streams_metrics


class _LookingContext(_HandContext):
    """The context of a transformer of values, which may not forward (ForwardingDisabledProcessorContext)."""

    def forward(self, record: Record, child: str | None = None) -> None:
        raise StreamsError(f"{self._node.name}: forward() is not supported from a ValueTransformer")


def looking_context(node: NodeContext) -> ProcessorContext:
    """The context for a transformer of a node's values."""
    return _LookingContext(node, fixed_key=False)


def _by_hand(supplier: Callable[[], Any], node: NodeContext) -> Process:
    processor = wrapped(node.task.config.get("processor.wrapper.class"), node.name, supplier)
    context = _HandContext(node, isinstance(processor, FixedKeyProcessor))
    node.on_life(lambda: processor.init(context), processor.close)
    work, task = processor.process, node.task

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        context.key_at_hand = key
        task.timestamp = timestamp
        task.headers = headers
        work(Record(key, value, timestamp, headers))

    return process
