"""The inter-broker client: each request has exactly one outcome, and none after its connection was dropped."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.controller.channel_manager import ControlEndpoint, ControllerChannelManager
from odradek.broker.metadata.cache import BrokerMetadata, ListenerAddress, MetadataCache
from odradek.broker.network.controller_channel import ControllerChannel
from odradek.broker.network.inter_broker_client import InterBrokerClient
from odradek.broker.network.inter_broker_connection import Network, Peer
from odradek.broker.runtime.timers import LoopTimers, SystemClock
from odradek.broker.runtime.turns import Turns
from odradek.protocol import dial
from odradek.protocol import messages as m
from odradek.protocol.dial import Channel
from tests.broker.stepping_turns import SteppingClock
from tests.support.eventually import eventually_async

OWN, OTHER, THIRD = 1, 5, 6
REQUEST = m.AllocateProducerIdsRequest()
RESPONSE = m.AllocateProducerIdsResponse()


class Mute:
    """A connection to a broker that never responds."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_open = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_open = False


class Dialed:
    """The connections that were opened, by port."""

    def __init__(self) -> None:
        self.channels: dict[int, Mute] = {}

    async def __call__(self, host: str, port: int, **handlers: Any) -> Channel:
        self.channels[port] = Mute()
        return self.channels[port]


class Outcomes:
    """The callbacks of one request, and how often each was called."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.losses: list[str] = []

    @property
    def callbacks(self) -> tuple[Callable[[Any], None], Callable[[Exception], None]]:
        return self.answers.append, lambda error: self.losses.append(str(error))


class Case:
    """A client of the metadata cache over connections that never respond."""

    def __init__(self) -> None:
        clock = SystemClock()
        self.dialed = Dialed()
        self.network = Network(self.dialed, clock, LoopTimers(clock, asyncio.get_running_loop()))
        self.cache = MetadataCache("cluster")
        self.put(OTHER, 1005)
        self.put(THIRD, 1006)
        self.local_calls: list[tuple[Callable[[Any], None], Callable[[], None]]] = []
        self.client = InterBrokerClient.of_metadata(self.cache, "PLAINTEXT", OWN, self.network, self.local, "test")

    def local(
        self, request: Any, version: int, client_id: str, on_answer: Callable[[Any], None], on_lost: Callable[[], None]
    ) -> None:
        self.local_calls.append((on_answer, on_lost))

    def put(self, broker_id: int, port: int) -> None:
        self.cache.brokers[broker_id] = BrokerMetadata(broker_id, (ListenerAddress("PLAINTEXT", "localhost", port),))

    def send_request(self, broker_id: int) -> Outcomes:
        outcomes = Outcomes()
        self.client.send_request(broker_id, REQUEST, *outcomes.callbacks)
        return outcomes


async def turns(number: int = 3) -> None:
    """Run the callbacks that are due."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_request_to_this_broker_is_a_call_that_begins_later() -> None:
    case = Case()
    first, second = case.send_request(OWN), case.send_request(OWN)
    assert not case.local_calls
    await turns()
    case.local_calls[0][0](RESPONSE)
    case.local_calls[1][1]()
    assert (first.answers, first.losses) == ([RESPONSE], [])
    assert (second.answers, second.losses) == ([], ["this broker did not answer its own request"])
    case.client.close()


async def test_no_callback_is_called_after_close() -> None:
    case = Case()
    outcomes = [case.send_request(OWN), case.send_request(OTHER), case.send_request(9)]
    await turns()
    called = case.send_request(OWN)
    case.client.close()
    case.local_calls[0][0](RESPONSE)
    outcomes += [called, case.send_request(OWN), case.send_request(OTHER)]
    await turns()
    assert len(case.local_calls) == 1
    assert not any(each.answers for each in outcomes)
    assert [len(each.losses) for each in outcomes] == [0, 0, 1, 0, 0, 0]
    assert not case.dialed.channels[1005].is_open


async def test_a_broker_that_moves_or_leaves_is_lost_once_and_found_at_its_new_address() -> None:
    case = Case()
    moved, left = case.send_request(OTHER), case.send_request(THIRD)
    await turns()
    case.put(OTHER, 2005)
    del case.cache.brokers[THIRD]
    case.cache.partition_states_changed()
    assert (moved.losses, left.losses) == (["broker 5 has moved"], ["broker 6 has left the cluster"])
    again, absent = case.send_request(OTHER), case.send_request(THIRD)
    assert not absent.losses
    await turns()
    assert absent.losses == ["broker 6 is not in the metadata"]
    assert len(case.dialed.channels[2005].written) == 1
    assert not again.losses
    case.client.close()


