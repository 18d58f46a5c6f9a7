"""`python -m tests simulate …`: the simulation, by hand (see tests/simulation/campaign.py).

`python -m tests configuration` writes docs/configuration.md anew.
"""

from __future__ import annotations

import sys

from tests import configuration
from tests.simulation import campaign

if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["simulate"]:
            sys.exit(campaign.main(sys.argv[2:]))
        case ["configuration"]:
            sys.exit(configuration.main())
    sys.exit("usage: python -m tests simulate [--seed N] [--seeds COUNT] [--trace] [--mutant NAME] | configuration")
