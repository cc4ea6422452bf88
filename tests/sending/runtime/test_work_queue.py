"""Handing work from one thread to many."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import pytest

from sending.runtime.work_queue import SlottedQueue, WorkQueue

DEADLINE_S = 60.0
SOON_S = 10.0


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads change over as often as the interpreter can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def takers(
    handoff: WorkQueue[int | None], count: int, taken: SimpleQueue[int]
) -> list[threading.Thread]:
    def serve() -> None:
        waiter = handoff.waiter()
        while (item := handoff.take(waiter)) is not None:
            taken.put(item)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.usefixtures("hasty")
def test_every_item_is_taken_once_and_no_call_is_lost() -> None:
    handoff: WorkQueue[int | None] = WorkQueue()
    taken: SimpleQueue[int] = SimpleQueue()
    threads = takers(handoff, 8, taken)
    found = []
    for burst in range(400):
        for item in range(burst * 5, burst * 5 + 5):
            handoff.put(item)
        # A call that is lost leaves its item lying here for ever.
        found += [taken.get(timeout=DEADLINE_S) for _ in range(5)]
    assert sorted(found) == list(range(2_000))
    for _ in threads:
        handoff.put(None)
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@pytest.mark.usefixtures("hasty")
def test_many_may_put_at_once() -> None:
    handoff: WorkQueue[int | None] = WorkQueue()
    taken: SimpleQueue[int] = SimpleQueue()
    takers(handoff, 5, taken)

    def put(start: int) -> None:
        for item in range(start, start + 500):
            handoff.put(item)

    putters = [threading.Thread(target=put, args=(n * 500,)) for n in range(4)]
    for putter in putters:
        putter.start()
    assert sorted(taken.get(timeout=DEADLINE_S) for _ in range(2_000)) == list(range(2_000))


class Interrupted(deque[threading.Lock]):
    """A stack of waiting seats; at the next announcement `before` and `after` happen around it."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__()
        self.before, self.after = before, after

    def append(self, waiter: threading.Lock) -> None:
        before, after = self.before, self.after
        self.before = self.after = lambda: None
        before()
        super().append(waiter)
        after()


def started(handoff: WorkQueue[int], taken: SimpleQueue[int]) -> None:
    def serve() -> None:
        taken.put(handoff.take(handoff.waiter()))

    threading.Thread(target=serve, daemon=True).start()


def test_what_comes_between_the_look_and_the_announcement_is_seen() -> None:
    handoff: WorkQueue[int] = WorkQueue()
    taken: SimpleQueue[int] = SimpleQueue()
    handoff._waiting = Interrupted(lambda: handoff.put(1), lambda: None)
    started(handoff, taken)
    assert taken.get(timeout=SOON_S) == 1


def test_a_call_to_one_that_needs_it_no_more_goes_to_the_next() -> None:
    handoff: WorkQueue[int] = WorkQueue()
    first, second = SimpleQueue[int](), SimpleQueue[int]()
    waits = threading.Event()
    handoff._waiting = Interrupted(lambda: None, waits.set)
    started(handoff, first)
    assert waits.wait(SOON_S)
    handoff._waiting.before = lambda: handoff._items.append(1)
    handoff._waiting.after = lambda: handoff.put(2)  # calls the one that is about to take the 1
    started(handoff, second)
    assert second.get(timeout=SOON_S) == 1
    assert first.get(timeout=SOON_S) == 2


def test_items_are_taken_in_the_order_they_came() -> None:
    handoff: WorkQueue[int] = WorkQueue()
    for item in range(5):
        handoff.put(item)
    waiter = handoff.waiter()
    assert [handoff.take(waiter) for _ in range(5)] == [0, 1, 2, 3, 4]


