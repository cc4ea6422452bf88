"""A gateway over a fresh ledger, SQLite and PostgreSQL, with a publisher that answers as told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from litestar.testing import TestClient

from backends.settings import DatabaseSettings, GatewaySettings, Settings, TraceSettings
from hongyan_client.errors import SendInDoubt
from hongyan_client.records import Acknowledged, Record
from idempotency.sql_ledger import clock_of
from producer.gateway.api_keys import terms_of
from producer.gateway.endpoint import GatewayEndpoint
from producer.gateway.http_app import build_gateway
from producer.gateway.key_store import KeyMade, KeyStore
from producer.gateway.wiring import open_gateway
from tests.harness.databases import upgraded

NOTICE = {
    "channel": "webhook",
    "kind": "notice",
    "receivers": ["r1"],
    "content": {"text": "hello"},
}


class MemoryPublisher:
    """Acknowledges at once; raises or fails with `failure` while there is one."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.failure: Exception | None = None
        self.refusal: Exception | None = None
        self.before: Callable[[], None] = lambda: None
        self.unsafe: set[int] = set()
        """Numbers of records, from 1, that fail."""

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        self.before()
        if self.refusal is not None:
            raise self.refusal
        future: Future[Acknowledged] = Future()
        self.records.append(record)
        if self.failure is not None:
            future.set_exception(self.failure)
        elif len(self.records) in self.unsafe:
            future.set_exception(SendInDoubt("?", "msg_timed_out"))
        else:
            future.set_result(Acknowledged(record.topic, 0, len(self.records), 1))
        return future


class OpenGateway:
    """The application and what is behind it."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self.publisher = MemoryPublisher()
        opened = open_gateway(settings, stack, self.publisher)
        self.endpoint: GatewayEndpoint = opened.endpoint
        self.ring = opened.ring
        self.app = build_gateway(self.endpoint)
        self.client = stack.enter_context(TestClient(self.app, raise_server_exceptions=False))

    def post(self, token: str, path: str, body: Any, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path, json=body, headers=bearer(token) | named)

    def send(self, token: str, body: Any = NOTICE, **headers: str) -> httpx.Response:
        return self.post(token, "/v1/notifications", body, **headers)

    def get(self, token: str, path: str, **params: str) -> httpx.Response:
        return self.client.get(path, params=params, headers=bearer(token))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on PostgreSQL needs the stack, which it could not know from its arguments' names."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("settings") == "postgres":
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request: pytest.FixtureRequest, sqlite_database: str) -> Settings:
    url = sqlite_database
    if request.param == "postgres":
        url = request.getfixturevalue("ledger_database")
    settings = Settings(
        database=DatabaseSettings(url=url),
        trace=TraceSettings(kafka=False, database=False),
        gateway=GatewaySettings(listen="127.0.0.1:0", health_address="127.0.0.1:0"),
    )
    if request.param == "sqlite":
        upgraded(settings)
    return settings


@pytest.fixture
def gateway(settings: Settings) -> Iterator[OpenGateway]:
    with ExitStack() as stack:
        yield OpenGateway(settings, stack)


@pytest.fixture
def keys(gateway: OpenGateway) -> KeyStore:
    database = gateway.endpoint.parts.stories._database
    return KeyStore(database, clock_of(database))


@pytest.fixture
def make_key(gateway: OpenGateway, keys: KeyStore) -> Callable[..., KeyMade]:
    """Makes a key that the gateway knows."""

    def make(
        name: str = "shop",
        scopes: tuple[str, ...] = ("send", "recall", "read"),
        lanes: tuple[str, ...] = (),
        rate_per_s: float = 1e5,
        burst: int = 100_000,
        life_ms: int | None = None,
    ) -> KeyMade:
        with keys.database.begin() as connection:
            terms = terms_of(scopes, lanes, rate_per_s, burst)
            made = keys.add(connection, name, terms, by="test", life_ms=life_ms)
        gateway.ring.look()
        return made

    return make


@pytest.fixture
def token(make_key: Callable[..., KeyMade]) -> str:
    return make_key().token
