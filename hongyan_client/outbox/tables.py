"""The outbox's tables in the business's own database; SQLAlchemy Core, for any MetaData.

    <name>          one row a notification, from its decision to its end
    <name>_alerts   one row a parked notification, written in the transaction that parks it
    <name>_relays   one row a relay: its last sign of life and the backlog that it saw

On PostgreSQL the first is partitioned by the day of the insert. Its default partition takes rows for which
no partition was made. `next_at` is null for each row that nobody is to publish, so one index finds the due
ones whatever else is in the table.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    event,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles

from hongyan_client.mysql_tables import MYSQL_TABLE
from hongyan_client.outbox.partitions import first_partitions

DEFAULT_NAME: Final = "hongyan_outbox"
MAX_NAME: Final = 40
"""Letters of a name: PostgreSQL cuts identifiers at 63, and partitions and indexes add to it."""
_NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{MAX_NAME - 1}}}")

PENDING: Final = "PENDING"
SENDING: Final = "SENDING"
SENT: Final = "SENT"
PARKED: Final = "PARKED"
RECALLED: Final = "RECALLED"
STATES: Final = (PENDING, SENDING, SENT, PARKED, RECALLED)
TERMINAL: Final = (SENT, RECALLED)
"""States that a row never leaves."""
MAX_ERROR: Final = 500
"""Characters of an error that are kept."""

DIALECTS: Final = "hongyan_dialects"
"""In `Index.info`: the databases that have it; absent: all."""

_Id = BigInteger().with_variant(Integer(), "sqlite")
_Ascii = String(64).with_variant(
    mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb"
)
"""Ids differ in the case of letters, which MySQL's default collation ignores."""
_Payload = Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb")
"""UTF-8 text, as the envelope is: every driver writes it, and people can read it."""


class OutboxTables(NamedTuple):
    """The three tables of one outbox."""

    rows: Table
    alerts: Table
    relays: Table


class _DayKey(PrimaryKeyConstraint):
    """The key by which rows are known is `id`; a partitioned table's must hold the day as well."""

    __visit_name__ = "primary_key_constraint"


@compiles(_DayKey, "postgresql")
def _day_key(_key: _DayKey, _compiler: Any, **_options: Any) -> str:
    return "PRIMARY KEY (id, created_day)"


def outbox_tables(metadata: MetaData, name: str = DEFAULT_NAME) -> OutboxTables:
    """Returns the tables of that name, defined in `metadata` once. Raises ValueError for a name that is no
    plain lower-case identifier."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"outbox table {name!r}: write 1 to {MAX_NAME} lower-case letters, digits and underscores,"
            " a letter first"
        )
    if name in metadata.tables:
        tables = metadata.tables
        return OutboxTables(tables[name], tables[f"{name}_alerts"], tables[f"{name}_relays"])
    return OutboxTables(_rows(metadata, name), _alerts(metadata, name), _relays(metadata, name))


def _rows(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("id", _Id, autoincrement=True, nullable=False),
        Column("message_id", _Ascii, nullable=False),
        Column("topic", String(249), nullable=False),
        Column("msg_key", String(256), nullable=False),
        Column("key_hash", String(32)),  # of topic and ordering key; null: no order
        Column("headers", Text, nullable=False),
        Column("payload", _Payload, nullable=False),
        Column("state", String(8), nullable=False),
        Column("attempt", Integer, nullable=False, default=0),
        Column("max_attempts", Integer, nullable=False),
        Column("retry_base_ms", Integer, nullable=False),
        Column("retry_cap_ms", Integer, nullable=False),
        Column("maybe_sent", SmallInteger, nullable=False, default=0),
        Column("held", SmallInteger, nullable=False, default=0),
        Column("next_at", BigInteger),
        Column("send_at", BigInteger),
        Column("lease_owner", String(64)),
        Column("lease_token", BigInteger),
        Column("last_error", String(MAX_ERROR)),
        Column("created_at", BigInteger, nullable=False),
        Column("done_at", BigInteger),
        Column("created_day", Date, nullable=False),
        _DayKey("id"),
        postgresql_partition_by="RANGE (created_day)",
        sqlite_autoincrement=True,
        **MYSQL_TABLE,
    )
    _index(table)
    event.listen(table, "after_create", first_partitions)
    return table


def _index(table: Table) -> None:
    """Adds the indexes: partial where the database has partial ones."""
    name, c = table.name, table.c
    due = text("next_at IS NOT NULL")
    Index(f"{name}_due", c.next_at, c.id, postgresql_where=due, sqlite_where=due)
    keyed = text("key_hash IS NOT NULL AND state IN ('PENDING', 'SENDING', 'PARKED')")
    Index(f"{name}_key", c.key_hash, c.state, c.id, postgresql_where=keyed, sqlite_where=keyed)
    Index(f"{name}_message", c.message_id)
    parked = text("state = 'PARKED'")
    _only(Index(f"{name}_parked", c.id, postgresql_where=parked), "postgresql")
    _only(Index(f"{name}_done", c.state, c.done_at), "sqlite", "mysql", "mariadb")


def _only(index: Index, *dialects: Any) -> None:
    """Makes the index on these databases alone."""
    index.info[DIALECTS] = dialects
    index.ddl_if(dialect=cast(Any, dialects))  # it takes several; its type says one


def _alerts(metadata: MetaData, name: str) -> Table:
    return Table(
        f"{name}_alerts",
        metadata,
        Column("id", _Id, primary_key=True, autoincrement=True),
        Column("row_id", BigInteger, nullable=False),
        Column("message_id", _Ascii, nullable=False),
        Column("topic", String(249), nullable=False),
        Column("text", String(MAX_ERROR), nullable=False),
        Column("raised_at", BigInteger, nullable=False),
        Column("told_at", BigInteger),
        **MYSQL_TABLE,
    )


def _relays(metadata: MetaData, name: str) -> Table:
    return Table(
        f"{name}_relays",
        metadata,
        Column("name", String(64), primary_key=True),
        Column("host", String(255), nullable=False),
        Column("pid", Integer, nullable=False),
        Column("state", String(10), nullable=False),
        Column("started_at", BigInteger, nullable=False),
        Column("heartbeat_at", BigInteger, nullable=False),
        Column("published", BigInteger, nullable=False),
        Column("pending", BigInteger, nullable=False),
        Column("oldest_ms", BigInteger, nullable=False),
        Column("parked", BigInteger, nullable=False),
        **MYSQL_TABLE,
    )
