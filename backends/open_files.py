"""The limit of open files of a process that serves: each call under way has a connection.

Shells and systemd start a process with a soft limit of 1,024, which few lanes of a worker reach. The hard
limit is far above it, and any process may raise its own up to that.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

MOST: Final = 1 << 20
"""Enough for any process; some programs look at each number below their limit."""


def raise_open_files() -> None:
    """Raises this process's limit of open files as far as the hard limit and MOST let it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    # Where the machine's rules forbid it, the process starts as it is.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_files_limit() -> int:
    """Returns the limit; MOST where there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft
