from tests.hongyan_client.outbox.conftest import (
    place,
    postgres_place,
    pytest_collection_modifyitems,
    sqlite_place,
)

__all__ = ["place", "postgres_place", "pytest_collection_modifyitems", "sqlite_place"]
