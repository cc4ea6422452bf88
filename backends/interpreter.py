"""Settings of Python's interpreter for a process that serves."""

from __future__ import annotations

import gc
import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 0.005
"""How long one thread may hold the interpreter. It is Python's default, set in case a library changed it.
Shorter ones cost CPU without a gain (docs/decisions/040-threads-and-the-interpreter-lock.md)."""
GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Seldom: the hot paths make few cycles, and each collection holds every thread up."""


def collect_seldom() -> None:
    """Sets when Python looks for garbage; called before the imports, which make none."""
    gc.set_threshold(*GC_THRESHOLDS)


def tune_interpreter() -> None:
    """Tunes the interpreter for many waiting threads; called once, after all imports."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    collect_seldom()
