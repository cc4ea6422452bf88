"""A console on a fresh ledger, SQLite and PostgreSQL, and its people."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from litestar import Litestar
from litestar.testing import TestClient

from admin.access import Role
from admin.app import create_app, furnish
from admin.parts import ConsoleParts, open_parts
from admin.people import passwords
from backends.settings import ConsoleSettings, DatabaseSettings, Settings, TraceSettings
from tests.harness.databases import upgraded

PASSWORD = "correct horse battery"
SECRET = "a secret of the tests, long enough"


class Browser:
    """One person's browser: follows no redirect by itself, and sends the token of the last page."""

    def __init__(self, client: TestClient[Litestar]) -> None:
        self._client = client
        self.cookies = httpx.Cookies()

    @property
    def client(self) -> TestClient[Litestar]:
        """The one client of the test, with this browser's cookies."""
        self._client._cookies = self.cookies  # the setter would copy them
        return self._client

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, follow_redirects=False, **options)

    def post(self, path: str, page: str = "/account", **fields: str) -> httpx.Response:
        return self.raw(path, {"csrf": self.token(page), **fields})

    def raw(self, path: str, fields: dict[str, str], **options: Any) -> httpx.Response:
        return self.client.post(path, data=fields, follow_redirects=False, **options)

    def token(self, page: str = "/account") -> str:
        found = re.search(r'name="csrf" value="(\w+)"', self.get(page).text)
        return found[1] if found else ""

    def sign_in(self, name: str, password: str = PASSWORD, wanted: str = "/") -> httpx.Response:
        return self.post("/login", "/login", name=name, password=password, next=wanted)


_CONSOLES: list[Litestar] = []
"""Consoles that the tests of this process use one after the other: the routes take longer to make than most
tests take."""


def served_with(parts: ConsoleParts, place: int = 0) -> Litestar:
    """A console with these parts alone. A test that needs several at a time counts their places."""
    while len(_CONSOLES) <= place:
        _CONSOLES.append(create_app(parts))
    furnish(_CONSOLES[place], parts)
    return _CONSOLES[place]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on PostgreSQL needs the stack, which it could not know from its arguments' names."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("parts") == "postgres":
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)


@pytest.fixture(autouse=True)
def _quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords of tests are hashed at the least cost; each hash names its own."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_HASHER", quick)


@pytest.fixture(params=["sqlite", "postgres"])
def parts(request: pytest.FixtureRequest, sqlite_database: str) -> Iterator[ConsoleParts]:
    url = sqlite_database
    if request.param == "postgres":
        url = request.getfixturevalue("ledger_database")
    settings = Settings(
        database=DatabaseSettings(url=url),
        console=ConsoleSettings(secret=SECRET),
        trace=TraceSettings(kafka=False),  # there is none: each end would wait for it
    )
    if request.param == "sqlite":
        upgraded(settings)
    with ExitStack() as stack:
        yield open_parts(settings, stack)


@pytest.fixture
def user(parts: ConsoleParts) -> Callable[..., int]:
    """Adds a user with roles."""

    def add(name: str, roles: dict[Role, tuple[str, ...]]) -> int:
        with parts.databases.primary.begin() as connection:
            number = parts.people.users.add(connection, name, by="test", password=PASSWORD)
            parts.people.users.set_roles(connection, number, roles)
        return number

    return add


@pytest.fixture
def app(parts: ConsoleParts) -> Litestar:
    return served_with(parts)


@pytest.fixture
def browser(app: Litestar) -> Iterator[Callable[[], Browser]]:
    """Opens browsers; the first one starts the console."""
    with TestClient(app) as client:
        yield lambda: Browser(client)
