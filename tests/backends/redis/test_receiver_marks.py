"""Marks of what a receiver got: on a real Redis and in memory, by one and the same suite."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from backends.redis.receiver_marks import (
    LocalMarks,
    MarkResult,
    Marks,
    ReceiverMark,
    RedisMarks,
    Returned,
    SendRequest,
)
from backends.redis.receiver_windows import Window
from backends.settings import RedisSettings

MINUTE_MS = 60_000
MARKED, KNOWN, REPEAT, ABOVE = MarkResult


def passing(
    member: str,
    content: str = "",
    receiver: str = "",
    *,
    most: int = 2,
    span_ms: int = MINUTE_MS,
    delay_ms: int = 0,
    content_ms: int = MINUTE_MS,
) -> SendRequest:
    return SendRequest(
        ReceiverMark(member, content, receiver),
        content_ms,
        [Window(most, span_ms)],
        span_ms,
        delay_ms,
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "marks" in metafunc.fixturenames:
        metafunc.parametrize("made_of", ["redis", "memory"])


@pytest.fixture
def marks(made_of: str, request: pytest.FixtureRequest) -> Iterator[Marks]:
    if made_of == "memory":
        yield LocalMarks()
        return
    url = request.getfixturevalue("redis_url")
    made = RedisMarks(RedisSettings(url=url, timeout_ms=5_000), "a")
    yield made
    made.close()


def test_the_same_content_passes_once_and_its_own_delivery_passes_again(marks: Marks) -> None:
    assert marks.enter([passing("d1", "c"), passing("d2", "c"), passing("d1", "c")]) == [
        MARKED,
        REPEAT,
        KNOWN,
    ]
    assert marks.enter([passing("d3", "other")]) == [MARKED]


def test_no_more_than_so_many_pass_and_each_delivery_counts_once(marks: Marks) -> None:
    batch = [passing(f"d{n}", receiver="r") for n in (1, 2, 3, 1)]
    assert marks.enter(batch) == [MARKED, MARKED, ABOVE, KNOWN]
    assert marks.enter([passing("d4", receiver="someone else")]) == [MARKED]


def test_every_window_holds(marks: Marks) -> None:
    windows = [Window(5, MINUTE_MS), Window(1, 1_000)]
    batch = [SendRequest(ReceiverMark(f"d{n}", "", "r"), 0, windows, MINUTE_MS) for n in (1, 2)]
    assert marks.enter(batch) == [MARKED, ABOVE]


def test_one_above_the_cap_leaves_no_mark_of_its_content(marks: Marks) -> None:
    marks.enter([passing("d1", receiver="r", most=1)])
    assert marks.enter([passing("d2", "c", "r", most=1)]) == [ABOVE]
    assert marks.enter([passing("d3", "c")]) == [MARKED]


def test_a_repeat_does_not_count_against_the_cap(marks: Marks) -> None:
    assert marks.enter([passing("d1", "c", "r"), passing("d2", "c", "r")]) == [MARKED, REPEAT]
    assert marks.enter([passing("d3", "x", "r"), passing("d4", "y", "r")]) == [MARKED, ABOVE]


def test_what_is_given_back_may_go_again(marks: Marks) -> None:
    marks.enter([passing("d1", "c", "r", most=1)])
    assert marks.returned(["d1", "d2"]) == [False, False]
    marks.give_back([Returned("d1", MINUTE_MS)])
    assert marks.returned(["d1", "d2"]) == [True, False]
    assert marks.enter([passing("d2", "c", "r", most=1)]) == [MARKED]


def test_nobody_gives_back_what_another_delivery_marked(marks: Marks) -> None:
    marks.enter([passing("d1", "c", "r", most=1)])
    marks.enter([passing("d2", "c", "r", most=1)])
    marks.give_back([Returned("d2", MINUTE_MS), Returned("d0", MINUTE_MS)])
    assert marks.enter([passing("d3", "c")]) == [REPEAT]
    assert marks.enter([passing("d3", receiver="r", most=1)]) == [ABOVE]


def test_one_that_is_marked_again_has_not_given_its_marks_back(marks: Marks) -> None:
    for _ in range(2):
        assert marks.enter([passing("d1", "c", "r")]) == [MARKED]
        assert marks.returned(["d1"]) == [False]
        marks.give_back([Returned("d1", MINUTE_MS)])
    assert marks.returned(["d1"]) == [True]
    assert marks.returned([]) == []


def test_what_may_go_later_counts_at_that_time(marks: Marks) -> None:
    later: dict[str, Any] = {"delay_ms": 3 * MINUTE_MS, "most": 1}
    assert marks.enter([passing("d1", receiver="r", **later)]) == [MARKED]
    assert marks.enter([passing("d2", receiver="r", most=1)]) == [MARKED], "now is another stretch"
    assert marks.enter([passing("d3", receiver="r", **later)]) == [ABOVE]
    near: dict[str, Any] = {"delay_ms": int(2.5 * MINUTE_MS), "most": 1}
    assert marks.enter([passing("d4", receiver="r", **near)]) == [ABOVE], "a minute holds both"


def test_in_memory_marks_end_with_their_time_and_the_oldest_is_forgotten_first() -> None:
    now = [100.0]
    marks = LocalMarks(lambda: now[0], at_most=2)
    assert marks.enter([passing("d1", "c", "r", most=1)]) == [MARKED]
    now[0] += MINUTE_MS / 1_000 + 0.001
    assert marks.enter([passing("d2", "c", "r", most=1)]) == [MARKED]
    assert marks.enter([passing(f"e{n}", f"c{n}", f"r{n}", most=1) for n in (1, 2)]) == [MARKED] * 2
    assert marks.enter([passing("d3", "c", "r", most=1)]) == [MARKED]


def test_on_redis_marks_end_with_their_time(redis_url: str) -> None:
    marks = RedisMarks(RedisSettings(url=redis_url, timeout_ms=5_000), "a")
    marks.enter([passing("d1", "c", "r", span_ms=5_000, content_ms=7_000, delay_ms=1_000)])
    with redis.Redis.from_url(redis_url) as raw:
        left = {key.decode().rpartition(":")[2]: raw.pttl(key) for key in raw.scan_iter()}
    assert 7_000 < left["c"] <= 8_000
    assert 7_000 < left["d1"] <= 8_000
    marks.give_back([Returned("d1", 3_000), Returned("unheard of", 3_000)])
    with redis.Redis.from_url(redis_url) as raw:
        after = {key.decode().rpartition(":")[2]: raw.pttl(key) for key in raw.scan_iter()}
    assert set(after) == {"d1", "unheard of"}
    assert 7_000 < after["d1"] <= 8_000, "for as long as somebody may remember the mark"
    assert 0 < after["unheard of"] <= 3_000
    assert 5_000 < left["r"] <= 6_000
    marks.close()


def test_of_many_threads_one_passes_with_a_content_and_as_many_as_the_cap(redis_url: str) -> None:
    every = [RedisMarks(RedisSettings(url=redis_url, timeout_ms=5_000), "a") for _ in "ab"]
    start = threading.Barrier(8)
    found: list[tuple[MarkResult, MarkResult]] = []

    def run(number: int, enter: Callable[..., list[MarkResult]]) -> None:
        start.wait()
        for turn in range(5):
            name = f"{number}-{turn}"
            one, two = enter([passing(name, "c"), passing(name, receiver="r", most=7)])
            found.append((one, two))

    threads = [threading.Thread(target=run, args=(n, every[n % 2].enter)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one for one, _ in found].count(MARKED) == 1
    assert [two for _, two in found].count(MARKED) == 7
    for marks in every:
        marks.close()
