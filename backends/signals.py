"""SIGTERM and SIGINT as an event. Imports nothing heavy, since commands use it before their own imports."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Yields an event that either signal sets; a second signal changes nothing. Main thread only."""
    stop = threading.Event()

    def handle(_number: int, _frame: object) -> None:
        # In a thread of its own: this one may have been interrupted inside the event's own lock.
        _thread.start_new_thread(stop.set, ())

    previous = {number: signal.signal(number, handle) for number in _NUMBERS}
    try:
        yield stop
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
