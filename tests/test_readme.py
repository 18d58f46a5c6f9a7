"""What the README tells a newcomer to type works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import odradek
from odradek.broker_process import BrokerProcess

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def test_the_first_records_from_python(odradek_broker: BrokerProcess) -> None:
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Producer(" in block]
    assert "127.0.0.1:9092" in program
    done = subprocess.run(
        [sys.executable, "-c", program.replace("127.0.0.1:9092", odradek_broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "b'greeting' b'hello from Python'"


def test_the_version_that_is_shown_is_this_one() -> None:
    assert f"odradek {odradek.__version__} ready: broker 0 at 127.0.0.1:9092, data in " in README


def test_every_file_that_is_pointed_to_is_there() -> None:
    root = Path(__file__).resolve().parents[1]
    for page in ("README.md", "ARCHITECTURE.md", "tests/README.md"):
        text = (root / page).read_text()
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (root / page).parent.joinpath(target).exists(), f"{page} points to {target}"
