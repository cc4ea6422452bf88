from collections.abc import Iterator

import pytest

from tests.harness.databases import fresh_ledger
from tests.idempotency.making import World, stand_still
from tests.lookback.making import Ground

TABLES = ("lookback_transactions", "alerts", "duties")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on PostgreSQL needs the stack, which it could not know from its arguments' names."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("kind") == "postgresql" and "lookback" in item.nodeid:
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A migrated database with a clock that stands still, one for the module."""
    if kind == "sqlite":
        world = World(f"sqlite:///{tmp_path_factory.mktemp('lookback') / 'hongyan.db'}")
        yield world
        world.close()
        return
    services = request.getfixturevalue("services")
    services.require("postgres")
    with fresh_ledger(services.stack.database_url, stand_still) as url:
        world = World(url)
        yield world
        world.close()


@pytest.fixture
def world(shared: World) -> World:
    """The shared database, empty."""
    _ = shared.first
    for table in TABLES:
        shared.rows_changed(f"DELETE FROM {table}")
    return shared


@pytest.fixture
def ground(world: World) -> Ground:
    return Ground(world)
