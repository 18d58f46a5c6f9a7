"""Turns: threads that take turns with the event loop, for requests with many items (Kafka: KafkaRequestHandlerPool).

A thread of this module never runs at the same time as the loop. The loop resumes the thread and waits for it; at the
end of its time slice the thread pauses and waits for the loop, which then serves other connections. So code that runs
in a turn needs no locks and no other form than on the loop: it is interrupted only between the items of a loop over
`each(items)`, never inside the handling of one item. On the loop `each` returns its argument.

The steps of a coroutine can run in turns, too (`in_turns`): what it awaits is awaited by its task as usual.

What a work leaves behind is freed in turns, too, as far as its `Kept` has it: the containers of more than AT_ONCE
elements that it passes to `each`, and what it passes to `keep`.

In one iteration of the loop threads have their turns for one slice in all, so the loop is held for one slice and one
item at most, for any number of requests. At most THREADS works have begun; the others wait in order.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from odradek.broker.runtime.collector import examine_young_objects
from odradek.broker.runtime.freeing import AT_ONCE, Kept, freeing

log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")
Work = Callable[[], None]


class Run(Protocol):
    """Runs a work in turns; it keeps its objects with those of other works in `kept`, which it releases."""

    def __call__(self, work: Work, kept: Kept | None = None, /) -> None: ...


SLICE_NS: Final = 5_000_000
"""How long a thread holds the loop in one turn."""
THREADS: Final = 4
SORTED_AT_ONCE: Final = 4096


class _Local(threading.local):
    """The handler thread that the caller runs in; a default of the class is found faster than none."""

    handler: _HandlerThread | None = None


_local: Final = _Local()


def at_once(work: Work, kept: Kept | None = None) -> None:
    """Run a work now: the `Run` of parts that have no turns."""
    work()


class TurnCancelled(BaseException):
    """Ends a work that was interrupted when the broker stopped."""


def each(items: Iterable[T]) -> Iterable[T]:
    """The items. In a turn, the loop over them may be interrupted before each item."""
    handler = _local.handler
    if handler is None:
        return items
    if isinstance(items, (list, dict, set, tuple)) and len(items) > AT_ONCE:
        handler.kept.add(items)
    return _interrupted(items)


def keep(item: T) -> T:
    """The item: a message, a list, a dict, a set or a tuple, or memory of the system. In a turn, it stays until the
    works of the request have ended, and is freed in parts then, if nothing else refers to it.
    """
    if (handler := _local.handler) is not None:
        handler.kept.add(item)
    return item


def in_order(names: Iterable[str]) -> list[str]:
    """`sorted(names)`. In a turn, the sort may be interrupted."""
    if _local.handler is None:
        return sorted(names)
    runs: list[list[str]] = [[]]
    for name in each(names):
        if len(runs[-1]) == SORTED_AT_ONCE:
            runs[-1].sort()
            runs.append([])
        runs[-1].append(name)
    runs[-1].sort()
    return list(each(heapq.merge(*runs)))


def in_turn() -> bool:
    """Whether the caller runs in a turn, and not on the loop."""
    return _local.handler is not None


def in_turns(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """The coroutine; if the caller runs in a turn, with its steps in turns."""
    steps: Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, T]] = steps_of_caller()
    return steps(work)


def turns_of_caller() -> Run | None:
    """If the caller runs in a turn, the function that runs works in turns: for what a request has to do later."""
    handler = _local.handler
    return None if handler is None else handler.run_later


def later(callback: Callable[P, None]) -> Callable[P, None]:
    """The callback; if the caller runs in a turn, a function that runs it in turns. For the end of a wait."""
    handler = _local.handler
    if handler is None:
        return callback
    run_later, kept = handler.run_later, handler.kept.share()

    def call(*arguments: P.args, **options: P.kwargs) -> None:
        run_later(partial(callback, *arguments, **options), kept)

    return call


def steps_of_caller() -> Callable[[Coroutine[Any, Any, T]], Coroutine[Any, Any, T]]:
    """How a coroutine of the caller runs: as it is, or with its steps in turns. For a task of another part that works
    for the caller.
    """
    handler = _local.handler
    if handler is None:
        return _unchanged
    run_later, kept = handler.run_later, handler.kept.share()
    return lambda work: _awaited(_Steps(work, run_later, kept))


def _unchanged(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    return work


def busy_clock(now_ns: Callable[[], int]) -> Callable[[], int]:
    """A clock that, in a turn, stands still while the loop serves others; on the loop it is `now_ns`."""

    def read() -> int:
        handler: _HandlerThread | None = getattr(_local, "handler", None)
        return now_ns() if handler is None else handler.busy_ns

    return read


class SlicedList(list[Any]):
    """A list whose iteration is that of `each`: the arrays of a large request."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        handler, items = _local.handler, super().__iter__()
        if handler is None:
            return items
        if len(self) > AT_ONCE:
            handler.kept.add(self)
        return _interrupted(items)


