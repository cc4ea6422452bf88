"""Runs `hongyan recovery` with the flags given; with CHAOS_ORDERS it can be killed at named points. With
FIRST_CELERY_DEAF its first Celery worker never reads its queue.
"""

import os
import sys

from hongyan.cli import main

if __name__ == "__main__":
    if orders := os.environ.get("CHAOS_ORDERS"):
        from tests.chaos.points import install

        install(orders)
    if os.environ.get("FIRST_CELERY_DEAF"):
        from tests.recovery.deafness import deafen_the_first

        deafen_the_first()
    sys.argv = ["hongyan", "recovery", *sys.argv[1:]]
    main()
