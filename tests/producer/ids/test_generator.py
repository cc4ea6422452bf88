"""Leased worker numbers: marks, lost leases, clocks that go back, forks."""

from __future__ import annotations

import os

import pytest

from idempotency.ledger import LedgerUnavailable
from message.snowflake import WORKERS, decode_snowflake
from producer.ids.errors import ClockBehind, IdsUnavailable, NoWorkerNumber
from producer.ids.generator import MARGIN_S, MAX_BATCH, IdGenerator
from producer.ids.worker_numbers import AHEAD_MS, MOST_BEHIND_MS, WorkerNumbers
from tests.idempotency.making import World
from tests.producer.ids.making import LEASE_S, Times, generator_of, numbers_of

LEASE_MS = round(LEASE_S * 1_000)


def only_number(world: World, number: int = 0) -> None:
    """Leases every other number for ever."""
    world.open()
    world.rows_changed(f"UPDATE id_workers SET until = {2**62} WHERE number <> {number}")


def mark_of(world: World, number: int = 0) -> int:
    return int(world.rows(f"SELECT mark FROM id_workers WHERE number = {number}")[0][0])


def test_an_id_has_the_databases_time_and_the_leased_number(world: World) -> None:
    one, other = (generator_of(world, Times()) for _ in range(2))
    assert decode_snowflake(one.next_id()) == (world.now, 0, 0)
    assert decode_snowflake(one.next_id()) == (world.now, 0, 1)
    assert decode_snowflake(other.next_id()) == (world.now, 1, 0)


def test_a_mark_ahead_of_use_is_written_before_an_id_is_issued(world: World) -> None:
    world.open()
    times = Times()
    generator = generator_of(world, times)
    generator.next_id()
    assert mark_of(world) == world.now + AHEAD_MS
    times.monotonic_s += AHEAD_MS / 1_000
    world.advance(AHEAD_MS)
    generator.next_id()
    assert mark_of(world) == world.now + AHEAD_MS, "raised again, ahead of the new use"
    generator.batch(MAX_BATCH)
    last = decode_snowflake(generator.next_id()).at_ms
    assert last < mark_of(world)


def test_a_restart_with_the_clock_set_back_begins_at_the_mark(world: World) -> None:
    only_number(world)
    first = generator_of(world, Times())
    issued = first.batch(10_000)
    first.close()
    mark = mark_of(world)
    world.advance(-10_000)
    later = generator_of(world, Times()).next_id()
    assert decode_snowflake(later).at_ms == mark
    assert later > max(issued)


def test_it_does_not_begin_with_a_clock_that_is_far_behind_the_mark(world: World) -> None:
    only_number(world)
    first = generator_of(world, Times())
    first.next_id()
    first.close()
    mark = mark_of(world)
    world.advance(-MOST_BEHIND_MS)
    with pytest.raises(ClockBehind, match="set the clock"):
        generator_of(world, Times()).next_id()
    assert mark_of(world) == mark, "the refusal changed nothing"


def test_a_clock_that_goes_back_in_use_makes_it_borrow(world: World) -> None:
    generator = generator_of(world, Times())
    issued = generator.batch(3)
    world.advance(-10_000)
    generator.renew()
    issued += generator.batch(10_000)
    assert issued == sorted(set(issued))


def test_the_number_of_a_live_holder_is_not_leased(world: World) -> None:
    only_number(world)
    generator_of(world, Times()).next_id()
    with pytest.raises(NoWorkerNumber, match="every worker number"):
        generator_of(world, Times()).next_id()
    world.advance(LEASE_MS + 1)
    assert generator_of(world, Times()).next_id()


def test_a_number_comes_back_as_late_as_possible(world: World) -> None:
    seen = []
    for _ in range(3):
        generator = generator_of(world, Times())
        generator.next_id()
        seen.append(generator.worker)
        generator.close()
        world.advance(1)
    assert seen == [0, 1, 2]


def test_nothing_is_issued_under_a_lease_that_is_about_to_end(world: World) -> None:
    times = Times()
    generator = generator_of(world, times)
    generator.next_id()
    assert generator.worker == 0
    times.monotonic_s += LEASE_S - MARGIN_S
    generator.next_id()
    assert generator.worker == 1, "another number: the first one's lease is nearly over"


def test_a_lost_lease_gets_another_number_and_higher_ids(world: World) -> None:
    times = Times()
    generator = generator_of(world, times)
    world.open()
    world.rows_changed("UPDATE id_workers SET until = 9223372036854775807 WHERE number < 5")
    issued = generator.batch(5)
    assert generator.worker == 5
    world.rows_changed("UPDATE id_workers SET token = 1 WHERE number = 5")
    world.rows_changed("UPDATE id_workers SET until = 0 WHERE number = 2")
    generator.renew()
    issued += generator.batch(5)
    assert generator.worker == 2
    assert issued == sorted(set(issued))


def test_a_holder_that_slept_past_its_lease_issues_nothing_at_or_past_its_mark(
    world: World,
) -> None:
    only_number(world)
    slept = generator_of(world, Times())
    before = slept.batch(2)
    world.advance(LEASE_MS + 1)  # its own clocks stood still
    successor = generator_of(world, Times())
    taken = successor.batch(2)
    woken = slept.batch(2)
    assert max(before + woken) < min(taken)


def test_the_database_may_be_away_until_the_lease_is_nearly_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = Times()
    generator = generator_of(world, times)
    generator.next_id()

    def away(*_arguments: object) -> None:
        raise LedgerUnavailable("the database is away")

    for name in ("take", "renew"):
        monkeypatch.setattr(WorkerNumbers, name, away)
    with pytest.raises(IdsUnavailable):
        generator.renew()
    assert generator.next_id()
    times.monotonic_s += LEASE_S - MARGIN_S
    with pytest.raises(IdsUnavailable, match="away"):
        generator.next_id()


@pytest.mark.parametrize("count", [0, -1, MAX_BATCH + 1])
def test_a_batch_has_bounds(world: World, count: int) -> None:
    with pytest.raises(ValueError, match="1,000,000"):
        generator_of(world, Times()).batch(count)


def test_the_table_has_a_row_for_each_number_of_the_format(world: World) -> None:
    world.open()
    numbers = [row[0] for row in world.rows("SELECT number FROM id_workers ORDER BY number")]
    assert numbers == list(range(WORKERS))


def test_a_forked_child_takes_a_number_of_its_own(world: World) -> None:
    generator = generator_of(world, Times())
    ours = [generator.next_id()]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(generator.next_id()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    ours.append(generator.next_id())
    theirs = int(os.read(reader, 30))
    assert [decode_snowflake(one).worker for one in ours] == [0, 0]
    assert decode_snowflake(theirs).worker == 1


def test_its_thread_keeps_the_lease(world: World) -> None:
    import threading

    renewed = threading.Event()

    class Watched(IdGenerator):
        def renew(self) -> None:
            super().renew()
            renewed.set()

    generator = Watched(numbers_of(world), lease_s=0.3, margin_s=0.1)
    generator.next_id()
    assert renewed.wait(30)
    generator.close()
    assert generator.worker is None
