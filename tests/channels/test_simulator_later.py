"""Calls behind one timer: each when it is due, in order, whatever another one raises."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from simulator.delayed_replies import DelayQueue

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
PATIENCE_S = 10.0


@pytest.mark.parametrize("new_loop", LOOPS)
def test_calls_come_in_the_order_in_which_they_are_due_and_not_before(new_loop: Any) -> None:
    async def run() -> list[tuple[str, bool]]:
        loop = asyncio.get_running_loop()
        later, over = DelayQueue(loop), asyncio.Event()
        called: list[tuple[str, bool]] = []
        begun = loop.time()

        def put(name: str, after_s: float) -> None:
            due = begun + after_s
            later.at(due, lambda: called.append((name, loop.time() >= due - 0.001)))

        put("at once", -1.0)
        put("third", 1.1)  # so late that no machine is too slow to put the others in time
        put("second", 0.8)
        put("first", 0.5)
        put("after third", 1.1)
        later.at(begun + 1.2, over.set)
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        return called

    with asyncio.Runner(loop_factory=new_loop) as runner:
        called = runner.run(run())
    assert [name for name, _ in called] == ["at once", "first", "second", "third", "after third"]
    assert all(in_time for _, in_time in called)


def test_one_that_raises_is_told_of_and_holds_up_nobody() -> None:
    async def run() -> list[BaseException]:
        loop = asyncio.get_running_loop()
        later, over = DelayQueue(loop), asyncio.Event()
        told: list[BaseException] = []
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        due = loop.time() + 0.01
        later.at(due, lambda: int("no number"))  # type: ignore[arg-type]
        later.at(due, over.set)
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        return told

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        (told,) = runner.run(run())
    assert isinstance(told, ValueError)
