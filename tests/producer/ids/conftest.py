from collections.abc import Iterator

import pytest

from tests.idempotency.making import World
from tests.producer.ids.making import closed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        callspec = getattr(item, "callspec", None)
        if (
            callspec
            and callspec.params.get("url") == "postgresql"
            and "producer/ids" in item.nodeid
        ):
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
def world(url: str) -> Iterator[World]:
    """A migrated database with a clock that stands still, on each of the ledger's databases."""
    world = World(url)
    yield world
    closed(world)
