"""The stacks of all threads: for the log, at SIGUSR1 or where a loop is stuck.

`signal.set_wakeup_fd` passes the signal on at once, in C. A handler in Python would wait for the main
thread, which may be the one that hangs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

log = structlog.get_logger(__name__)
_READ: Final = 64


def thread_stacks() -> str:
    """Returns every thread's stack as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    frames = sys._current_frames()  # noqa: SLF001 (documented; there is no other way to see them)
    for ident, frame in frames.items():
        parts.append(f"--- {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


@contextmanager
def stacks_on_signal(number: signal.Signals = signal.SIGUSR1) -> Iterator[None]:
    """Logs all stacks at each such signal. Main thread only; leaves a handler that is there already."""
    if signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(number, lambda *_: None)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watch = threading.Thread(target=_watch, args=(reader, number), name="stack-dump", daemon=True)
    watch.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(number, signal.SIG_DFL)
        os.close(writer)
        watch.join()
        os.close(reader)


def _watch(reader: int, number: int) -> None:
    """Reads the numbers of the signals that came, until the pipe is closed."""
    while data := os.read(reader, _READ):
        if number in data:
            log.warning("stack_dump", threads=threading.active_count(), stacks=thread_stacks())
