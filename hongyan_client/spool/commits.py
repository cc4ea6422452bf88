"""One commit, and so one fsync, for the records of all threads that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

from hongyan_client.spool.errors import SpoolAway, SpoolError
from hongyan_client.spool.store import KeptRecord

_MOST: Final = 1_000
"""Records of one commit."""
_LOOK_S: Final = 0.1
"""Longest sleep: a committing thread that is interrupted may fail to wake the others."""


class _WaitingRecord:
    """A record whose thread waits. The committing thread writes `done` and `error`."""

    __slots__ = ("done", "error", "kept")

    def __init__(self, kept: KeptRecord) -> None:
        self.kept = kept
        self.done = False
        self.error: SpoolError | None = None


class SharedCommit:
    """One thread commits for all that came while an earlier commit was under way. The others sleep, and
    return once their own commit has ended: none waits for a later one."""

    def __init__(self, keep: Callable[[Sequence[KeptRecord]], None]) -> None:
        self._keep = keep
        self._ended = threading.Condition(threading.Lock())
        self._is_committing = (
            False  # set under the lock of `_ended`; the committing thread clears it
        )
        self._waiting: list[_WaitingRecord] = []  # under the lock of `_ended`

    def keep(self, kept: KeptRecord) -> None:
        """Returns once the record is on disk. Raises SpoolError."""
        waiting = _WaitingRecord(kept)
        with self._ended:
            self._waiting.append(waiting)
        while not waiting.done:
            self._wait_or_commit(waiting)
        if waiting.error is not None:
            raise type(waiting.error)(str(waiting.error)) from waiting.error

    def _wait_or_commit(self, waiting: _WaitingRecord) -> None:
        """Waits for the commit under way. If that was an earlier one, commits all that wait."""
        taken: list[_WaitingRecord] = []
        leads = False
        try:
            with self._ended:
                while self._is_committing and not waiting.done:
                    self._ended.wait(_LOOK_S)
                if waiting.done:
                    return
                self._is_committing = leads = True
                taken, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            self._commit(taken)
        finally:
            if leads:  # also of a thread that was interrupted: nobody may wait for it
                self._is_committing = False
                _interrupt(taken)
                with self._ended:
                    self._ended.notify_all()

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
            _interrupt(taken)
            raise
        else:
            _end(taken, None)


def _end(taken: Sequence[_WaitingRecord], error: SpoolError | None) -> None:
    for one in taken:
        one.error = error
        one.done = True


def _interrupt(taken: Sequence[_WaitingRecord]) -> None:
    """Ends records that have no end yet."""
    if left := [one for one in taken if not one.done]:
        _end(left, SpoolAway("the spool was interrupted; send the record again"))


def _unfit(exc: Exception) -> SpoolError:
    return SpoolError(f"the record cannot be kept ({exc}); key, value and headers are bytes")
