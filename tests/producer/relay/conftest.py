from collections.abc import Iterator
from secrets import token_hex

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from hongyan_client.outbox.engine import outbox_engine
from hongyan_client.outbox.store import OutboxStore
from tests.hongyan_client.outbox.conftest import (
    place,
    postgres_place,
    pytest_collection_modifyitems,
    sqlite_place,
)
from tests.hongyan_client.outbox.places import OutboxPlace

__all__ = ["place", "postgres_place", "pytest_collection_modifyitems", "sqlite_place"]


@pytest.fixture
def plain_store(postgres_place: OutboxPlace) -> Iterator[OutboxStore]:
    """The outbox, for a user that owns none of its tables and may read and write them."""
    role, mine = f"plain_{token_hex(4)}", postgres_place.engine
    tables = "hongyan_outbox, hongyan_outbox_alerts, hongyan_outbox_relays"
    with mine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role} NOLOGIN"))
        connection.execute(text(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}"))
        connection.execute(text(f"GRANT USAGE ON SEQUENCE hongyan_outbox_alerts_id_seq TO {role}"))
    url = make_url(postgres_place.url).update_query_dict({"options": f"-c role={role}"})
    engine = outbox_engine(url)
    yield OutboxStore(engine)
    engine.dispose()
    with mine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))
