"""The statements of `lookback.store`, the same on both databases but for how rows are locked."""

# ruff: noqa: S608 - the names of columns and tables are ours

from __future__ import annotations

from typing import Final

from sqlalchemy import TextClause, bindparam, text

from lookback.transaction import TxRow

_COLUMNS: Final = TxRow.__struct_fields__
_LIGHT: Final = tuple(name for name in _COLUMNS if name != "body")
"""Columns that are read where no body is needed."""
LIGHT: Final = ", ".join(_LIGHT)
FULL: Final = ", ".join(_COLUMNS)
_TABLE: Final = "lookback_transactions"

INSERT: Final = text(
    f"INSERT INTO {_TABLE} ({FULL}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"
    " ON CONFLICT DO NOTHING"
)
_SET: Final = ", ".join(
    f"{name} = :{name}" for name in _LIGHT if name not in ("tx_id", "day", "version")
)
_COMPARED: Final = "WHERE tx_id = :tx_id AND day = :day AND version = :version"
UPDATE: Final = text(f"UPDATE {_TABLE} SET {_SET}, version = version + 1 {_COMPARED}")
UPDATE_BODY: Final = text(
    f"UPDATE {_TABLE} SET {_SET}, body = :body, version = version + 1 {_COMPARED}"
)
_NAMED: Final = f"""
SELECT {{columns}} FROM {_TABLE}
 WHERE tx_id IN :names AND day IN :days ORDER BY tx_id"""
_TO_CHECK: Final = f"""
SELECT {LIGHT} FROM {_TABLE}
 WHERE state IN ('PREPARED', 'CHECKING') AND biz_type = :biz_type AND next_at <= :now
 ORDER BY next_at LIMIT :limit"""
_TO_FORWARD: Final = f"""
SELECT {LIGHT}, length(body) AS size FROM {_TABLE}
 WHERE state = 'COMMITTED' AND next_at <= :now AND topic NOT IN :without
 ORDER BY next_at LIMIT :limit"""
BODIES: Final = text(f"""
SELECT tx_id, body FROM {_TABLE} WHERE tx_id IN :names AND day IN :days""").bindparams(
    bindparam("names", expanding=True), bindparam("days", expanding=True)
)
_EARLY: Final = f"""
SELECT {LIGHT} FROM {_TABLE}
 WHERE state IN ('EARLY_COMMIT', 'EARLY_ROLLBACK') AND next_at <= :now
 ORDER BY next_at LIMIT :limit"""
UNRESOLVED: Final = text(f"""
SELECT {LIGHT} FROM {_TABLE}
 WHERE state = 'UNRESOLVED' AND tx_id > :after AND (:biz_type = '' OR biz_type = :biz_type)
 ORDER BY tx_id LIMIT :limit""")
COUNTS: Final = text(f"""
SELECT biz_type, count(*) AS rows FROM {_TABLE} WHERE state = 'UNRESOLVED' GROUP BY biz_type""")
FIND: Final = text(f"""
SELECT {LIGHT} FROM {_TABLE} WHERE tx_id = :name AND day = :day
 UNION ALL
SELECT {LIGHT} FROM {_TABLE} WHERE biz_id = :name AND tx_id <> :name
 ORDER BY tx_id DESC LIMIT :limit""")
OLDEST_COMMITTED: Final = text(f"""
SELECT decided_at FROM {_TABLE} WHERE state = 'COMMITTED' ORDER BY next_at LIMIT :limit""")
_NEXT_KIND: Final = f"""
SELECT biz_type FROM {_TABLE}
 WHERE state IN ('PREPARED', 'CHECKING') AND biz_type > {{above}} ORDER BY biz_type LIMIT 1"""
# One look into an index for each kind: DISTINCT reads every open row.
KINDS: Final = text(f"""
WITH RECURSIVE kinds (biz_type) AS (
    SELECT ({_NEXT_KIND.format(above="''")})
    UNION ALL
    SELECT ({_NEXT_KIND.format(above="kinds.biz_type")}) FROM kinds WHERE kinds.biz_type IS NOT NULL)
SELECT biz_type FROM kinds WHERE biz_type IS NOT NULL""")


def named(lock: str) -> TextClause:
    """Returns the query for rows by tx_id and day, locked in order."""
    statement = text(_NAMED.format(columns=LIGHT) + lock)
    return statement.bindparams(
        bindparam("names", expanding=True), bindparam("days", expanding=True)
    )


def to_check(lock: str) -> TextClause:
    """Returns the query for the due rows of a kind, the longest due first."""
    return text(_TO_CHECK + lock)


def to_forward(lock: str) -> TextClause:
    """Returns the query for committed messages that are due, with the bytes of their bodies."""
    return text(_TO_FORWARD + lock).bindparams(bindparam("without", expanding=True))


def early(lock: str) -> TextClause:
    """Returns the query for decisions whose prepare did not come in time."""
    return text(_EARLY + lock)
