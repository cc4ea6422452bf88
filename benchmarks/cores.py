"""Which core does what while something is measured.

    the measured process    one core to itself: it runs Python, and could not use a second
    servers, providers      the others, with the benchmark's own process

In production Kafka, the database and the providers run elsewhere. Here they would take the core from under
the measured process in the middle of its work, the more so the more it asks of them, and a ratio would tell
of the scheduler (docs/decisions/053-a-core-of-its-own.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from deploy.local.process import family

_OWN: Final = "BENCH_CORE"
_PROC: Final = Path("/proc")


@contextmanager
def apart(servers: Sequence[int], say: Callable[[str], None]) -> Iterator[dict[str, str]]:
    """Keep these processes, all below them and this one with all that it starts off one core; yields the
    variables by which `take_own` finds that. Empty, and every core everybody's, where there is but one or
    the servers are somebody else's."""
    cores = os.sched_getaffinity(0)
    own, *others = sorted(cores)
    ours = [os.getpid()]
    if not others:
        say("One core only: the servers share it with what is measured.")
        yield {}
        return
    if not _moved(_families(servers), others):
        _moved(_families(servers), cores)
        say("The servers are another user's: they share all cores with what is measured.")
        yield {}
        return
    _moved(ours, others)
    try:
        yield {_OWN: str(own)}
    finally:
        _moved(ours + _families(servers), cores)


def take_own() -> None:
    """Move this process to the core that is kept for it, if one is; before it starts threads."""
    if core := os.environ.get(_OWN):
        os.sched_setaffinity(0, {int(core)})


def _moved(processes: Sequence[int], cores: Collection[int]) -> bool:
    """All their threads; what they start later follows. Whether all of them are ours to move."""
    ours = True
    for process in processes:
        for thread in _threads(process):
            try:
                os.sched_setaffinity(thread, cores)
            except ProcessLookupError:
                pass  # it has just ended
            except PermissionError:
                ours = False
    return ours


def _families(processes: Sequence[int]) -> list[int]:
    return [member for process in processes for member in family(process)]


def _threads(process: int) -> list[int]:
    try:
        return [int(entry.name) for entry in (_PROC / str(process) / "task").iterdir()]
    except FileNotFoundError:
        return []
