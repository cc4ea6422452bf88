"""Options of the client's tables on MySQL and MariaDB; SQLAlchemy's other dialects ignore them."""

from __future__ import annotations

from typing import Any, Final

MYSQL_TABLE: Final[dict[str, Any]] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"))
}
"""Whatever the database's defaults are: texts are any, and each write can be undone."""
