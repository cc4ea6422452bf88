"""The database's clock in SQL expressions, one spelling for each database.

Times are epoch milliseconds and days are UTC. PostgreSQL's `now()` is the start of the transaction, which
may be long ago, so the expressions take the statement's time.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Date
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

POSTGRESQL: Final = "postgresql"
SQLITE: Final = "sqlite"

NOW_MS: Final = {
    POSTGRESQL: "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)",
    SQLITE: "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "mysql": "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
}
"""SQL of the time by dialect. MySQL's is of UTC: a session's time zone repeats an hour every autumn."""
_TODAY: Final = {
    POSTGRESQL: "CAST(statement_timestamp() AT TIME ZONE 'utc' AS date)",
    SQLITE: "date('now')",
    "mysql": "UTC_DATE()",
}


def spelling(dialect: str) -> str:
    """Returns the name under which the tables of this module know a dialect."""
    return "mysql" if dialect == "mariadb" else dialect


class DatabaseMillis(FunctionElement[int]):
    """The database's time in epoch milliseconds."""

    type = BigInteger()
    inherit_cache = True


class DatabaseDay(FunctionElement[Any]):
    """The database's date, UTC."""

    type = Date()
    inherit_cache = True


@compiles(DatabaseMillis)
def _millis(_element: DatabaseMillis, compiler: Any, **_options: Any) -> str:
    return NOW_MS[spelling(compiler.dialect.name)]


@compiles(DatabaseDay)
def _day(_element: DatabaseDay, compiler: Any, **_options: Any) -> str:
    return _TODAY[spelling(compiler.dialect.name)]
