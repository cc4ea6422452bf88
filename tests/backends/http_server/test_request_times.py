"""The middleware tells route, status and time of each answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backends.http_server.request_times import RequestTimes, route_of

START = {"type": "http.response.start", "status": 201, "headers": [(b"a", b"1")]}


def run(app: Any, scope: dict[str, Any], **options: Any) -> tuple[list[Any], list[Any]]:
    """Returns the messages sent, and the answers told: status and seconds."""
    sent: list[Any] = []
    told: list[Any] = []
    clock = iter((1.0, 1.25))

    async def send(message: Any) -> None:
        sent.append(message)

    timed = RequestTimes(
        app,
        lambda _scope, status, took_s: told.append((status, took_s)),
        monotonic=lambda: next(clock),
        **options,
    )
    try:
        asyncio.run(timed(scope, None, send))
    except ValueError as exc:
        sent.append(str(exc))
    return sent, told


async def answering(_scope: Any, _receive: Any, send: Any) -> None:
    await send(dict(START))


async def failing(_scope: Any, _receive: Any, _send: Any) -> None:
    raise ValueError("a fault")


def test_an_answer_has_its_status_time_and_the_headers_beside_its_own() -> None:
    sent, told = run(answering, {"type": "http"}, headers=[(b"b", b"2")])
    assert told == [(201, 0.25)]
    assert sent[0]["headers"] == [(b"a", b"1"), (b"b", b"2")]


def test_a_fault_is_told_as_500_and_goes_on() -> None:
    assert run(failing, {"type": "http"}) == (["a fault"], [(500, 0.25)])


def test_what_is_no_request_passes_untold() -> None:
    assert run(answering, {"type": "lifespan"}, headers=[(b"b", b"2")]) == ([START], [])


@pytest.mark.parametrize(
    ("scope", "route"),
    [
        ({"method": "GET", "path_template": "/a/{id}"}, "GET /a/{id}"),
        ({"method": "BREW", "path_template": "/a/{id}"}, "none"),
        ({"method": "GET"}, "none"),
    ],
)
def test_a_route_is_its_template(scope: dict[str, str], route: str) -> None:
    assert route_of(scope) == route