async def test_requests_to_a_former_controller_fail_when_the_next_controller_is_asked() -> None:
    case = Case()
    channel = ControllerChannel(case.client, case.cache)
    case.cache.controller_id = OTHER
    former, next_one = Outcomes(), Outcomes()
    channel.send_request(REQUEST, *former.callbacks)
    await turns()
    case.cache.controller_id = THIRD
    channel.send_request(REQUEST, *next_one.callbacks)
    await turns()
    assert (former.losses, next_one.losses) == (["the controller has moved"], [])
    assert case.dialed.channels.keys() == {1005, 1006}
    channel.close()


async def test_control_requests_for_an_earlier_incarnation_are_dropped() -> None:
    case = Case()
    channels = ControllerChannelManager(OWN, case.network, case.local)
    brokers = {OWN: ControlEndpoint("localhost", 1001, 10), OTHER: ControlEndpoint("localhost", 1005, 10)}
    channels.update(brokers)
    responses: list[Any] = []
    for broker_id in brokers:
        for _ in range(2):
            channels.send(broker_id, m.UpdateMetadataRequest(), responses.append)
    await turns()
    assert len(case.local_calls) == len(case.dialed.channels[1005].written) == 1  # one at a time
    former = case.dialed.channels[1005]
    channels.update({each: broker._replace(broker_epoch=11) for each, broker in brokers.items()})
    case.local_calls[0][0](m.UpdateMetadataResponse())
    await turns()
    assert not former.is_open
    assert (responses, len(case.local_calls)) == ([], 1)
    for broker_id in brokers:
        channels.send(broker_id, m.UpdateMetadataRequest(), responses.append)
    await turns()
    assert len(case.local_calls) == 2
    assert len(case.dialed.channels[1005].written) == 1
    channels.close()
    case.local_calls[1][0](m.UpdateMetadataResponse())
    assert not responses


async def test_a_large_control_request_to_another_broker_is_encoded_in_turns() -> None:
    """10,000 partitions held the loop for 16 milliseconds."""
    case, in_turns = Case(), Turns(SteppingClock(2))
    channels = ControllerChannelManager(OWN, case.network, case.local, run_in_turns=in_turns.run)
    channels.update({each: ControlEndpoint("localhost", 1000 + each, 10) for each in (OWN, OTHER)})
    state = m.UpdateMetadataRequest.UpdateMetadataTopicState
    entry = m.UpdateMetadataRequest.UpdateMetadataPartitionState
    many = m.UpdateMetadataRequest(
        topic_states=[state(topic_name="t", partition_states=[entry(partition_index=index) for index in range(1500)])]
    )
    for broker_id in (OWN, OTHER):
        channels.send(broker_id, many, lambda response: None)
        channels.send(broker_id, m.UpdateMetadataRequest(), lambda response: None)
    await eventually_async(lambda: 1005 in case.dialed.channels and case.dialed.channels[1005].written, bool, "sent")
    assert in_turns.interruptions > 700
    (written,) = case.dialed.channels[1005].written
    version = m.UpdateMetadataRequest.MAX_VERSION
    assert written.endswith(many.encode(version))
    assert len(case.local_calls) == 1, "this broker gets the request itself"
    channels.send(THIRD, many, lambda response: None)
    channels.update({OTHER: ControlEndpoint("localhost", 1005, 11)})
    channels.send(OTHER, many, lambda response: None)
    channels.close()
    before = in_turns.interruptions
    await eventually_async(lambda: in_turns.interruptions - before, lambda count: count > 700, "it is encoded")
    assert len(case.dialed.channels[1005].written) == 1, "the broker has gone meanwhile"
    in_turns.close()


@pytest.mark.parametrize(
    "address", [("a" * 64, 9092), ("host\0name", 9092), ("é" * 70, 9092), ("", 1), ("127.0.0.1", 70000)]
)
async def test_an_address_that_cannot_exist_is_a_loss_and_another_request_dials_again(address: tuple[str, int]) -> None:
    clock = SystemClock()
    network = Network(dial.connect, clock, LoopTimers(clock, asyncio.get_running_loop()))
    peer = Peer(network, "broker 5", *address, "test")
    outcome = Outcomes()
    for number in (1, 2):
        peer.send_request(REQUEST, *outcome.callbacks)
        await eventually_async(lambda: len(outcome.losses), number.__eq__)
        assert "cannot be reached" in outcome.losses[-1]
    peer.close()


@pytest.mark.parametrize("host", ["a" * 64, "host\0name", ".localhost"])
async def test_an_invalid_name_for_tls_is_an_os_error(host: str) -> None:
    nothing = lambda *_: None  # noqa: E731
    with pytest.raises(OSError):  # noqa: PT011  # the message is the library's
        await dial.connect(
            host, 1, on_frame=nothing, on_lost=nothing, frame_bytes=1 << 20, tls=ssl.create_default_context()
        )
