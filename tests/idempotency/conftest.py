from collections.abc import Iterator

import pytest

from idempotency.sql_ledger import SqlLedger
from tests.idempotency.making import World


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on PostgreSQL needs the stack, which it could not know from its arguments' names."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("url") == "postgresql" and "idempotency" in item.nodeid:
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        name = "sqlite_database"
    else:
        name = "still_database" if "world" in request.fixturenames else "ledger_database"
    return str(request.getfixturevalue(name))


@pytest.fixture
def empty_url(url: str, request: pytest.FixtureRequest) -> str:
    """The URL of a database of the same kind with no ledger in it yet."""
    return url if url.startswith("sqlite") else str(request.getfixturevalue("database"))


@pytest.fixture
def world(url: str) -> Iterator[World]:
    """A migrated database with a clock that stands still, on each of the ledger's databases."""
    world = World(url)
    yield world
    world.close()


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    return world.open()


@pytest.fixture
def postgres(still_database: str) -> Iterator[World]:
    world = World(still_database)
    yield world
    world.close()
