"""How fast retries go: a lane's pace, fixed or rising."""

from __future__ import annotations

from recovery.retry.pace import BASE, RISEN, RetryPace, RisingPace, retry_pace
from sending.runtime.clock import Clock

LANE = "sms.notice"
TICK_S = 0.05


class Ground:
    """A lane in which so many are due; each tick is one look with room for a hundred."""

    def __init__(self, pace: RetryPace, now: list[float]) -> None:
        self.pace = pace
        self.now = now
        self.due = 0
        self.room = 100

    def run(self, seconds: float, arriving: float = 0.0) -> float:
        """Returns the deliveries sent a second."""
        sent, late = 0, 0.0
        for _ in range(round(seconds / TICK_S)):
            self.now[0] += TICK_S
            late += arriving * TICK_S
            self.due, late = self.due + int(late), late - int(late)
            if granted := self.pace.take(LANE, self.room):
                used = min(granted, self.due)
                self.pace.used(LANE, granted, used)
                self.due -= used
                sent += used
        return sent / seconds


def _ground(fixed: float | None = None) -> Ground:
    now = [100.0]
    return Ground(retry_pace(fixed, Clock(lambda: now[0], lambda: 0.0)), now)


def test_few_retries_go_at_the_base() -> None:
    ground = _ground()
    for _ in range(20):
        assert ground.run(1.0, arriving=30) <= 31
    ground.due = 100
    assert ground.run(0.5) <= 2.5 * BASE, "a second's worth at once, then evenly"


def test_the_rate_rises_while_more_is_due_than_goes_and_sinks_again() -> None:
    ground = _ground()
    ground.due = 5_000
    ground.run(2.0)
    assert ground.run(5.0) == RISEN
    ground.due = 0
    ground.run(3.0, arriving=10)
    ground.due = 1_000
    assert ground.run(0.5) <= 2.5 * BASE, "it had sunk to the base"


def test_a_twentieth_of_a_fast_lane_is_kept_up_with() -> None:
    """A lane of 1,500 a second, one in twenty refused: 79 retries a second, for two minutes."""
    ground = _ground()
    most = 0
    for _ in range(120):
        ground.run(1.0, arriving=1_500 * 0.05 / 0.95)
        most = max(most, ground.due)
    assert most < 5 * 79, "nothing is overdue for five seconds"


def test_a_lane_without_room_does_not_rise() -> None:
    """Its threads are the limit: when they are free again nothing comes all at once."""
    ground = _ground()
    ground.due, ground.room = 10_000, 2
    assert ground.run(10.0) <= BASE
    assert isinstance(ground.pace, RisingPace)
    assert ground.pace.rate_of(LANE) == BASE


def test_a_lane_that_was_not_looked_at_begins_at_its_base() -> None:
    ground = _ground()
    ground.due = 5_000
    ground.run(5.0)
    ground.now[0] += 11.0
    assert ground.run(0.5) <= 2.5 * BASE


def test_a_rate_that_is_set_is_kept_to() -> None:
    ground = _ground(20.0)
    ground.due = 5_000
    ground.run(2.0)
    assert 19 <= ground.run(10.0) <= 21


def test_a_pace_gives_a_seconds_worth_and_takes_back_what_was_not_used() -> None:
    now = [0.0]
    pace = RetryPace(lambda _: 10, Clock(lambda: now[0], lambda: 0.0))
    assert pace.take("a", 25) == 10
    assert pace.take("a", 25) == 0
    assert pace.take("b", 3) == 3
    pace.used("a", 10, 6)
    assert pace.take("a", 25) == 4
    now[0] = 0.5
    assert pace.take("a", 25) == 5


def test_a_pace_gives_a_bite_or_nothing_so_that_rows_are_taken_together() -> None:
    now = [0.0]
    pace = RetryPace(lambda _: 40, Clock(lambda: now[0], lambda: 0.0))
    assert pace.take("a", 100) == 40
    now[0] = 0.2
    assert pace.take("a", 100) == 0, "eight tokens are no bite of ten"
    assert pace.take("a", 3) == 3, "but they are all that is wanted"
    now[0] = 0.375
    assert pace.take("a", 100) == 12, "nothing was lost by asking too early"
