"""Server sessions: resumes and expires the sessions of a metadata store server's clients (ZooKeeper:
SessionTrackerImpl and ZooKeeperServer.reopenSession).

- The timeout is the one that the client requests, but no less than 2 and no more than 20 ticks.
- A connection that ends leaves its session alive. A client that sends the password within the timeout resumes it; the
  session's previous connection is ended. Watches belong to the connection, and the client sets them again.
- Every packet resets the session's timer. Once a tick the server expires sessions without packets and removes their
  nodes.
- Sessions that an earlier run of the server left in the journal start with their whole timeout.

Unlike ZooKeeper, a server that was itself paused (a stopped process) extends its clients' sessions by the lost time:
their packets may be unread in its sockets.
"""

from __future__ import annotations

import functools
import hmac
import logging
import struct
from collections.abc import Callable
from typing import Final, Protocol

from odradek.broker.registry.client_wire import PASSWORD_BYTES, ConnectRequest
from odradek.broker.registry.embedded import EmbeddedEnsemble
from odradek.broker.registry.interface import ConnectionLossError, SessionExpiredError, SessionState

_SHORTEST_TICKS: Final = 2
_LONGEST_TICKS: Final = 20

# ZooKeeper makes the password from the id with java.util.Random, so that every server computes it and none stores it.
# Made the same way here, it is valid after a restart, and on an Apache ZooKeeper that is started on the same folder.
_PASSWORD_SEED: Final = 0xB3415C00
_RANDOM_FACTOR: Final = 0x5DEECE66D
_RANDOM_ADDEND: Final = 0xB
_RANDOM_MASK: Final = (1 << 48) - 1
_WORD: Final = struct.Struct("<I")

_log = logging.getLogger(__name__)


class Client(Protocol):
    """The connection through which a session is used."""

    def end(self) -> None:
        """Send nothing more and end the connection."""


class _Session:
    """One session; `client` is None while it has no connection."""

    __slots__ = ("client", "deadline_ms", "timeout_ms")

    def __init__(self, timeout_ms: int, client: Client | None, now_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self.client = client
        self.deadline_ms = now_ms + timeout_ms


class SessionTracker:
    """The sessions of one ensemble. `monotonic_ms` is the clock of their timeouts."""

    __slots__ = ("_ensemble", "_monotonic_ms", "_sessions", "_swept_ms", "_tick_ms")

    def __init__(self, ensemble: EmbeddedEnsemble, tick_ms: int, monotonic_ms: Callable[[], float]) -> None:
        self._ensemble = ensemble
        self._tick_ms = tick_ms
        self._monotonic_ms = monotonic_ms
        self._swept_ms = monotonic_ms()
        self._sessions: dict[int, _Session] = {}
        for session_id, timeout_ms in ensemble.orphans().items():
            self._add(session_id, timeout_ms, None)

    def open(self, asked: ConnectRequest, client: Client) -> ConnectRequest | None:
        """Give a client a new session or its own; None if that has ended or the password is wrong.

        Raises ConnectionLossError.
        """
        timeout_ms = min(max(asked.timeout_ms, _SHORTEST_TICKS * self._tick_ms), _LONGEST_TICKS * self._tick_ms)
        session_id = asked.session_id
        if session_id == 0:
            session_id = self._ensemble.open_session(timeout_ms)
            self._add(session_id, timeout_ms, client)
        else:
            session = self._sessions.get(session_id)
            if session is None or not hmac.compare_digest(asked.password, password_of(session_id)):
                return None
            before, session.client = session.client, client
            session.timeout_ms = timeout_ms
            self.touch(session_id)
            if before is not None:
                self._ensemble.forget_watches(session_id)
                before.end()
        return asked._replace(timeout_ms=timeout_ms, session_id=session_id, password=password_of(session_id))

    def touch(self, session_id: int) -> None:
        """Reset the session's timer: the client sent a packet."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.deadline_ms = self._monotonic_ms() + session.timeout_ms

    def leave(self, session_id: int, client: Client) -> None:
        """Handle the end of a connection; the session waits for the next one."""
        session = self._sessions.get(session_id)
        if session is not None and session.client is client:
            session.client = None
            self._ensemble.forget_watches(session_id)

    def close(self, session_id: int) -> None:
        """End a session at its client's request. Raises ConnectionLossError."""
        if self._sessions.pop(session_id, None) is not None:
            self._ensemble.end_session(session_id, SessionState.CLOSED)

    def sweep(self) -> None:
        """Expire the sessions whose clients sent nothing for too long. To be called once a tick."""
        now_ms = self._monotonic_ms()
        late_ms = now_ms - self._swept_ms - self._tick_ms
        self._swept_ms = now_ms
        if late_ms > self._tick_ms:
            _log.warning("server was paused, extending its sessions paused_ms=%d", late_ms)
            for session in self._sessions.values():
                session.deadline_ms += late_ms
        for session_id, session in list(self._sessions.items()):
            if session.deadline_ms <= now_ms:
                self._expire(session_id, session)

    def detach(self) -> None:
        """Detach all sessions; they stay in the ensemble for the next server."""
        for session_id in self._sessions:
            self._ensemble.detach(session_id)
        self._sessions.clear()

    def _expire(self, session_id: int, session: _Session) -> None:
        try:
            self._ensemble.end_session(session_id, SessionState.EXPIRED)
        except ConnectionLossError:
            return  # the journal has failed, and every connection was ended with it
        except SessionExpiredError:
            return  # another caller has ended it; the listener is notified when that is durable
        _log.info("session expired session=%#x timeout_ms=%d", session_id, session.timeout_ms)
        self._sessions.pop(session_id, None)
        if session.client is not None:
            session.client.end()

    def _add(self, session_id: int, timeout_ms: int, client: Client | None) -> None:
        session = _Session(timeout_ms, client, self._monotonic_ms())
        self._sessions[session_id] = session
        self._ensemble.attach(session_id, functools.partial(self._change_state, session_id))

    def _change_state(self, session_id: int, state: SessionState) -> None:
        """Handle a session that another caller ended, or a failed journal."""
        if state is SessionState.CLOSED:
            return
        session = self._sessions.get(session_id)
        if session is None:
            return
        if state is SessionState.EXPIRED:
            del self._sessions[session_id]
        if session.client is not None:
            session.client.end()


def password_of(session_id: int) -> bytes:
    """The 16 bytes with which a client resumes a session."""
    state = (session_id ^ _PASSWORD_SEED ^ _RANDOM_FACTOR) & _RANDOM_MASK
    password = b""
    while len(password) < PASSWORD_BYTES:
        state = (state * _RANDOM_FACTOR + _RANDOM_ADDEND) & _RANDOM_MASK
        password += _WORD.pack(state >> 16)
    return password
