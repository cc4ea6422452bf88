"""Runs a worker as `hongyan worker` does, after a fault was put in, if one is named.

    python -m tests.harness.launch --lanes 'webhook.*' --fault lane_thread_dies

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
    parser.add_argument("--lanes", default="")
    parser.add_argument("--fault", default="")
    parser.add_argument("--leash", type=int, default=-1)
    flags = parser.parse_args()
    if flags.leash >= 0:
        threading.Thread(target=_end_with, args=(flags.leash,), daemon=True).start()
    if flags.fault:
        getattr(faults, flags.fault)()
    _run([lane for lane in flags.lanes.split(",") if lane])


def _run(lanes: list[str]) -> None:
    from backends.kafka import KafkaTrouble
    from backends.logs import configure
    from backends.settings import SettingsError, load
    from dispatcher.process import leave, run_worker
    from idempotency.ledger import LedgerError

    try:
        settings = load()
        configure(settings.log)
        leave(run_worker(settings, lanes or None))
    except (SettingsError, KafkaTrouble, LedgerError, ValueError) as exc:
        print(exc, file=sys.stderr)
        leave(1)


def _end_with(leash: int) -> None:
    while os.read(leash, 1):
        pass
    os._exit(137)


if __name__ == "__main__":
    main()
