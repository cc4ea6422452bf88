"""Bodies that are read slowly, or not to their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec
import pytest
import structlog

from producer.gateway.key_store import KeyMade
from producer.gateway.problems import GatewayProblem
from producer.gateway.request_bodies import KeyBodies
from tests.producer.gateway.conftest import NOTICE, OpenGateway, bearer

SEND = "/v1/notifications"
BODY = msgspec.json.encode(NOTICE)
ON_SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)


async def posted(client: httpx.AsyncClient, token: str, body: Any) -> httpx.Response:
    headers = bearer(token) | {"content-type": "application/json"}
    return await client.post(SEND, content=body, headers=headers)


@ON_SQLITE
def test_slow_bodies_of_one_key_keep_no_other_out(
    gateway: OpenGateway, make_key: Callable[..., KeyMade]
) -> None:
    """A body that waits for its last byte holds what it has; that of another key has room."""
    slow, other = make_key("slow").token, make_key("other").token
    gateway.app.state.bodies = KeyBodies(4 * len(BODY), len(BODY))

    async def ask() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield BODY[:-1]
            begun.set()
            await go.wait()
            yield BODY[-1:]

        transport = httpx.ASGITransport(gateway.app)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            first = asyncio.create_task(posted(client, slow, body()))
            await begun.wait()
            second = await posted(client, slow, BODY)
            assert (second.status_code, second.json()["code"]) == (429, "rate_limited")
            assert int(second.headers["retry-after"]) > 0
            assert (await posted(client, other, BODY)).status_code == 202
            go.set()
            assert (await first).status_code == 202
            assert (await posted(client, slow, BODY)).status_code == 202

    asyncio.run(ask())


def test_bodies_are_bounded_for_a_key_and_together() -> None:
    bodies = KeyBodies(10, 6)
    bodies.take("a", 6)
    with pytest.raises(GatewayProblem, match="of this key") as refused:
        bodies.take("a", 1)
    assert refused.value.status == 429
    with pytest.raises(GatewayProblem, match="too many bodies") as refused:
        bodies.take("b", 5)
    assert refused.value.status == 503
    bodies.take("b", 4)
    bodies.give_back("a", 6)
    bodies.take("a", 6)


def posted_raw(
    gateway: OpenGateway, token: str, messages: list[Any], *headers: tuple[bytes, bytes]
) -> list[Any]:
    """Returns what the application answers to a server's messages. A test client would join headers of one
    name, and never goes away."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": SEND,
        "raw_path": SEND.encode(),
        "query_string": b"",
        "headers": [(b"authorization", bearer(token)["Authorization"].encode()), *headers],
        "server": ("gateway", 80),
        "client": ("127.0.0.1", 1),
    }
    answers: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        answers.append(message)

    asyncio.run(gateway.app(scope, receive, send))  # type: ignore[arg-type]
    return answers


@ON_SQLITE
def test_a_client_that_goes_away_is_no_fault_of_ours(gateway: OpenGateway, token: str) -> None:
    messages = [
        {"type": "http.request", "body": BODY[:5], "more_body": True},
        {"type": "http.disconnect"},
    ]
    with structlog.testing.capture_logs() as logs:
        posted_raw(gateway, token, messages)
    assert [one["status"] for one in logs if one["event"] == "request"] == [499]
    assert not [one for one in logs if one["log_level"] == "error"]


@ON_SQLITE
def test_a_request_has_one_idempotency_key(gateway: OpenGateway, token: str) -> None:
    whole = {"type": "http.request", "body": BODY, "more_body": False}
    keys = [(b"idempotency-key", b"k1"), (b"idempotency-key", b"k2")]
    start, body = posted_raw(gateway, token, [whole], *keys)
    assert start["status"] == 400
    assert msgspec.json.decode(body["body"])["code"] == "bad_idempotency_key"
    start, _body = posted_raw(gateway, token, [whole], keys[0])
    assert start["status"] == 202
    assert len(gateway.publisher.records) == 1
