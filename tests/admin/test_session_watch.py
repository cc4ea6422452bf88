"""Sessions of watchers are asked for together, however many watch."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack

import pytest

from admin.access import Role
from admin.live.session_watch import EVERY_S, SessionWatch
from admin.parts import ConsoleParts
from idempotency.ledger import LedgerUnavailable


class Sessions:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[set[str]] = []
        self.over: set[str] = set()
        self.away = False

    def alive(self, tokens: Collection[str]) -> set[str]:
        self.asked.append(set(tokens))
        if self.away:
            raise LedgerUnavailable("away")
        return set(tokens) - self.over


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def watch(sessions: Sessions, clock: list[float]) -> SessionWatch:
    return SessionWatch(sessions.alive, monotonic=lambda: clock[0])


@pytest.fixture
def watching(watch: SessionWatch) -> Iterator[Callable[[str], None]]:
    with ExitStack() as stack:
        yield lambda token: stack.enter_context(watch.watching(token))


def all_go_on(watch: SessionWatch, tokens: Collection[str]) -> list[bool]:
    async def ask() -> list[bool]:
        return await asyncio.gather(*(watch.goes_on(token) for token in tokens))

    return asyncio.run(ask())


def test_two_hundred_watchers_ask_once_a_minute_as_one_does(
    watch: SessionWatch, watching: Callable[[str], None], sessions: Sessions, clock: list[float]
) -> None:
    tokens = [f"t{number}" for number in range(200)]
    for token in tokens:
        watching(token)
    assert all(all_go_on(watch, tokens))
    assert sessions.asked == []
    clock[0] += EVERY_S
    assert all(all_go_on(watch, tokens))
    assert sessions.asked == [set(tokens)]


def test_an_ended_session_is_noticed_and_the_others_go_on(
    watch: SessionWatch, watching: Callable[[str], None], sessions: Sessions, clock: list[float]
) -> None:
    watching("one")
    watching("two")
    sessions.over = {"two"}
    clock[0] += EVERY_S
    assert all_go_on(watch, ["one", "two"]) == [True, False]


def test_with_the_database_away_sessions_go_on(
    watch: SessionWatch, watching: Callable[[str], None], sessions: Sessions, clock: list[float]
) -> None:
    watching("one")
    sessions.away = True
    clock[0] += EVERY_S
    assert all_go_on(watch, ["one"]) == [True]


def test_who_left_is_not_asked_for(
    watch: SessionWatch, sessions: Sessions, clock: list[float]
) -> None:
    with watch.watching("one"), watch.watching("one"):
        pass
    clock[0] += EVERY_S
    assert all_go_on(watch, ["two"]) == [True]
    assert sessions.asked == [set()]


def test_of_many_tokens_those_are_alive_whose_session_goes_on(
    parts: ConsoleParts, user: Callable[..., int]
) -> None:
    number = user("lin", {Role.VIEWER: ("*",)})
    with parts.databases.primary.begin() as connection:
        tokens = [parts.people.sessions.begin(connection, number, "::1") for _ in range(3)]
    assert parts.people.sessions.alive([*tokens, "of nobody"]) == set(tokens)
    parts.people.sessions.end(tokens[0])
    assert parts.people.sessions.alive(tokens) == set(tokens[1:])
    with parts.databases.primary.begin() as connection:
        connection.exec_driver_sql("UPDATE console_users SET state = 'DISABLED'")
    assert parts.people.sessions.alive(tokens) == set()
    assert parts.people.sessions.alive([]) == set()