def list_of(items: Iterable[T]) -> list[T]:
    """The items in a list. In a turn, the loops over them may be interrupted; the encoders in C take no such list."""
    return list(items) if _local.handler is None else SlicedList(items)


def _interrupted(items: Iterable[T]) -> Iterator[T]:
    """The items. A coroutine may have the next one in another turn, or on the loop."""
    for item in items:
        handler = _local.handler
        if handler is not None:
            handler.pause_if_due()
        yield item


class Turns:
    """The threads of one broker; used on the loop."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is a clock that never runs backwards."""
        self._now_ns = now_ns
        self._waiting: deque[tuple[Work, Kept]] = deque()
        self._busy: deque[_HandlerThread] = deque()
        self._idle: list[_HandlerThread] = []
        self._is_scheduled = False
        self._is_closed = False
        self.interruptions = 0
        """How often a work was interrupted."""

    def run(self, work: Work, kept: Kept | None = None) -> None:
        """Run `work` in turns, beginning with a later iteration of the loop. It has to catch its exceptions: one that
        it does not catch ends it and is logged. It keeps its objects in `kept` and releases it.

        After `close`, it runs at once, on the loop.
        """
        if self._is_closed:
            work()
            return
        self._waiting.append((work, kept or Kept()))
        self._schedule()

    def close(self) -> None:
        """End the works that are interrupted, drop those that have not begun, and end the threads."""
        self._is_closed = True
        self._waiting.clear()
        for handler in (*self._busy, *self._idle):
            handler.end()
        self._busy.clear()
        self._idle.clear()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        """Give threads their turns until the slice ends: one, unless it completes its work earlier."""
        self._is_scheduled = False
        ends_ns = self._now_ns() + SLICE_NS
        while True:
            while self._waiting and len(self._busy) < THREADS:
                handler = self._idle.pop() if self._idle else _HandlerThread(self._now_ns, self.run)
                handler.begin(*self._waiting.popleft())
                self._busy.append(handler)
            if not self._busy:
                return
            handler = self._busy.popleft()
            if not handler.resume(ends_ns):
                examine_young_objects()
                self._busy.append(handler)
                self.interruptions += 1
                break
            self._idle.append(handler)
            if self._now_ns() >= ends_ns:
                break
        if self._busy or self._waiting:
            self._schedule()


