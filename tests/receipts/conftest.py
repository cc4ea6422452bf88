from collections.abc import Iterator

import pytest

from idempotency.sql_ledger import SqlLedger
from tests.idempotency.making import World


@pytest.fixture
def world(sqlite_database: str) -> Iterator[World]:
    world = World(sqlite_database)
    yield world
    world.close()


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    return world.open()
