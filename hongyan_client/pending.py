"""The acknowledgement to come, as a future that costs little."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from hongyan_client.errors import SendFailed

_T = TypeVar("_T")
_PENDING: Final = "PENDING"


class PendingResult(Future[_T], Generic[_T]):
    """A future of the standard library's kind, whose condition all of them share.

    A condition for each record costs more than the record's way through librdkafka
    (docs/decisions/212). Waiting is rare, and a waiter that was woken for another future waits on.
    """

    def __init__(self) -> None:
        self._condition = _shared
        self._state = _PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    def cancel(self) -> bool:
        """Returns False: a record that librdkafka has cannot be called back."""
        return False

    def end(self, end: _T | SendFailed) -> None:
        """Sets the result or the exception."""
        if isinstance(end, SendFailed):
            self.set_exception(end)
        else:
            self.set_result(end)

    def result(self, timeout: float | None = None) -> _T:
        """Returns the result. Raises its exception, or TimeoutError after `timeout` seconds."""
        with self._condition:
            self._condition.wait_for(self.done, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Returns the exception; None if there is none. Raises TimeoutError after `timeout` seconds."""
        with self._condition:
            self._condition.wait_for(self.done, timeout)
        return super().exception(0)


_shared = threading.Condition()


def _forked() -> None:
    global _shared
    _shared = threading.Condition()


os.register_at_fork(after_in_child=_forked)
