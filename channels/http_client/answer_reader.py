"""One thread that waits for the answers to many calls, so that no lane's thread has to.

A thread that waits for a provider costs the interpreter two thread switches a call. A hundred of them slow
down all other work (docs/decisions/052-answers-in-one-thread.md). Here `epoll` reports readable sockets,
and one thread reads the answers one after the other.

    added ──▶ something came ──▶ whole, or broken ──▶ `ended`
                   ▲     │
                   └─────┘ not all of it

An answer that is not whole by its deadline ends as a timeout, at most 20 ms later.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

import structlog

from channels.channel import Failure, Phase
from channels.http_client.exchange import Exchange
from channels.http_client.response import LeanResponse
from channels.http_client.sockets import watch

log = structlog.get_logger(__name__)
_LOOK_S: Final = 0.02
"""Interval between two looks at the deadlines."""
_AT_ONCE: Final = 256
"""Sockets that one `epoll` call reports, at most."""

Ended = Callable[[LeanResponse | Failure], None]
"""Receives the result of a call; must not wait."""


class AnswerReader:
    """Any thread calls `add`; one thread, which the first call starts, reads the answers."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[Exchange, Ended]] = {}
        """By the socket's descriptor. The thread that pops a call ends it."""
        self._starting = threading.Lock()  # guards the four below
        self._thread: threading.Thread | None = None
        self._epoll: select.epoll | None = None
        self._wakeup_fd = -1  # the eventfd that ends the thread's wait
        self._closed = False
        self._idle = False
        """True while the thread waits for the eventfd alone, without a deadline. `_ready` writes it."""
        self._round_at = 0.0
        """Time of the thread's last pass, monotonic. `_ready` writes it, at first `_start`."""

    @property
    def beat(self) -> float:
        """Time of the thread's last pass, monotonic; now if it has nothing to do."""
        idle = self._idle or self._closed or self._thread is None
        return monotonic() if idle else self._round_at

    def add(self, exchange: Exchange, ended: Ended) -> bool:
        """Hands the call to the thread. Returns False if the caller must wait itself, without `ended`."""
        epoll = self._epoll or self._start()
        if epoll is None:
            return False
        descriptor = exchange.wire.descriptor
        self._pending[descriptor] = (exchange, ended)
        try:
            watch(epoll, descriptor)
        except (OSError, ValueError) as exc:  # no room for more, or closed just now
            log.warning("answer_not_watched", cause=str(exc))
            return self._pending.pop(descriptor, None) is None
        if self._idle:
            self._wake()
        return True

    def close(self) -> None:
        """Ends the thread, once the answers to all added calls have come. Idempotent."""
        with self._starting:
            self._closed = True
        self._wake()

    def _start(self) -> select.epoll | None:
        with self._starting:
            if self._epoll is None and not self._closed:
                epoll = select.epoll()
                self._wakeup_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                epoll.register(self._wakeup_fd, select.EPOLLIN)
                self._thread = threading.Thread(
                    target=self._run, args=(epoll,), name="answers", daemon=True
                )
                self._round_at = monotonic()
                self._thread.start()
                self._epoll = epoll
            return self._epoll

    def _wake(self) -> None:
        """Ends the thread's wait, unless it has ended: its descriptors may be another file's by then."""
        with self._starting:
            if self._epoll is not None and not self._epoll.closed:
                os.eventfd_write(self._wakeup_fd, 1)

    def _run(self, epoll: select.epoll) -> None:
        """Runs until closed. An error leaves the pending calls in doubt, and the thread goes on."""
        while self._pending or not self._closed:
            try:
                self._serve(epoll)
            except Exception as exc:
                log.exception("answers_thread_died", calls=len(self._pending), cause=repr(exc))
                for descriptor in list(self._pending):
                    self._give_up(descriptor, "thread_died", exc)
        with self._starting:
            epoll.close()
            os.close(self._wakeup_fd)
        for descriptor in list(self._pending):  # added while it was closed
            self._end(descriptor, Exchange.wait)

    def _serve(self, epoll: select.epoll) -> None:
        look_at = monotonic() + _LOOK_S
        while self._pending or not self._closed:
            for descriptor, _ in self._ready(epoll):
                self._read(epoll, descriptor)
            now = monotonic()
            if now >= look_at:
                look_at = now + _LOOK_S
                self._expire(now)

    def _ready(self, epoll: select.epoll) -> list[tuple[int, int]]:
        """Returns the readable sockets. With no call pending, epoll waits without a timeout; `add` wakes it
        through the eventfd."""
        self._idle = True
        if self._pending or self._closed:  # read after `_idle` is set
            self._idle = False
        found = epoll.poll(None if self._idle else _LOOK_S, _AT_ONCE)
        self._round_at = monotonic()  # before `_idle` is cleared
        self._idle = False
        return found

    def _read(self, epoll: select.epoll, descriptor: int) -> None:
        if descriptor == self._wakeup_fd:
            os.eventfd_read(descriptor)
            return
        exchange, _ = self._pending.get(descriptor, (None, None))
        if exchange is None:
            return  # the call ended before this event was read
        try:
            answer = exchange.advance()
            if answer is None:
                watch(epoll, descriptor)
                return
        except Exception as exc:
            log.exception("answer_not_read", cause=repr(exc))
            self._give_up(descriptor, "not_read", exc)
        else:
            _, ended = self._pending.pop(descriptor, (None, None))
            if ended is not None:  # else `add` could not watch it, and its caller waits
                _tell(ended, answer)

    def _expire(self, now: float) -> None:
        for descriptor, (exchange, _) in self._pending.copy().items():
            if now >= exchange.deadline:
                self._end(descriptor, Exchange.expire)

    def _give_up(self, descriptor: int, code: str, cause: Exception) -> None:
        self._end(descriptor, lambda exchange: exchange.give_up(code, repr(cause)))

    def _end(self, descriptor: int, how: Callable[[Exchange], LeanResponse | Failure]) -> None:
        """Takes the call out first: once it ends, its owner may use the connection again."""
        exchange, ended = self._pending.pop(descriptor, (None, None))
        if exchange is None or ended is None:
            return  # `add` could not watch it, and its caller waits
        _tell(ended, _ended_by(how, exchange))


def _ended_by(
    how: Callable[[Exchange], LeanResponse | Failure], exchange: Exchange
) -> LeanResponse | Failure:
    """Returns the end of the call. Never raises."""
    try:
        return how(exchange)
    except Exception as exc:  # any error: the call's owner must learn of its end
        log.exception("answer_not_read", cause=repr(exc))
        return Failure(Phase.WRITTEN, "not_read", repr(exc))


def _tell(ended: Callable[[LeanResponse | Failure], None], answer: LeanResponse | Failure) -> None:
    """Tells the call's owner. Never raises."""
    try:
        ended(answer)
    except Exception:  # any error of the owner: other answers are still to be read
        log.exception("answer_not_taken")
