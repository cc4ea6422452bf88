"""Worker numbers of snowflake ids: leases and high-water marks (docs/ids.md)."""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0030"
branch_labels = None
depends_on = None

# Times are epoch milliseconds by the database's clock.
_TABLE = """
CREATE TABLE id_workers (
    number  INTEGER PRIMARY KEY,
    -- Host and process of the last holder, for people.
    holder  TEXT    NOT NULL,
    token   BIGINT  NOT NULL,
    until   BIGINT  NOT NULL,
    -- No holder issued an id of this time or a later one.
    mark    BIGINT  NOT NULL
)"""
_ROWS = """
INSERT INTO id_workers (number, holder, token, until, mark)
WITH RECURSIVE numbers (number) AS (
    SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 1023
)
SELECT number, '', 0, 0, 0 FROM numbers"""


def upgrade() -> None:
    """A table of 1,024 rows, one for each number that the format has."""
    for statement in (_TABLE, _ROWS):
        op.get_bind().exec_driver_sql(statement)
