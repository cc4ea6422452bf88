"""A business's database on each of the three kinds, empty."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.harness.databases import fresh_database
from tests.services import Services


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def business_url(
    request: pytest.FixtureRequest, services: Services, tmp_path: Path
) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'business.db'}"
        return
    if request.param == "postgresql":
        services.require("postgres")
        with fresh_database(services.stack.database_url) as url:
            yield url
        return
    services.stack.start("mariadb")
    yield from _mariadb(services.stack.layout.mariadb_url)


def _mariadb(server_url: str) -> Iterator[str]:
    name = f"business_{secrets.token_hex(6)}"
    server: Any = sa.create_engine(server_url)
    with server.begin() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    try:
        yield server_url.rpartition("/")[0] + f"/{name}"
    finally:
        with server.begin() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}")
        server.dispose()


@pytest.fixture
def business(business_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(business_url)
    yield engine
    engine.dispose()
