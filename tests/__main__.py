"""`python -m tests simulate …`: the simulation, by hand (see tests/simulation/campaign.py).

`python -m tests soak …`: long runs on real processes (see tests/soak/campaign.py).

`python -m tests explore …`: random searches for failing examples (see tests/explore.py).

`python -m tests hostile …`: expensive requests beside a well-behaved client (see tests/hostile/campaign.py).

`python -m tests compose-check`: docker-compose.yml on a real engine (see tests/compose_check/campaign.py).

`python -m tests wheel`: the files of a release, built and checked (see tests/release/wheel.py).

`python -m tests branches`: the branch coverage that `make branches` has measured (see tests/branch_coverage.py).

`python -m tests configuration` writes docs/configuration.md anew.
"""

from __future__ import annotations

import sys

from tests import branch_coverage, configuration, explore
from tests.compose_check import campaign as compose_check
from tests.hostile import campaign as hostile
from tests.release import wheel
from tests.simulation import campaign
from tests.soak import campaign as soak

if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["simulate"]:
            sys.exit(campaign.main(sys.argv[2:]))
        case ["soak"]:
            sys.exit(soak.main(sys.argv[2:]))
        case ["explore"]:
            sys.exit(explore.main(sys.argv[2:]))
        case ["compose-check"]:
            sys.exit(compose_check.main(sys.argv[2:]))
        case ["hostile"]:
            sys.exit(hostile.main(sys.argv[2:]))
        case ["wheel"]:
            sys.exit(wheel.main())
        case ["branches"]:
            sys.exit(branch_coverage.main())
        case ["configuration"]:
            sys.exit(configuration.main())
    sys.exit(
        "usage: python -m tests simulate [--seed N] [--seeds COUNT] [--mutant NAME] | soak [PART] | explore [TEST]"
        " | hostile | compose-check | wheel | branches | configuration"
    )
