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


def test_an_address_in_use_is_named_with_its_setting() -> None:
    with bound("127.0.0.1:0", KEY, EXAMPLE) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressTaken, match=f"console.listen: {address}: .*in use"):
            bound(address, KEY, EXAMPLE)


def stop_once(asked: threading.Event, stop: threading.Event) -> None:
    """Sets `stop` while a request is under way."""
    asked.wait(PATIENCE_S)
    stop.set()


def test_a_stop_runs_the_ending_and_answers_what_is_under_way() -> None:
    stop, asked, ending = threading.Event(), threading.Event(), threading.Event()

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        asked.set()
        await asyncio.to_thread(ending.wait, PATIENCE_S)
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
        serve_until(stop, server, listener, ending.set)
        client.join(PATIENCE_S)
        stopper.join(PATIENCE_S)
    assert ending.is_set()
    assert answers == [204]
