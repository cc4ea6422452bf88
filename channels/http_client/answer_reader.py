"""One thread that waits for the answers to many calls, so that no lane's thread has to.

A thread that waits for a provider costs the interpreter two changes of thread a call, and a hundred of
them keep it from the work there is (docs/decisions/052-answers-in-one-thread.md). Here `epoll` tells which
sockets have something to say, and the answers are read one after the other.

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
"""How often deadlines are looked at."""
_AT_ONCE: Final = 256
"""Sockets told of in one go, at most."""

Ended = Callable[[LeanResponse | Failure], None]
"""Gets what became of a call; must not wait."""


class AnswerReader:
    """`add` is any thread's; what is added is read by the one thread, which the first call starts."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[Exchange, Ended]] = {}
        """By the socket's descriptor. Who takes a call out of here ends it."""
        self._starting = threading.Lock()  # guards the four below
        self._thread: threading.Thread | None = None
        self._epoll: select.epoll | None = None
        self._bell = -1  # an eventfd: there is something to look at
        self._closed = False
        self._resting = False
        """The thread waits for the bell alone: there is no deadline to look at."""
        self._round_at = 0.0
        """When the thread last went round, monotonic."""

    @property
    def beat(self) -> float:
        """When the thread last went round, monotonic; now, where it has nothing to do."""
        idle = self._resting or self._closed or self._thread is None
        return monotonic() if idle else self._round_at

    def add(self, exchange: Exchange, ended: Ended) -> bool:
        """Read the answer; False where it must be waited for otherwise, and `ended` is not told."""
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
        if self._resting:
            self._wake()
        return True

    def close(self) -> None:
        """End the thread, once the answers to what was added have come. Idempotent."""
        with self._starting:
            self._closed = True
        self._wake()

    def _start(self) -> select.epoll | None:
        with self._starting:
            if self._epoll is None and not self._closed:
                epoll = select.epoll()
                self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                epoll.register(self._bell, select.EPOLLIN)
                self._thread = threading.Thread(
                    target=self._run, args=(epoll,), name="answers", daemon=True
                )
                self._round_at = monotonic()
                self._thread.start()
                self._epoll = epoll
            return self._epoll

    def _wake(self) -> None:
        """End the thread's wait, unless it has ended: its descriptors may be another file's by then."""
        with self._starting:
            if self._epoll is not None and not self._epoll.closed:
                os.eventfd_write(self._bell, 1)

    def _run(self, epoll: select.epoll) -> None:
        """Until closed. What this thread dies of leaves its calls in doubt, and it goes on."""
        while self._pending or not self._closed:
            try:
                self._serve(epoll)
            except Exception as exc:
                log.exception("answers_thread_died", calls=len(self._pending), cause=repr(exc))
                for descriptor in list(self._pending):
                    self._give_up(descriptor, "thread_died", exc)
        with self._starting:
            epoll.close()
            os.close(self._bell)
        for descriptor in list(self._pending):  # added as it was closed
            self._end(descriptor, Exchange.wait)

    def _serve(self, epoll: select.epoll) -> None:
        look_at = monotonic() + _LOOK_S
        while self._pending or not self._closed:
            for descriptor, _ in self._told(epoll):
                self._read(epoll, descriptor)
            now = monotonic()
            if now >= look_at:
                look_at = now + _LOOK_S
                self._expire(now)

    def _told(self, epoll: select.epoll) -> list[tuple[int, int]]:
        """Sockets that have something to say. Without any to ask there is no deadline: only the bell ends
        the wait, and whoever adds rings it who sees that."""
        self._resting = True
        if self._pending or self._closed:  # looked at after the announcement
            self._resting = False
        found = epoll.poll(None if self._resting else _LOOK_S, _AT_ONCE)
        self._round_at = monotonic()  # before the rest is over
        self._resting = False
        return found

    def _read(self, epoll: select.epoll, descriptor: int) -> None:
        if descriptor == self._bell:
            os.eventfd_read(descriptor)
            return
        exchange, _ = self._pending.get(descriptor, (None, None))
        if exchange is None:
            return  # told of too late: it has ended
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
            if ended is not None:  # else who added it could not have it watched, and waits for it
                _tell(ended, answer)

    def _expire(self, now: float) -> None:
        for descriptor, (exchange, _) in self._pending.copy().items():
            if now >= exchange.deadline:
                self._end(descriptor, Exchange.expire)

    def _give_up(self, descriptor: int, code: str, cause: Exception) -> None:
        self._end(descriptor, lambda exchange: exchange.give_up(code, repr(cause)))

    def _end(self, descriptor: int, how: Callable[[Exchange], LeanResponse | Failure]) -> None:
        """Takes the call out, then ends it: its owner may use the connection again at once."""
        exchange, ended = self._pending.pop(descriptor, (None, None))
        if exchange is None or ended is None:
            return  # who added it could not have it watched, and waits for it
        _tell(ended, _ended_by(how, exchange))


def _ended_by(
    how: Callable[[Exchange], LeanResponse | Failure], exchange: Exchange
) -> LeanResponse | Failure:
    """Returns how the call ended. Never raises."""
    try:
        return how(exchange)
    except Exception as exc:  # whatever it is: the call's owner must hear of its end
        log.exception("answer_not_read", cause=repr(exc))
        return Failure(Phase.WRITTEN, "not_read", repr(exc))


def _tell(ended: Callable[[LeanResponse | Failure], None], answer: LeanResponse | Failure) -> None:
    """Tells the call's owner. Never raises."""
    try:
        ended(answer)
    except Exception:  # whatever the owner raises: the others' answers are still to be read
        log.exception("answer_not_taken")
