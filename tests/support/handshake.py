"""A TLS handshake in memory, between the contexts of a server and of a client."""

from __future__ import annotations

import ssl

_MOST_TURNS = 10


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after the handshake, the server's first. Raises SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = server.wrap_bio(up, down, server_side=True)
    far = client.wrap_bio(down, up, server_hostname=host)
    pending = [far, near]
    for _ in range(_MOST_TURNS):
        for end in list(pending):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            pending.remove(end)
    assert not pending
    return near, far
