"""A worker process: a child that carries out work of minutes, compaction and recovery, beside the event loop.

Threads share one interpreter lock with the event loop; a process does not, and it can have a lower priority and can be
killed in the middle. The child is this module run as a program. It imports storage and protocol and nothing of the
broker, so it is small; the first call starts it, and it serves one call after the other.

Calls and answers are pickled frames, each behind its length (8 bytes, big-endian). They travel over the child's stdin
and over a duplicate of its stdout; the descriptor 1 itself is turned to stderr, so a stray print breaks nothing.

    to the child    (module, function, arguments, keyword arguments)
    from the child  (LOG, logger, level, text)*, then (VALUE, value) or (ERROR, exception)

A broker that is killed cannot stop its child, which would continue to write beside the next broker. So a thread of the
child reads the pipe all the time: its end means that the parent is gone, and the process exits at once, also in the
middle of a call. The called function is responsible for files that a call leaves behind unfinished: functions for
worker processes write temporary files, or files that can be made anew.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any, Final, ParamSpec, TypeVar, cast

_log = logging.getLogger(__name__)

_CALLABLE: Final = "odradek.storage."
_LENGTH: Final = struct.Struct(">Q")
_VALUE: Final = "value"
_ERROR: Final = "error"
_LOG: Final = "log"
_GONE: Final = "the worker process is gone"

P = ParamSpec("P")
R = TypeVar("R")


class WorkerDied(OSError):  # noqa: N818 - named after the event
    """The worker process ended before its answer, or could not be started. The call may have been carried out."""


class WorkerProcess:
    """A child process that carries out functions of storage, one at a time.

    Every method may be called from any thread; `call` blocks, the others do not wait for a call under way.
    """

    def __init__(self, *, nice: int = 0) -> None:
        """Nothing is started yet; `nice` is added to the child's niceness (0 to 19)."""
        self._nice = nice
        self._one_call = threading.Lock()
        self._state = threading.Lock()  # guards the two below; never held during a wait
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is none."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a module-level function of odradek.storage in the child; returns its result.

        Arguments and result must be picklable. Raises the exception of the function, with the child's traceback as a
        note; WorkerDied where the process ends first (the next call starts another); TypeError for any other function.
        """
        if not _can_be_named(function):
            raise TypeError(f"{function!r} is not a function of a module of {_CALLABLE[:-1]}")
        # Pickled before anything is sent: an argument that pickle rejects must not leave half a frame in the pipe.
        frame = pickle.dumps((function.__module__, function.__name__, args, kwargs), pickle.HIGHEST_PROTOCOL)
        with self._one_call:
            process = self._running()
            try:
                _write_frame(cast("IO[bytes]", process.stdin), frame)
                kind, content = self._answer(process)
            except (EOFError, BrokenPipeError):
                status = self._discard(process)
                raise WorkerDied(f"the worker process ended (status {status}) in {function.__qualname__}") from None
            except BaseException:
                self._discard(process)  # the rest of an answer may still be in the pipe
                raise
        if kind == _ERROR:
            raise content
        return cast("R", content)

    def cancel(self) -> None:
        """Kill the child; the call under way, if any, raises WorkerDied."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Kill the child for good; a call under way and every later one raises WorkerDied."""
        with self._state:
            self._closed = True
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if self._one_call.acquire(blocking=False):  # or else the call under way closes them
                _close_pipes(process)
                self._one_call.release()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._state:
            if self._closed:
                raise WorkerDied(f"{_GONE}: it was closed")
            process = self._process
            if process is not None and process.poll() is None:
                return process
            if process is not None:
                _close_pipes(process)
            self._process = _start(self._nice)
            return self._process

    def _answer(self, process: subprocess.Popen[bytes]) -> tuple[str, Any]:
        """The answer to the call that has been sent. Raises EOFError where the child ends first."""
        stream = cast("IO[bytes]", process.stdout)
        while True:
            kind, *content = pickle.loads(_read_frame(stream))
            if kind != _LOG:
                return kind, content[0]
            name, level, text = content
            logging.getLogger(name).log(level, "%s", text)

    def _discard(self, process: subprocess.Popen[bytes]) -> int:
        """Kill a child that cannot be used any more; returns its exit status."""
        process.kill()
        status = process.wait()
        with self._state:
            if self._process is process:
                self._process = None
        _close_pipes(process)
        return status


def _can_be_named(function: Callable[..., object]) -> bool:
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    return module.startswith(_CALLABLE) and getattr(sys.modules.get(module), name, None) is function


def _start(nice: int) -> subprocess.Popen[bytes]:
    level = logging.getLogger("odradek").getEffectiveLevel()
    try:
        return subprocess.Popen(
            # -P: the child must not import modules from the working directory.
            [sys.executable, "-P", "-m", __name__, str(nice), str(level)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    except OSError as error:
        raise WorkerDied(f"cannot start a worker process: {error}") from error


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                _log.debug("dropping a frame for a worker process that ended")


def _write_frame(stream: IO[bytes], frame: bytes) -> None:
    stream.write(_LENGTH.pack(len(frame)))
    stream.write(frame)
    stream.flush()


def _read_frame(stream: IO[bytes]) -> bytes:
    """The next frame. Raises EOFError where the other end is closed."""
    head = stream.read(_LENGTH.size)
    if len(head) == _LENGTH.size:
        (size,) = _LENGTH.unpack(head)
        frame = stream.read(size)
        if len(frame) == size:
            return frame
    raise EOFError("the other end of the pipe is gone")


def available_cores() -> int:
    """The number of processes that can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- the child ---------------------------------------------------------------------------------------------------------


class _Forward(logging.Handler):
    """Sends log records to the parent, so that all lines are in one log with one format."""

    def __init__(self, answers: IO[bytes]) -> None:
        super().__init__()
        self._answers = answers

    def emit(self, record: logging.LogRecord) -> None:
        _write_frame(self._answers, pickle.dumps((_LOG, record.name, record.levelno, self.format(record))))


def serve(nice: int, level: int) -> None:
    """Run the child: carry out calls from stdin until it is closed."""
    # A terminal's Ctrl-C and systemd's SIGTERM go to every process of the group; the parent decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(nice)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    root = logging.getLogger()
    root.addHandler(_Forward(answers))
    root.setLevel(level)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests, calls), daemon=True).start()
    while True:
        _write_frame(answers, _carry_out(calls.get()))


def _receive(requests: IO[bytes], calls: queue.SimpleQueue[bytes]) -> None:
    """Queue the received calls; at the end of the pipe the parent is gone, and this process exits at once."""
    try:
        while True:
            calls.put(_read_frame(requests))
    finally:
        os._exit(1)


def _carry_out(frame: bytes) -> bytes:
    """Carry out a call; returns the frame with its result."""
    try:
        module, name, args, kwargs = pickle.loads(frame)
        value = getattr(import_module(module), name)(*args, **kwargs)
        return pickle.dumps((_VALUE, value), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
        try:
            answer = pickle.dumps((_ERROR, error), pickle.HIGHEST_PROTOCOL)
            pickle.loads(answer)
        except Exception:
            answer = pickle.dumps((_ERROR, RuntimeError(traceback.format_exc())))
        return answer


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