class _HandlerThread:
    """A thread and the work that it runs."""

    def __init__(self, now_ns: Callable[[], int], run_later: Run) -> None:
        self.run_later = run_later
        self.kept = Kept()
        """The objects of the work that are freed in parts."""
        self._loop = asyncio.get_running_loop()
        self._now_ns = now_ns
        self._began_ns = self._ends_ns = 0
        self._earlier_ns = 1  # a work begins at 1 on the clock of its time: 0 is no time
        self._work: Work | None = None
        self._is_done = self._is_ending = False
        self._own, self._of_loop = threading.Lock(), threading.Lock()
        self._own.acquire()
        self._of_loop.acquire()
        self._thread = threading.Thread(target=self._run, name="request handler", daemon=True)
        self._thread.start()

    def begin(self, work: Work, kept: Kept) -> None:
        """Take the next work, which `resume` begins."""
        self._work = work
        self.kept = kept
        self._is_done = False
        self._earlier_ns = 1

    @property
    def busy_ns(self) -> int:
        """How long this work has held the loop, in all of its turns."""
        return self._earlier_ns + self._now_ns() - self._began_ns

    def resume(self, ends_ns: int) -> bool:
        """Let the thread run until the slice ends or its work is done; returns whether the work is done."""
        self._began_ns = self._now_ns()
        self._ends_ns = ends_ns
        self._own.release()
        self._of_loop.acquire()
        return self._is_done

    def end(self) -> None:
        """Raise TurnCancelled in an interrupted work, and end the thread."""
        self._is_ending = True
        self._own.release()
        self._of_loop.acquire()
        self._thread.join()

    def pause_if_due(self) -> None:
        """Pass the turn to the loop if the slice has ended; returns in the next turn."""
        if self._now_ns() < self._ends_ns:
            return
        if self._is_ending:
            raise TurnCancelled
        self._earlier_ns = self.busy_ns
        self._of_loop.release()
        self._own.acquire()
        if self._is_ending:
            raise TurnCancelled

    def _passes_turn(self) -> bool:
        """Pass the turn to the loop after a work, unless the thread ends."""
        if self._is_ending:
            return False
        self._of_loop.release()
        return True

    def _work_and_free(self) -> None:
        assert self._work is not None
        self._work()
        self._work = None
        for _ in each(freeing(self.kept.release())):
            pass

    def _run(self) -> None:
        _local.handler = self
        asyncio._set_running_loop(self._loop)  # a handler may start tasks and timers, which the loop runs
        try:
            while True:
                self._own.acquire()
                if self._is_ending:
                    return
                try:
                    self._work_and_free()
                except TurnCancelled:
                    pass
                except Exception:  # without its thread, the loop would wait for ever
                    log.exception("work in turns failed")
                self._work = None
                self._is_done = True
                if not self._passes_turn():
                    return
        finally:
            asyncio._set_running_loop(None)
            self._of_loop.release()


async def _awaited(work: Awaitable[T]) -> T:
    return await work


class _Steps(Awaitable[T]):
    """A coroutine whose steps run in turns."""

    def __init__(self, work: Coroutine[Any, Any, T], run: Run, kept: Kept) -> None:
        self._work = work
        self._run = run
        self._kept = kept

    def __await__(self) -> Generator[Any, Any, T]:
        work = self._work
        step: Callable[[], Any] = partial(work.send, None)
        done: asyncio.Future[tuple[bool, Any]] | None = None
        outcome: Any = None
        try:
            while True:
                done = asyncio.get_running_loop().create_future()
                self._run(partial(_take_step, step, done), self._kept.share())
                is_end, outcome = yield from done
                if is_end:
                    result: T = outcome
                    return result
                try:
                    step = partial(work.send, (yield outcome))
                except BaseException as error:
                    step = partial(work.throw, error)
        finally:
            if inspect.getcoroutinestate(work) != inspect.CORO_RUNNING:  # an interrupted step ends by itself
                work.close()
            del step, done, outcome  # an exception that leaves this frame refers to it: they would be a cycle
            self._run(_nothing, self._kept)


def _nothing() -> None:
    """The work after the last step: the objects of the works are freed."""


def _take_step(step: Callable[[], Any], done: asyncio.Future[tuple[bool, Any]]) -> None:
    """Set the outcome of one step of a coroutine: whether it has returned, and its result or what it awaits."""
    if done.cancelled():
        return
    try:
        outcome = False, step()
    except StopIteration as end:
        outcome = True, end.value
    except TurnCancelled:
        raise
    except BaseException as error:
        if not done.cancelled():
            done.set_exception(error)
        del step, done  # the exception refers to this frame: they would be a cycle
        return
    if not done.cancelled():
        done.set_result(outcome)
