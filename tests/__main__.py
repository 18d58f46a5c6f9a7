"""`python -m tests simulate …`: the simulation, by hand (see tests/simulation/campaign.py)."""

from __future__ import annotations

import sys

from tests.simulation.campaign import main

if __name__ == "__main__":
    if sys.argv[1:2] != ["simulate"]:
        sys.exit("usage: python -m tests simulate [--seed N] [--seeds COUNT] [--trace] [--mutant NAME]")
    sys.exit(main(sys.argv[2:]))
