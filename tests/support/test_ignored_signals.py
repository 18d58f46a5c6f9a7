"""A process of a test starts with the default effect of the signals that the tests' own shell ignores."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IGNORED = "import signal; print([signal.getsignal(each) is signal.SIG_IGN for each in (signal.SIGINT, signal.SIGHUP)])"
PROGRAM = f"""
import signal, subprocess, sys
from tests.support import ignored_signals
for number in ignored_signals.SIGNALS:
    signal.signal(number, signal.SIG_IGN)
if {{handled}}:
    ignored_signals.handle_ignored_signals()
subprocess.run([sys.executable, "-c", {IGNORED!r}], check=True)
"""


@pytest.mark.parametrize("handled", [True, False])
def test_a_child_has_the_default_of_signals_that_were_ignored(handled: bool) -> None:
    command = [sys.executable, "-c", PROGRAM.format(handled=handled)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    assert printed.strip() == str([not handled] * 2)