def test_of_all_who_wait_one_is_called_at_a_time() -> None:
    """Those at work take what there is before one that was called has even come."""
    handoff: WorkQueue[int] = WorkQueue()
    seats = [handoff.waiter() for _ in range(5)]
    handoff._waiting.extend(seats)
    for item in range(5):
        handoff.put(item)
    assert sum(waiter.acquire(blocking=False) for waiter in seats) == 1
    handoff._calls.append(None)  # it came
    assert handoff.take(handoff.waiter()) == 0
    assert sum(waiter.acquire(blocking=False) for waiter in seats) == 1, "there is more: the next"


# ---- slots ---------------------------------------------------------------------------------------


def test_no_more_is_taken_than_there_are_slots() -> None:
    slotted: SlottedQueue[int] = SlottedQueue(2)
    taken: SimpleQueue[int] = SimpleQueue()
    for _ in range(4):
        started(slotted, taken)
    for item in range(4):
        slotted.put(item)
    assert {taken.get(timeout=SOON_S), taken.get(timeout=SOON_S)} == {0, 1}
    with pytest.raises(Empty):
        taken.get(timeout=0.1)
    assert (slotted.busy, len(slotted)) == (2, 2)
    slotted.free()
    assert taken.get(timeout=SOON_S) == 2
    slotted.free()
    assert taken.get(timeout=SOON_S) == 3
    assert slotted.busy == 2


def test_what_belongs_to_a_piece_under_way_goes_first_and_needs_no_slot() -> None:
    slotted: SlottedQueue[str] = SlottedQueue(1)
    waiter = slotted.waiter()
    slotted.put("a")
    assert slotted.take(waiter) == "a"
    slotted.put("b")
    slotted.put_first("a, once more")
    assert slotted.take(waiter) == "a, once more"
    slotted.free()
    assert slotted.take(waiter) == "b"


def test_what_is_urgent_wakes_a_thread_while_all_slots_are_taken() -> None:
    slotted: SlottedQueue[int] = SlottedQueue(1)
    taken: SimpleQueue[int] = SimpleQueue()
    slotted.put(1)
    assert slotted.take(slotted.waiter()) == 1
    started(slotted, taken)
    slotted.put_first(2)
    assert taken.get(timeout=SOON_S) == 2


def test_slots_come_at_once_and_go_as_they_come_free() -> None:
    slotted: SlottedQueue[int] = SlottedQueue(2)
    waiter = slotted.waiter()
    for item in range(9):
        slotted.put(item)
    assert [slotted.take(waiter), slotted.take(waiter)] == [0, 1]
    slotted.resize(3)
    assert slotted.take(waiter) == 2
    slotted.resize(1)
    assert slotted.busy == 3
    slotted.free()
    slotted.free()
    assert (slotted.busy, slotted._ready()) == (1, False)
    slotted.free()
    assert (slotted.busy, slotted._ready()) == (0, True)
    slotted.resize(2)
    assert [slotted.take(waiter), slotted.take(waiter)] == [3, 4]
    assert not slotted._ready()


@pytest.mark.usefixtures("hasty")
def test_no_slot_is_lost_and_no_item_left_lying_whoever_comes_when() -> None:
    slotted: SlottedQueue[int | None] = SlottedQueue(3)
    under_way, most, lock = 0, 0, threading.Lock()
    taken: SimpleQueue[int] = SimpleQueue()

    def serve() -> None:
        nonlocal under_way, most
        waiter = slotted.waiter()
        while (item := slotted.take(waiter)) is not None:
            with lock:
                under_way += 1
                most = max(most, under_way)
            taken.put(item)
            with lock:
                under_way -= 1
            slotted.free()
        slotted.free()

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    found = []
    for burst in range(300):
        for item in range(burst * 5, burst * 5 + 5):
            slotted.put(item)
        found += [taken.get(timeout=DEADLINE_S) for _ in range(5)]
    assert sorted(found) == list(range(1_500))
    for _ in threads:
        slotted.put(None)
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert most <= 3
    assert slotted.busy == 0
