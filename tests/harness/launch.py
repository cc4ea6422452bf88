"""Runs `hongyan worker` (or another program), after a fault was put in, if one is named.

    python -m tests.harness.launch --lanes 'webhook.*' --fault lane_thread_dies
    python -m tests.harness.launch --program recovery

It ends with its parent: the read end of a pipe is its leash.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading

from tests.harness import faults


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="worker")
    parser.add_argument("--lanes", default="")
    parser.add_argument("--fault", default="")
    parser.add_argument("--leash", type=int, default=-1)
    flags = parser.parse_args()
    if flags.leash >= 0:
        threading.Thread(target=end_with, args=(flags.leash,), daemon=True).start()
    if flags.fault:
        getattr(faults, flags.fault)()
    from hongyan.cli import main as hongyan

    sys.argv = ["hongyan", flags.program, *(["--lanes", flags.lanes] if flags.lanes else [])]
    hongyan()


def end_with(leash: int) -> None:
    """Ends this process when the pipe's other end is closed: its parent is gone."""
    while os.read(leash, 1):
        pass
    os._exit(137)


if __name__ == "__main__":
    main()
