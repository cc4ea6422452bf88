import threading
import time

from backends.sql.fair_pool import Turns


def test_a_turn_goes_to_who_waits_longest_and_never_past_them() -> None:
    turns, order = Turns(1), list[int]()
    assert turns.take(1)

    def waits(number: int) -> None:
        assert turns.take(10)
        order.append(number)
        turns.give()

    threads = [threading.Thread(target=waits, args=(number,)) for number in range(4)]
    for count, thread in enumerate(threads, start=1):
        thread.start()
        _until_waiting(turns, count)
    turns.give()
    assert turns.take(10)  # behind all four, though this thread gave and took without a pause
    for thread in threads:
        thread.join(10)
    assert order == [0, 1, 2, 3]


def test_who_gave_up_waiting_gets_no_turn() -> None:
    turns = Turns(1)
    assert turns.take(1)
    assert not turns.take(0.01)
    assert turns.waiting == 0
    turns.give()
    assert turns.take(0)
    assert not turns.take(0)


def _until_waiting(turns: Turns, count: int) -> None:
    end = time.monotonic() + 10
    while turns.waiting < count:
        assert time.monotonic() < end
        time.sleep(0.001)
