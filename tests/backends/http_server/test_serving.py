"""A server of ours, from its address to its end."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from backends.http_server.serving import AddressTaken, bound, http_server, serve_until

KEY, EXAMPLE = "console.listen", "127.0.0.1:9480"
PATIENCE_S = 20
SHUTDOWN_S = 0.5
"""uvicorn looks ten times a second whether it shall end."""


def test_an_address_in_use_is_named_with_its_setting() -> None:
    with bound("127.0.0.1:0", KEY, EXAMPLE) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressTaken, match=f"console.listen: {address}: .*in use"):
            bound(address, KEY, EXAMPLE)


def stop_once(asked: threading.Event, stop: threading.Event) -> None:
    """Sets `stop` while a request is under way."""
    asked.wait(PATIENCE_S)
    stop.set()


def test_a_stop_runs_the_ending_first_and_answers_what_is_under_way() -> None:
    stop, asked, refused = threading.Event(), threading.Event(), threading.Event()
    serving: list[bool] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        asked.set()
        await asyncio.to_thread(refused.wait, PATIENCE_S)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    server = http_server(app, grace_s=PATIENCE_S, lifespan="off")
    with bound("127.0.0.1:0", KEY, EXAMPLE) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        answers: list[int] = []

        def ask() -> None:
            answers.append(httpx.get(url, timeout=PATIENCE_S, trust_env=False).status_code)

        client = threading.Thread(target=ask)
        client.start()
        stopper = threading.Thread(target=stop_once, args=(asked, stop))
        stopper.start()
        ended = threading.Timer(SHUTDOWN_S, refused.set)

        def ending() -> None:
            serving.append(not server.should_exit)
            ended.start()

        serve_until(stop, server, listener, ending)
        for thread in (client, stopper, ended):
            thread.join(PATIENCE_S)
    assert serving == [True]
    assert answers == [204]


def test_an_ending_that_fails_ends_the_server_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: failures.append(args.exc_value))
    stop, fault = threading.Event(), ValueError("a fault")

    def ending() -> None:
        raise fault

    async def app(_scope: Any, _receive: Any, _send: Any) -> None: ...

    server = http_server(app, grace_s=PATIENCE_S, lifespan="off")
    with bound("127.0.0.1:0", KEY, EXAMPLE) as listener:
        stop.set()
        serve_until(stop, server, listener, ending)
    assert failures == [fault]
