"""Sessions of users in the memory of the console: a random cookie, a token against forged requests, a workspace.

A cluster without SASL has one workspace for all; a cluster with SASL has one for each login, with the credentials that
the user typed. Passwords and tokens are not kept beside the connections that need them, and end with the session.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from odradek.console.web.logins import UserLogin, expired_text
from odradek.console.workspace import Workspace

MOST_SESSIONS: Final = 200
MOST_LOGINS: Final = 16
"""Logins at a time: each has connections and a sampler of its own."""
IDLE_S: Final = 8 * 3600.0
TOKEN_BYTES: Final = 32


@dataclass(slots=True)
class UserSession:
    """One browser's session. `workspace` is None until the user has logged in."""

    session_id: str
    csrf: str
    workspace: Workspace | None
    user: str = ""
    used_s: float = 0.0
    expires_s: float | None = None
    """When the credentials end, in seconds since the epoch."""
    notices: list[tuple[str, str]] = field(default_factory=list)
    """(kind, text) to show on the next page: kind is done or error."""

    def take_notices(self) -> list[tuple[str, str]]:
        """The notices, which are then shown."""
        notices, self.notices = self.notices, []
        return notices


class UserSessions:
    """All sessions. Any thread may use them."""

    def __init__(self, shared: Workspace | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`shared` is the workspace of users without a login; None where they have to log in."""
        self._shared = shared
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, UserSession] = OrderedDict()

    def get(self, session_id: str | None) -> UserSession | None:
        """The session of a cookie; None where it does not exist or was idle for too long.

        Where the credentials have expired it has no login any more, and a notice of that.
        """
        with self._lock:
            found = self._sessions.get(session_id or "")
            is_idle = found is not None and self._clock() - found.used_s > IDLE_S
            if found is not None and not is_idle:
                found.used_s = self._clock()
                self._sessions.move_to_end(found.session_id)
        if found is not None and is_idle:
            self.end(found)
            return None
        if found is not None and found.expires_s is not None and time.time() >= found.expires_s:
            found.notices.append(("error", expired_text(found.expires_s)))
            found.user, found.expires_s = "", None
            self._close(found)
        return found

    def begin(self) -> UserSession:
        """A new session, of a user without a login where the cluster requires none."""
        session = UserSession(
            secrets.token_urlsafe(TOKEN_BYTES), secrets.token_urlsafe(TOKEN_BYTES), self._shared, "", self._clock()
        )
        self._add(session)
        return session

    def log_in(self, before: UserSession, login: UserLogin, workspace: Workspace) -> UserSession:
        """The session of a login, with an id of its own: the one before it ends."""
        self.end(before)
        session = self.begin()
        session.user, session.workspace, session.expires_s = login.user, workspace, login.expires_s
        self._bound_logins()
        return session

    def end(self, session: UserSession) -> None:
        """End a session and close the connections of its login."""
        with self._lock:
            self._sessions.pop(session.session_id, None)
        self._close(session)

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            ended = list(self._sessions.values())
            self._sessions.clear()
        for session in ended:
            self._close(session)
        if self._shared is not None:
            self._shared.close()

    def _add(self, session: UserSession) -> None:
        ended = []
        with self._lock:
            self._sessions[session.session_id] = session
            while len(self._sessions) > MOST_SESSIONS:
                # Requests without a cookie must not end the sessions of users that have logged in.
                oldest = next((each for each in self._sessions.values() if not each.user), session)
                ended.append(self._sessions.pop(oldest.session_id))
        for each in ended:
            self._close(each)

    def _bound_logins(self) -> None:
        """End the logins that were not used for the longest time, beyond the limit."""
        with self._lock:
            logins = [each for each in self._sessions.values() if each.user]
        for each in logins[:-MOST_LOGINS]:
            self.end(each)

    def _close(self, session: UserSession) -> None:
        if session.workspace is not None and session.workspace is not self._shared:
            session.workspace.close()
        session.workspace = None
