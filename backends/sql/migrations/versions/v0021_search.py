"""Columns, indexes and a table for searches (docs/search.md)."""

from __future__ import annotations

from alembic import op

from backends.sql.online_indexes import create_now

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_COLUMNS = (
    # Keyed hash of the receiver (message/receiver_hash.py), 32 bytes; NULL without `outcomes.hash_key`.
    "receiver_hash {bytes}",
    # Name of the template as it may be shown; NULL for inline content.
    "template {text}",
)
# Days in the archive take rows of the live table that strayed: their columns must be the same.
_ARCHIVED = """
SELECT c.relname FROM pg_class AS c
 WHERE c.relnamespace = to_regnamespace('archive') AND c.relkind = 'r'
   AND c.relname LIKE 'deliveries\\_%%'"""
# Times are epoch milliseconds by the database's clock.
_TABLES = (
    # Searches that a person keeps under a name.
    """CREATE TABLE console_views (
        id         {number},
        owner      {text}  NOT NULL,
        name       {text}  NOT NULL,
        query      TEXT    NOT NULL,
        -- 1: everybody sees it.
        shared     SMALLINT NOT NULL DEFAULT 0,
        made_at    BIGINT  NOT NULL,
        updated_at BIGINT  NOT NULL,
        UNIQUE (owner, name)
    )""",
)
# Columns are only ever added, at the end.
_VIEW = """
CREATE VIEW hongyan_deliveries AS
SELECT delivery_key, message_id, biz_id,
       {channel} AS channel, {kind} AS kind,
       lane, state, reason, attempt, owner, provider_id,
       created_at, updated_at, next_at, expires_at, policy_version, resend_of, account, refusals,
       template
  FROM deliveries"""
_PARTS = {
    True: {"channel": "split_part(lane, '.', 1)", "kind": "split_part(lane, '.', 2)"},
    False: {
        "channel": "substr(lane, 1, instr(lane, '.') - 1)",
        "kind": "substr(lane, instr(lane, '.') + 1)",
    },
}
_LOCK = ("SET LOCAL statement_timeout = 1000", "LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE")


def upgrade() -> None:
    """A small table first. Then two columns without a default, which rewrite no row: claims wait for no
    longer than the lock is waited for (a second) and the catalogue is written."""
    is_postgres = op.get_context().dialect.name == "postgresql"
    run, tables = op.get_bind().exec_driver_sql, ["deliveries"]
    names = {
        "text": 'TEXT COLLATE "C"' if is_postgres else "TEXT",
        "bytes": "BYTEA" if is_postgres else "BLOB",
        "number": (
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
            if is_postgres
            else "INTEGER PRIMARY KEY"
        ),
    }
    for statement in _TABLES:
        run(statement.format(**names))
    view = _VIEW.format(**_PARTS[is_postgres])
    if is_postgres:
        tables += [f'archive."{name}"' for (name,) in run(_ARCHIVED)]
        before = run("SHOW statement_timeout").scalar_one()
        for statement in _LOCK:
            run(statement)
        run(f"SET LOCAL statement_timeout = '{before}'")
    empty = not run("SELECT EXISTS (SELECT 1 FROM deliveries)").scalar_one()
    for table in tables:
        for column in _COLUMNS:
            run(f"ALTER TABLE {table} ADD COLUMN {column.format(**names)}")
    if is_postgres:  # rights that were granted on the view stay
        run(view.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
    else:
        run("DROP VIEW hongyan_deliveries")
        run(view)
    if empty or not is_postgres:
        create_now(run, "0021", is_postgres=is_postgres)
