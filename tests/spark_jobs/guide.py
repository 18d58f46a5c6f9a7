"""The commands of the guide, docs/spark.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    pass


DOCS: Final = Path(__file__).parents[2] / "docs"
TEXT: Final = (DOCS / "spark.md").read_text()
COMMANDS: Final = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]
PIPELINE: Final = "odradek.spark_jobs.pipeline"
