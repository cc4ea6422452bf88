"""Both databases, and a fresh interpreter to see what an import drags in."""

import subprocess
import sys
from collections.abc import Callable

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on PostgreSQL needs the stack, which it could not know from its arguments' names."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("trace_url") == "postgresql":
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)


@pytest.fixture(params=["sqlite", "postgresql"])
def trace_url(request: pytest.FixtureRequest) -> str:
    name = "sqlite_database" if request.param == "sqlite" else "ledger_database"
    return str(request.getfixturevalue(name))


@pytest.fixture
def run_python() -> Callable[[str], str]:
    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    return run
