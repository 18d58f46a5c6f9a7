"""The process from which the brokers of tests are forked: it has imported a broker, so each starts without that.

Importing takes three quarters of the CPU of a start. `python -P -m odradek.fork_server DESCRIPTOR` reads requests from
a Unix socket and ends with it; `forked_process` is the other end. A request to fork comes with three descriptors, and
the child runs `odradek` with the arguments of the request, as a new interpreter would: standard streams, environment,
working directory and handlers of signals are its own. Python seeds `random` anew in each. There are no threads before a
fork.

As the parent of all children, this process also answers how a child ended, and waits until one has stopped.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from importlib import import_module
from typing import Any, Final

from odradek.cli import main

PRELOADED: Final = (
    "odradek.broker_cli",
    "odradek.broker.server",
    "odradek.cluster_cli",
    "odradek.registry_service",
    "odradek.standard_streams",
    "odradek.start_errors",
)
"""What `odradek broker` and `odradek registry` import when they run."""
MOST_BYTES: Final = 1 << 18
"""No message is larger; a longer request is not sent, and its process is started without this server."""
_STREAMS: Final = 3


def serve(connection: socket.socket) -> list[str] | None:
    """Answer requests until the connection ends. Returns None then, and in a child its arguments."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test and its brokers
    while True:
        received, streams, _, _ = socket.recv_fds(connection, MOST_BYTES, _STREAMS)
        if not received:
            return None
        request = json.loads(received)
        if "arguments" in request:
            if (pid := os.fork()) == 0:
                connection.close()
                signal.signal(signal.SIGINT, interrupt)
                return _become(request, streams)
            process = os.pidfd_open(pid)
            socket.send_fds(connection, [json.dumps({"pid": pid}).encode()], [process])
            for descriptor in (process, *streams):
                os.close(descriptor)
        else:
            connection.send(json.dumps(_observe(**request)).encode())


def _observe(pid: int, stopped: bool) -> dict[str, int]:
    """Wait until a child has stopped, or for its end, and return its exit status, or minus the signal."""
    if stopped:
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return {}
    return {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}


def _become(request: dict[str, Any], streams: list[int]) -> list[str]:
    """Take the streams, variables and folder of the request. Returns the arguments."""
    for target, descriptor in enumerate(streams):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    arguments: list[str] = request["arguments"]
    sys.argv[1:] = arguments
    return arguments


if __name__ == "__main__":
    gc.disable()  # what is imported stays
    for name in PRELOADED:
        import_module(name)
    gc.freeze()
    gc.enable()
    found = serve(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        main(found, prog_name="odradek")
