"""The same outbox on SQLite, PostgreSQL and MariaDB; `place` runs a test once on each."""

from collections.abc import Iterator

import pytest

from tests.hongyan_client.outbox.places import KINDS, OutboxPlace, opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Adds the stack to tests on a server, which their arguments' names do not tell."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and _kind(callspec.params) in ("postgres", "mariadb"):
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)


def _kind(params: dict[str, object]) -> object:
    return params.get("place", params.get("place_url"))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Iterator[OutboxPlace]:
    with opened(request.getfixturevalue(KINDS[request.param])) as made:
        yield made


@pytest.fixture
def postgres_place(database: str) -> Iterator[OutboxPlace]:
    with opened(database) as made:
        yield made


@pytest.fixture
def sqlite_place(sqlite_database: str) -> Iterator[OutboxPlace]:
    with opened(sqlite_database) as made:
        yield made
