"""The acknowledgement to come, as a future that costs little."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final, Generic, TypeVar

_T = TypeVar("_T")
_PENDING: Final = "PENDING"
_FINISHED: Final = "FINISHED"


class PendingResult(Future[_T], Generic[_T]):
    """A future of the standard library's kind, whose condition all of them share.

    A condition for each record costs more than the record's way through librdkafka
    (docs/decisions/212). Waiting is rare, and a waiter that was woken for another future waits on. Lists of
    waiters and callbacks are made when somebody asks for them.
    """

    _state = _PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _lists: tuple[list[Any], list[Any]] | None = (
        None  # waiters and callbacks; made under the condition
    )

    def __init__(self) -> None:
        pass

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return _shared.condition

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._made_lists()[0]

    @property
    def _done_callbacks(self) -> list[Any]:
        return self._made_lists()[1]

    def cancel(self) -> bool:
        """Returns False: a record that librdkafka has cannot be called back."""
        return False

    def end(self, end: _T | BaseException) -> None:
        """Sets the result or the exception."""
        if isinstance(end, BaseException):
            self.set_exception(end)
        else:
            self.set_result(end)

    def set_result(self, result: _T) -> None:
        """Sets the result, wakes waiters and runs callbacks. Raises InvalidStateError at a second end."""
        self._end(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        """Like `set_result`, with an exception."""
        self._end(None, exception)

    def result(self, timeout: float | None = None) -> _T:
        """Returns the result. Raises its exception, or TimeoutError after `timeout` seconds."""
        self._await_end(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Returns the exception; None if there is none. Raises TimeoutError after `timeout` seconds."""
        self._await_end(timeout)
        return super().exception(0)

    def _await_end(self, timeout: float | None) -> None:
        if self._state != _PENDING:
            return
        shared = _shared
        with shared.condition:
            shared.waiting += 1
            try:
                shared.condition.wait_for(lambda: self._state != _PENDING, timeout)
            finally:
                shared.waiting -= 1

    def _end(self, result: Any, exception: BaseException | None) -> None:
        shared = _shared
        with shared.lock:
            if self._state != _PENDING:
                raise InvalidStateError(f"{self._state}: {self!r}")
            self._result, self._exception = result, exception
            self._state = _FINISHED
            lists = self._lists
            if lists is not None:
                for waiter in lists[0]:
                    (waiter.add_result if exception is None else waiter.add_exception)(self)
            if shared.waiting:
                shared.condition.notify_all()
        if lists is not None:
            self._invoke_callbacks()  # type: ignore[attr-defined]

    def _made_lists(self) -> tuple[list[Any], list[Any]]:
        if self._lists is None:
            with _shared.lock:
                if self._lists is None:
                    self._lists = ([], [])
        return self._lists


class _Shared:
    """The condition of all futures."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.waiting = 0  # threads in `_await_end`; written under the lock


_shared = _Shared()


def _forked() -> None:
    global _shared
    _shared = _Shared()


os.register_at_fork(after_in_child=_forked)
