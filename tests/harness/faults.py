"""Faults inside a worker that nothing outside can bring about. Each is a function that
`tests.harness.launch` calls before the worker starts; the name goes into `Fleet.worker(fault=…)`.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

JUMP_S = 7_200.0
STANDS_S = 8.0  # librdkafka looks at max.poll.interval.ms once a second, later on a busy machine


class ThreadKilled(BaseException):
    """What no handler of errors catches."""


def lane_thread_dies() -> None:
    """The thread that sends to a receiver that begins with `fatal` dies of it, before the call."""
    from channels.engine import NonBlockingEngine

    begin = NonBlockingEngine.begin

    def dying(self: NonBlockingEngine, channel: Any, call: Any, timeout_s: float, done: Any) -> Any:
        if call.deliveries[0].receiver.startswith("fatal"):
            raise ThreadKilled("killed by the test")
        return begin(self, channel, call, timeout_s, done)

    NonBlockingEngine.begin = dying  # type: ignore[method-assign]


def has_points() -> None:
    """It can be killed or held at named points of its code, by the orders file in CHAOS_ORDERS."""
    from tests.chaos.points import install

    install(os.environ["CHAOS_ORDERS"])


def trace_leaks() -> None:
    """A share of its trace events vanishes after they got their numbers, as TRACE_LEAK says."""
    from tests.spark_jobs.truth.trace_leak import install

    install(os.environ["TRACE_LEAK"])


def revoke_drain_is_short() -> None:
    """A revoke waits a moment only for what is under way."""
    from dispatcher.kafka import source

    source.REVOKE_DRAIN_S = 0.2


def source_stands_still() -> None:
    """At SIGUSR1 the source's loop stands still for STANDS_S."""
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(STANDS_S))


def wall_clock_ahead() -> None:
    """The machine's wall clock is two hours fast from the start."""
    _jump(JUMP_S)


def wall_clock_behind() -> None:
    """The machine's wall clock is two hours slow from the start."""
    _jump(-JUMP_S)


def wall_clock_jumps() -> None:
    """At SIGUSR1 the machine's wall clock jumps two hours ahead."""
    signal.signal(signal.SIGUSR1, lambda *_: _jump(JUMP_S))


def _jump(seconds: float) -> None:
    clock, clock_ns = time.time, time.time_ns
    time.time = lambda: clock() + seconds
    time.time_ns = lambda: clock_ns() + int(seconds * 1e9)
