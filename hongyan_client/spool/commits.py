"""One commit, and so one fsync, for the records of all threads that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from hongyan_client.spool.errors import SpoolAway, SpoolError
from hongyan_client.spool.store import KeptRecord

_MOST: Final = 1_000
"""Records of one commit."""


class _WaitingRecord:
    """A record whose thread waits. The committing thread writes `done` and `error` under the lock."""

    __slots__ = ("done", "error", "kept")

    def __init__(self, kept: KeptRecord) -> None:
        self.kept = kept
        self.done = False
        self.error: SpoolError | None = None


class SharedCommit:
    """The first thread commits for those that came while an earlier commit was under way."""

    def __init__(self, keep: Callable[[Sequence[KeptRecord]], None]) -> None:
        self._keep = keep
        self._committing = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_WaitingRecord] = []  # under the lock

    def keep(self, kept: KeptRecord) -> None:
        """Returns once the record is on disk. Raises SpoolError."""
        waiting = _WaitingRecord(kept)
        with self._lock:
            self._waiting.append(waiting)
        while not waiting.done:
            with self._committing:
                if not waiting.done:
                    self._commit(self._taken())
        if waiting.error is not None:
            raise type(waiting.error)(str(waiting.error)) from waiting.error

    def _taken(self) -> list[_WaitingRecord]:
        with self._lock:
            taken, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        return taken

    def _commit(self, taken: Sequence[_WaitingRecord]) -> None:
        """Keeps the records; each gets its end, however the commit ends."""
        try:
            self._keep([one.kept for one in taken])
        except SpoolAway as exc:
            _end(taken, exc)
        except Exception as exc:  # one record may be too large, or have parts of a wrong type
            if len(taken) > 1:
                for one in taken:
                    self._commit([one])
                return
            _end(taken, exc if isinstance(exc, SpoolError) else _unfit(exc))
        except BaseException:
            _end(taken, SpoolAway("the spool was interrupted; send the record again"))
            raise
        else:
            _end(taken, None)


def _end(taken: Sequence[_WaitingRecord], error: SpoolError | None) -> None:
    for one in taken:
        one.error = error
        one.done = True


def _unfit(exc: Exception) -> SpoolError:
    return SpoolError(f"the record cannot be kept ({exc}); key, value and headers are bytes")
