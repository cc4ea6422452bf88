"""`python -m channels.simulator`."""

import sys

from channels.simulator.cli import main

sys.exit(main())
