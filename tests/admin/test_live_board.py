"""One reader for all watchers; a failure keeps the last value and says so."""

import asyncio
import threading
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest
from jinja2 import DictLoader, UndefinedError

from admin.live.board import LiveBoard
from admin.parts import ConsoleParts
from admin.web.view import AnyConnection, View, environment
from idempotency.ledger import LedgerUnavailable


def test_two_hundred_watchers_cost_no_more_reads_than_one() -> None:
    async def watch() -> int:
        go = threading.Event()
        count = 0

        def read() -> int:
            nonlocal count
            if count:
                go.wait(10)
            count += 1
            return count

        board = LiveBoard("trial", read, 0.01)
        first = await asyncio.to_thread(board.now)
        watchers = [asyncio.create_task(board.after(first.version, 10)) for _ in range(200)]
        await asyncio.sleep(0)
        go.set()
        values = await asyncio.gather(*watchers)
        board.stop()
        assert all(value and value.value >= 2 for value in values)
        return board.reads

    assert asyncio.run(watch()) < 20


def test_a_failure_keeps_the_last_value_with_its_reason() -> None:
    away = threading.Event()

    def read() -> str:
        if away.is_set():
            raise LedgerUnavailable("the server is away")
        return "good"

    async def watch() -> None:
        board = LiveBoard("trial", read, 0.01)
        first = await asyncio.to_thread(board.now)
        assert (first.value, first.stale_since_ms) == ("good", 0)
        away.set()
        value = first
        while not value.stale_since_ms:
            value = await board.after(value.version, 10) or value
        assert (value.value, value.reason) == ("good", "the server is away")
        away.clear()
        while value.stale_since_ms:
            value = await board.after(value.version, 10) or value
        board.stop()

    asyncio.run(watch())


def test_a_text_is_written_once_for_all_who_see_the_same_of_a_value() -> None:
    written: list[str] = []

    def write(text: str) -> str:
        written.append(text)
        return text

    board = LiveBoard("trial", lambda: len(written), 0.01)
    value = board.now()
    for seen in ("lin", "wei", "lin"):
        assert value.texts.of(seen, partial(write, seen)) == seen
    assert written == ["lin", "wei"]
    later = asyncio.run(board.after(value.version, 10))
    board.stop()
    assert later is not None
    assert later.texts.of("lin", partial(write, "new")) == "new"


@pytest.mark.parametrize("name", ["csrf", "nonce", "person", "theme", "path", "now_ms"])
def test_a_text_for_all_has_nothing_of_the_one_who_asked_first(
    parts: ConsoleParts, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = environment().overlay(loader=DictLoader({"part.html": f"{{{{ {name} }}}}"}))
    monkeypatch.setattr("admin.web.view.environment", lambda: templates)
    app = SimpleNamespace(state=SimpleNamespace(paths=frozenset()))
    asked = SimpleNamespace(
        app=app, scope={"path": "/", "state": {}, "user": None}, cookies={}, headers={}
    )
    view = View(cast(AnyConnection, asked), parts, None)
    view.written("part.html")
    with pytest.raises(UndefinedError, match=name):
        view.written_for_all("part.html")
