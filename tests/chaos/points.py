"""Named points inside a worker or a recovery at which it can be killed or held, by an orders file.

    kill claim      SIGKILL to itself inside the transaction of the next claim, before it commits
    hold claim      stand still there, HOLD_S at most, so that the server can be stopped meanwhile

Whoever reaches the point renames the file first, so that one order is carried out once. Without a file the
program is as it was, but for one failed `open` at each point.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

HOLD_S: Final = 5.0


class Point(StrEnum):
    """Where a process may be told to end or to stand still."""

    CLAIM = "claim"
    """A worker's claim is made and its transaction not committed."""
    TAKE = "take"
    """The same of the rows that a recovery takes."""
    CALL = "call"
    """Its intent is in the ledger, and the call has not begun."""
    ANSWER = "answer"
    """The provider has accepted, and the ledger does not know."""
    QUESTION = "question"
    """The provider has said what became of a doubt, and the ledger does not know."""
    NOTE = "note"
    """A lost delivery is entered into the ledger, and its finding has no decision."""


class Orders:
    """One process's orders, from outside: a file beside its log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reached = reached(path)

    def give(self, verb: str, point: Point) -> None:
        """From now on whoever comes to the point obeys; once."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(f"{verb} {point}")
        draft.rename(self.path)

    def take_back(self) -> bool:
        """Forget the order; idempotent. Returns False if it was carried out before: who gets the file, the
        process or this, decides."""
        self.path.unlink(missing_ok=True)
        return not self.carried_out

    @property
    def carried_out(self) -> bool:
        """Whether the point was reached."""
        return self._reached.exists()

    def forget(self) -> None:
        """Make ready for another order."""
        self._reached.unlink(missing_ok=True)


def reached(path: Path) -> Path:
    """What an orders file is called once its point was reached."""
    return path.with_suffix(".reached")


def install(path: str) -> None:
    """Put the points in; called in the process before its program starts."""
    orders = Path(path)
    _claims(orders)
    _takes(orders)
    _calls(orders)
    _notes(orders)


def _at(point: Point, orders: Path) -> None:
    try:
        verb, _, where = orders.read_text().partition(" ")
        if where != point:
            return
        orders.rename(reached(orders))  # of several threads one gets it
    except FileNotFoundError:
        return
    if verb == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait(HOLD_S)


def _claims(orders: Path) -> None:
    """A claim is one statement that commits by itself: for the point to be inside its transaction it gets
    an explicit one."""
    from idempotency.claims import postgres
    from idempotency.error_mapping import connected

    batches = postgres.PostgresBatches
    enter, ride = batches._enter, batches._change_and_enter
    claiming = threading.local()

    @contextmanager
    def watched(database: Any) -> Iterator[Any]:
        with connected(database) as connection:
            if not getattr(claiming, "on", False) or not orders.exists():
                yield connection
                return
            with connection.transaction():
                yield connection
                _at(Point.CLAIM, orders)

    def marked(claim: Callable[..., Any]) -> Callable[..., Any]:
        def entered(self: Any, *args: Any, **named: Any) -> Any:
            claiming.on = True
            try:
                return claim(self, *args, **named)
            finally:
                claiming.on = False

        return entered

    vars(postgres)["connected"] = watched
    batches._enter = marked(enter)  # type: ignore[method-assign]
    batches._change_and_enter = marked(ride)  # type: ignore[method-assign]


def _takes(orders: Path) -> None:
    from idempotency.recovery.store import SqlRecovering

    take_due = SqlRecovering._take_due

    def taking(self: SqlRecovering, *args: Any) -> Any:
        found = take_due(self, *args)
        _at(Point.TAKE, orders)
        return found

    SqlRecovering._take_due = taking  # type: ignore[method-assign, assignment]


def _calls(orders: Path) -> None:
    from channels.engine import Engine, NonBlockingEngine
    from message.outcomes import Accepted

    send, begin, resolve = Engine.send, NonBlockingEngine.begin, Engine.resolve

    def answered(outcomes: Any) -> Any:
        if isinstance(outcomes, list) and any(isinstance(one, Accepted) for one in outcomes):
            _at(Point.ANSWER, orders)
        return outcomes

    def sending(self: Engine, channel: Any, call: Any, timeout_s: float) -> Sequence[Any]:
        _at(Point.CALL, orders)
        outcomes: Sequence[Any] = answered(send(self, channel, call, timeout_s))
        return outcomes

    def beginning(
        self: NonBlockingEngine, channel: Any, call: Any, timeout_s: float, done: Any
    ) -> Any:
        _at(Point.CALL, orders)
        told = begin(self, channel, call, timeout_s, lambda found: done(answered(found)))
        return answered(told)

    def asking(self: Engine, *args: Any, **named: Any) -> Any:
        found = resolve(self, *args, **named)
        _at(Point.QUESTION, orders)
        return found

    Engine.send = sending  # type: ignore[method-assign, assignment]
    NonBlockingEngine.begin = beginning  # type: ignore[method-assign]
    Engine.resolve = asking  # type: ignore[method-assign]


def _notes(orders: Path) -> None:
    """Recovery writes RESENT only after the claim has committed."""
    from idempotency.lost.findings import Decision, FindingStatus, LostFindings

    decide = LostFindings.decide

    def deciding(self: LostFindings, decisions: Sequence[Decision], by: str) -> None:
        if any(one.status is FindingStatus.RESENT for one in decisions):
            _at(Point.NOTE, orders)
        decide(self, decisions, by)

    LostFindings.decide = deciding  # type: ignore[method-assign]
