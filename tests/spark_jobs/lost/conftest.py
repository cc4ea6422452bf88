from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark_jobs.lost.rows import LedgerRows, ledger_rows


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests on PostgreSQL as needing the stack: their arguments' names do not say so."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and callspec.params.get("rows") == "postgresql" and "lost" in item.nodeid:
            item.fixturenames.append("services")  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.stack)


@pytest.fixture(params=["sqlite", "postgresql"])
def rows(request: pytest.FixtureRequest) -> Iterator[LedgerRows]:
    name = "sqlite_database" if request.param == "sqlite" else "ledger_database"
    with ledger_rows(str(request.getfixturevalue(name))) as rows:
        yield rows


@pytest.fixture
def postgres(ledger_database: str) -> Iterator[LedgerRows]:
    with ledger_rows(ledger_database) as rows:
        yield rows
