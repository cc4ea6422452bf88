"""The tables of a spool file."""

from __future__ import annotations

from typing import Final

VERSION: Final = 1
STATEMENTS: Final = (
    # `line` is the same for all records of a topic and key; `id` is their order.
    # `parked`: 0 waits, 1 does not go by itself.
    """CREATE TABLE records (
        id         INTEGER PRIMARY KEY AUTOINCREMENT,
        line       BLOB    NOT NULL,
        topic      TEXT    NOT NULL,
        key        BLOB,
        value      BLOB    NOT NULL,
        headers    BLOB    NOT NULL,
        kept_at    INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        checksum   INTEGER NOT NULL,
        parked     INTEGER NOT NULL DEFAULT 0,
        attempts   INTEGER NOT NULL DEFAULT 0,
        last_error TEXT    NOT NULL DEFAULT ''
    )""",
    "CREATE INDEX records_line ON records (line, id) WHERE parked = 0",
    "CREATE INDEX records_expiry ON records (expires_at)",
    # Records that left without reaching Kafka, without their contents.
    """CREATE TABLE ended (
        id         INTEGER PRIMARY KEY,
        topic      TEXT    NOT NULL,
        message_id TEXT    NOT NULL,
        receivers  TEXT    NOT NULL,
        reason     TEXT    NOT NULL,
        attempts   INTEGER NOT NULL,
        last_error TEXT    NOT NULL,
        kept_at    INTEGER NOT NULL,
        ended_at   INTEGER NOT NULL
    )""",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {VERSION}",
)
COLUMNS: Final = (
    "id, line, topic, key, value, headers, kept_at, expires_at, checksum, parked, "
    "attempts, last_error"
)
"""The columns of records, in the order of `rows.SpooledRow`."""
