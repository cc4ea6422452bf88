from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator import Lists, Simulator
from tests.harness.simulators import spawn
from tests.idempotency.making import World
from tests.recovery.ground import Ground

MakeGround = Callable[..., Ground]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on PostgreSQL needs the stack, which it could not know from its arguments' names."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("url") == "postgresql" and "recovery" in item.nodeid:
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
    world.close()


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, lists=Lists(status_query=True)) as provider:
        yield provider


@pytest.fixture
def ground(url: str, provider: Simulator, tmp_path: Path) -> Iterator[MakeGround]:
    """`ground(**policy)` gives a ledger, a provider and recoveries."""
    made: list[Ground] = []

    def make(**options: Any) -> Ground:
        made.append(Ground(url, provider, tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
