"""Stream thread: one member of the group with its tasks, its consumer and its producer (Kafka: StreamThread).

The thread opens its clients, runs its loop (`run_loop.py`), and closes everything at its end. An error that the loop
does not handle ends the thread, and the uncaught-exception handler of the client decides what follows (KIP-671).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from odradek.streams.errors import StreamsError
from odradek.streams.group.membership import GroupMember
from odradek.streams.group.subscription_info import Hosts
from odradek.streams.running.active_tasks import ActiveTasks
from odradek.streams.running.application import Application
from odradek.streams.running.run_loop import RunLoop, open_run_loop
from odradek.streams.running.standby_tasks import StandbyTasks
from odradek.streams.running.task_state import TaskState
from odradek.streams.running.thread_context import ThreadContext, ThreadState
from odradek.streams.stores.cache import ThreadCache

log = logging.getLogger(__name__)


class StreamThread:
    """One stream thread. Any thread may call `start`, `stop`, `join` and the read-only properties."""

    def __init__(
        self,
        application: Application,
        index: int,
        cache_bytes: int,
        *,
        on_state: Callable[[StreamThread], None],
        on_error: Callable[[StreamThread, Exception], None],
        hosts_changed: Callable[[Hosts], None] = lambda hosts: None,
    ) -> None:
        """The thread calls `on_state` and `on_error`; after `on_error` it closes its tasks and ends."""
        self.index = index
        self.name = f"{application.clients.client_id}-StreamThread-{index}"
        self.state = ThreadState.CREATED
        self.leave = False
        """Whether to leave the group at the end."""
        self.run_loop: RunLoop | None = None
        """The work of the thread; None before the thread has opened its clients. Read only."""
        self._context = context = ThreadContext(self.name, index, ThreadCache(cache_bytes))
        self.cache = context.cache
        self.metrics = context.metrics
        self.lock = context.lock
        """The thread holds it while tasks process and commit; a query of their stores acquires it."""
        self.paused = context.paused
        self._application = application
        self._on_state = on_state
        self._on_error = on_error
        self._hosts_changed = hosts_changed
        self._shutdown_requested = False
        self._opened = contextlib.ExitStack()
        """What the thread closes at its end, in the reverse order of opening."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    # ---- called by other threads

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, leave: bool = False) -> None:
        """Request a commit, a close and the end of the thread. With `leave` the member leaves the group, which
        reassigns its tasks at once.
        """
        self.leave = self.leave or leave
        self._context.stopping.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end of the thread. Returns whether it has ended."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def ask_for_shutdown(self) -> None:
        """Send the shutdown request to all instances before this thread ends; `on_error` calls it."""
        self._shutdown_requested = True

    @property
    def generation(self) -> int:
        """The generation of the group that this thread is in; -1 for none."""
        return -1 if self.run_loop is None else self.run_loop.member.generation

    @property
    def processed(self) -> int:
        """Records processed so far."""
        return 0 if self.run_loop is None else self.run_loop.executor.processed

    @property
    def commits(self) -> int:
        """Commits so far."""
        return 0 if self.run_loop is None else self.run_loop.executor.commits

    @property
    def idles(self) -> bool:
        """Whether the thread runs and has no work at the moment; a snapshot, which may be outdated at once."""
        return self.state is ThreadState.RUNNING and self.run_loop is not None and self.run_loop.idle

    @property
    def thread(self) -> threading.Thread:
        """The thread of the operating system."""
        return self._thread

    @property
    def tasks(self) -> ActiveTasks | None:
        """The thread's active tasks; None before it has started. Read only."""
        return None if self.run_loop is None else self.run_loop.tasks.active

    @property
    def standbys(self) -> StandbyTasks | None:
        """The thread's standby tasks; None before it has started. Read only."""
        return None if self.run_loop is None else self.run_loop.tasks.standbys

    def states(self) -> list[tuple[TaskState, bool]]:
        """The stores of all tasks, standby tasks included, and whether each task is active and running. Read only."""
        return [] if self.run_loop is None else self.run_loop.tasks.states()

    # ---- the thread's main function

    def _run(self) -> None:
        try:
            self.metrics.started_ms = self._application.clock()
            self._set_state(ThreadState.STARTING)
            self.run_loop = open_run_loop(
                self._application,
                self._context,
                self._opened,
                set_state=self._set_state,
                hosts_changed=self._hosts_changed,
                close_member=self._close_member,
            )
            self.run_loop.run()
            self._set_state(ThreadState.PENDING_SHUTDOWN)
            self.run_loop.shut_down()
        except BaseException as error:  # includes sys.exit() in a processor, which no other code reports
            self._fail(error if isinstance(error, Exception) else StreamsError(f"{self.name}: {error!r}"))
        finally:
            self._close()
            self._set_state(ThreadState.DEAD)

    def _set_state(self, state: ThreadState) -> None:
        if self.state is not state:
            log.info("thread state changed thread=%s old=%s new=%s", self.name, self.state.name, state.name)
            self.state = state
            self._on_state(self)

    def _fail(self, error: Exception) -> None:
        self._set_state(ThreadState.PENDING_SHUTDOWN)
        self._on_error(self, error)
        if self._shutdown_requested:
            try:
                if self.run_loop is None:
                    raise StreamsError("the thread has not joined its group")
                self.run_loop.request_shutdown()
            except Exception as problem:
                log.warning("cannot request the shutdown of all instances thread=%s error=%r", self.name, problem)

    def _close(self) -> None:
        """Close what is still open, however the thread ends: tasks without a commit, then the clients."""
        with self.lock:
            try:
                self._opened.close()
            except Exception as error:
                log.warning("error while closing thread=%s error=%r", self.name, error)

    def _close_member(self, member: GroupMember) -> None:
        if self.leave:
            member.leave()
        member.close()
