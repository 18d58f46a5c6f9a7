"""The clients' extensions of another build beside Python, for `make sanitize`:

    python -m tests.streams.clients.differences --library build/sanitized

runs the property tests of this folder with the extensions of that folder. It needs no other plugin or fixture.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from odradek.streams import clients

NAMES = ("_received", "_accumulator")


def load(folder: Path, name: str) -> None:
    """Use the extension of a build below a folder, before anything imports the installed one."""
    (library,) = folder.glob(f"odradek/streams/clients/{name}.*.so")
    full = f"{clients.__name__}.{name}"
    assert full not in sys.modules
    spec = spec_from_file_location(full, library)
    assert spec is not None
    assert spec.loader is not None
    built = module_from_spec(spec)
    spec.loader.exec_module(built)
    sys.modules[full] = built
    setattr(clients, name, built)


def main() -> int:
    """Run the tests."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True, help="the folder of another build of the extensions")
    arguments = parser.parse_args()
    for name in NAMES:
        load(arguments.library, name)
    here = Path(__file__).parent
    tests = [str(here / f"test{name}.py") for name in NAMES]
    plain = ["-q", "--noconftest", "-c", "/dev/null", "-p", "no:cacheprovider"]
    return int(pytest.main([*plain, "--rootdir", str(here), *tests]))


if __name__ == "__main__":
    sys.exit(main())
