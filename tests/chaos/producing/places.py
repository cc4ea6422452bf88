"""Places for processes of one kind: one is killed, and after a while another takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.producing.processes import ChaosProcess

Start = Callable[[int], ChaosProcess]
"""Starts the process of a place."""
_TAIL = 15


@dataclass
class Seat:
    """One place."""

    number: int
    process: ChaosProcess
    back_at: float | None = None
    """Monotonic time at which the next process starts; None while one runs."""
    ended: bool = False
    """Its process came to its own good end."""


@dataclass
class PlaceBook:
    """The lives in these places."""

    kills: int = 0
    troubles: list[str] = field(default_factory=list)
    """Processes that ended by themselves, with their code and the log's end."""


class Places:
    """Belongs to the driver's thread."""

    def __init__(self, name: str, count: int, start: Start, *, may_end: bool = False) -> None:
        """`may_end`: whether a process may end with 0 by itself, and is then not started again."""
        self.name = name
        self.book = PlaceBook()
        self._start = start
        self._may_end = may_end
        self.seats = [Seat(number, start(number)) for number in range(count)]

    @property
    def running(self) -> list[Seat]:
        """Places whose process runs."""
        return [one for one in self.seats if one.back_at is None and one.process.running]

    @property
    def all_ended(self) -> bool:
        """Whether each place came to its good end."""
        return all(one.ended for one in self.seats)

    def kill(self, luck: float, down_s: float) -> bool:
        """kill -9 of one that is at work; False if none is. One that only starts would never end."""
        fit = [one for one in self.running if one.process.at_work]
        if not fit:
            return False
        victim = fit[int(luck * len(fit))]
        victim.process.kill()
        victim.back_at = time.monotonic() + down_s
        self.book.kills += 1
        return True

    def look_after(self, now: float) -> None:
        """Fills places whose time has come, and notes those that ended by themselves."""
        for seat in self.seats:
            if seat.ended:
                continue
            if seat.back_at is not None:
                if now >= seat.back_at:
                    seat.process, seat.back_at = self._start(seat.number), None
            elif not seat.process.running:
                self._note_end(seat, now)

    def _note_end(self, seat: Seat, now: float) -> None:
        if self._may_end and seat.process.code == 0:
            seat.ended = True
            return
        tail = seat.process.tail(_TAIL)
        self.book.troubles.append(f"{self.name} {seat.process.id}: {seat.process.code}\n{tail}")
        seat.back_at = now + 1.0

    def stop(self, within_s: float = 120.0) -> None:
        """SIGTERM to all, and notes those that do not end with 0."""
        running = [seat.process for seat in self.running]
        for one in running:
            one.wait_ready(within_s)  # Python itself ends at a SIGTERM until the process listens
            one.terminate()
        for one in running:
            code = one.wait(within_s)
            if code != 0:
                self.book.troubles.append(
                    f"{self.name} {one.id} ended with {code}\n{one.tail(_TAIL)}"
                )

    def discard(self) -> None:
        """Ends all, whatever they do; idempotent."""
        for seat in self.seats:
            seat.process.discard()
