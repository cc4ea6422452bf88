"""Runs `hongyan recovery` with the flags given; with CHAOS_ORDERS it can be killed at named points."""

import os
import sys

from hongyan.cli import main

if __name__ == "__main__":
    if orders := os.environ.get("CHAOS_ORDERS"):
        from tests.chaos.points import install

        install(orders)
    sys.argv = ["hongyan", "recovery", *sys.argv[1:]]
    main()
