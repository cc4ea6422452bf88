"""For the business's own Alembic: makes and drops the outbox, and keeps autogenerate away from it.

In a migration:

    from alembic import op
    from hongyan_client.outbox import migration as outbox

    def upgrade() -> None:
        outbox.upgrade(op)

    def downgrade() -> None:
        outbox.downgrade(op)

In env.py: `context.configure(…, include_object=outbox.include_object())`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.schema import CreateIndex, CreateTable

from hongyan_client.outbox.clock import POSTGRESQL
from hongyan_client.outbox.partitions import partition_statements
from hongyan_client.outbox.tables import DEFAULT_NAME, DIALECTS, outbox_tables

IncludeObject = Callable[[Any, str | None, str, bool, Any], bool]


def upgrade(op: Any, name: str = DEFAULT_NAME) -> None:
    """Makes the tables and their indexes; works offline (`--sql`) too. `op` is `alembic.op`."""
    dialect = op.get_context().dialect
    for table in outbox_tables(MetaData(), name):
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            if dialect.name in index.info.get(DIALECTS, (dialect.name,)):
                op.execute(CreateIndex(index))
    if dialect.name == POSTGRESQL:
        for statement in partition_statements(name, datetime.now(UTC).date()):
            op.execute(statement)


def downgrade(op: Any, name: str = DEFAULT_NAME) -> None:
    """Drops the tables, with notifications that have not gone."""
    for table in reversed(outbox_tables(MetaData(), name)):
        op.drop_table(table.name)


def include_object(name: str = DEFAULT_NAME, then: IncludeObject | None = None) -> IncludeObject:
    """Returns the filter for autogenerate: it leaves out the outbox, its partitions and its indexes, and
    asks `then` about the rest."""
    ours = re.compile(rf"{re.escape(name)}(_alerts|_relays|_default|_d\d{{8}})?\Z")

    def include(
        item: Any, item_name: str | None, kind: str, reflected: bool, compare_to: Any
    ) -> bool:
        table = (
            item_name if kind == "table" else getattr(getattr(item, "table", None), "name", None)
        )
        if table is not None and ours.match(table):
            return False
        return then is None or then(item, item_name, kind, reflected, compare_to)

    return include
