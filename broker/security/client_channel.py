"""Client channels: connections to other brokers, with the security protocol of a listener (Kafka: ChannelBuilders,
clientChannelBuilder).

A broker connects to the same listener of other brokers as it has itself, with the key and the authorities of its own:
its inter-broker listener, and for requests of and to the controller the control plane listener where there is one.
"""

from __future__ import annotations

import ssl
from functools import partial

from odradek.broker.security.channel_builder import ChannelBuilder
from odradek.protocol.dial import Channel, Connect, OnFrame, OnLost


class ClientChannels:
    """Opens connections to one listener of other brokers."""

    def __init__(self, connect: Connect, builder: ChannelBuilder) -> None:
        """`builder` has the security of this broker's own listener of that name."""
        self._connect = connect
        self._builder = builder

    async def connect(
        self,
        host: str,
        port: int,
        *,
        on_frame: OnFrame,
        on_lost: OnLost,
        frame_bytes: int,
        tls: ssl.SSLContext | None = None,
    ) -> Channel:
        """Open a connection that is ready for requests, with the TLS context of the listener unless `tls` is given.

        Raises OSError, also where either end rejects the other.
        """
        tls, sasl = tls or self._builder.client_tls, self._builder.client_sasl
        connect = self._connect if sasl is None else partial(sasl.connect, self._connect)
        return await connect(host, port, on_frame=on_frame, on_lost=on_lost, frame_bytes=frame_bytes, tls=tls)
