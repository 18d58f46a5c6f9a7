"""Log lines of a thread that waits for its group: for which members, and until when at the latest.

A rebalance waits for every former member: for one that runs until it joins again, for one whose process was killed
until its session ends. A start behind such a process is silent for up to session.timeout.ms without these lines.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)

FIRST_S: Final = 3.0
"""After so long the thread logs the first line, and then at this interval."""
_TIMEOUT_S: Final = 5.0


class JoinWatch:
    """The lines of one thread, which never waits for an answer."""

    def __init__(self, admin: AdminClient, thread: str, group: str, session_s: float) -> None:
        self._admin = admin
        self._thread = thread
        self._group = group
        self._session_s = session_s
        self._began = 0.0
        self._next = 0.0
        self._pending: Future[Any] | None = None

    def poll(self, now_s: float, member_id: str) -> None:
        """Called while the thread waits for its assignment; `member_id` is its own, empty before the coordinator
        returns it.
        """
        if not self._began:
            self._began, self._next = now_s, now_s + FIRST_S
        if self._pending is not None:
            if self._pending.done():
                self._log(now_s, member_id, self._pending)
                self._pending = None
        elif now_s >= self._next:
            self._next = now_s + FIRST_S
            self._pending = self._admin.describe_consumer_groups([self._group], request_timeout=_TIMEOUT_S)[self._group]

    def end(self) -> None:
        """The thread has its assignment."""
        self._began = 0.0
        self._pending = None

    def _log(self, now_s: float, member_id: str, answer: Future[Any]) -> None:
        waited_s = now_s - self._began
        if answer.exception() is not None:
            log.warning(
                "waiting for the group coordinator thread=%s group=%s waited_s=%.0f error=%s",
                self._thread,
                self._group,
                waited_s,
                answer.exception(),
            )
            return
        found = answer.result()
        others = [each for each in found.members if each.member_id != member_id]
        if not others:  # group.initial.rebalance.delay.ms, 3 s by default: nothing is wrong
            log.info(
                "waiting for the end of the rebalance, without other members thread=%s group=%s group_state=%s "
                "waited_s=%.0f",
                self._thread,
                self._group,
                found.state.name,
                waited_s,
            )
            return
        until = time.strftime("%H:%M:%S", time.localtime(time.time() + max(0.0, self._session_s - waited_s)))
        log.warning(
            "waiting for other members to join again or to lose their sessions thread=%s group=%s group_state=%s "
            "waited_s=%.0f sessions_end=%s members=%s",
            self._thread,
            self._group,
            found.state.name,
            waited_s,
            until,
            ", ".join(f"{each.client_id}@{each.host} ({each.member_id})" for each in others),
        )
