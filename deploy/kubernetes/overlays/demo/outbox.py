"""Makes the outbox in the demo's database, as a business's own migration does (docs/outbox.md)."""

import os
from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import inspect

from hongyan_client.outbox import migration
from hongyan_client.outbox.engine import outbox_engine

url = Path(os.environ["HONGYAN_RELAY__OUTBOX_URL_FILE"]).read_text("utf-8").strip()
with outbox_engine(url).begin() as connection:
    if not inspect(connection).has_table("hongyan_outbox"):
        migration.upgrade(Operations(MigrationContext.configure(connection)))
