"""Restores a store slowly, so that it can be killed on the way: bootstrap, changelog, state directory."""

from __future__ import annotations

import sys
from pathlib import Path

from odradek.streams.running import checkpoints
from odradek.streams.running.state_directory import StateDirectory
from tests.streams.restoring import APPLICATION, make_state, restorer


def main(bootstrap: str, topic: str, folder: str) -> None:
    """Print `checkpoint` once there is one, and then restore no further."""
    directory = StateDirectory(Path(folder), APPLICATION)
    state = make_state(directory, topic)
    with restorer(bootstrap, checkpoint_s=0.0) as one:
        state.open()
        one.add(state)
        while not checkpoints.read(directory.task(state.task_id)):
            one.step(0.0)
        state.stores["things"].restore([(b"beyond", b"checkpoint", 0, None), (b"beyond", None, 0, None)])
        print("checkpoint", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
