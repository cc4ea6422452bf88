"""Seam between the program and a Spark job: the context that a job gets, the result that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backends.settings import Settings, SettingsError
from backends.sql.database import Database, database_url
from hongyan.spark.kafka_options import kafka_options
from spark_jobs.config import JdbcLogin, JobConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlalchemy import URL, Connection

    from spark_jobs.positions import Positions
    from spark_jobs.warehouse import Warehouse

_POSTGRES, _SQLITE = "org.postgresql.Driver", "org.sqlite.JDBC"
_POSTGRES_PORT: Final = 5432
_OPTIONS: Final = {
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connect_timeout": "connectTimeout",
    "application_name": "ApplicationName",
    "options": "options",
    "target_session_attrs": "targetServerType",
}
"""Options of libpq to those of the JDBC driver."""
ANSWER_S: Final = 900
"""Longest wait for bytes of the server; a count of the whole ledger takes less. Without a limit a job waits
for ever if the server is frozen or its host is gone."""
_PATIENCE: Final = {
    "connectTimeout": "10",
    "socketTimeout": str(ANSWER_S),
    "tcpKeepAlive": "true",
}
"""Options of the JDBC driver, where the URL names no other value."""
_VALUES: Final = {
    "target_session_attrs": {
        "any": "any",
        "read-write": "primary",
        "primary": "primary",
        "read-only": "secondary",
        "standby": "secondary",
        "prefer-standby": "preferSecondary",
    }
}
"""Values of libpq's options that the JDBC driver spells in another way."""


@dataclass(frozen=True)
class JobContext:
    """One run of one job."""

    settings: Settings
    config: JobConfig
    spark: SparkSession
    warehouse: Warehouse
    run_id: int
    positions: Positions
    """Taken before the ingest of this cycle."""
    database: Database
    """The ledger's database; never the replica."""
    positions_now: Callable[[], Positions]
    """Asks Kafka again."""


@dataclass(frozen=True)
class JobResult:
    """Result of a run."""

    figures: Mapping[str, Any]
    """For `spark_runs.figures` and `hongyan spark runs`."""
    watermark: int | None = None
    also: Callable[[Connection], None] | None = None
    """Writes what the run makes valid, in the transaction that ends it."""
    problems: int = field(default=0)
    """Above 0: the command exits 1."""


def job_config(settings: Settings) -> JobConfig:
    """Returns a job's surroundings. Raises SettingsError."""
    ledger = settings.spark.ledger_url or settings.database.url
    key = "spark.ledger_url" if settings.spark.ledger_url else "database.url"
    return JobConfig(
        warehouse=warehouse_root(settings),
        topic_prefix=settings.kafka.topic_prefix,
        kafka=kafka_options(settings.kafka),
        ledger=jdbc_login(ledger, settings.base, key),
        connections=settings.spark.connections,
        payload_key=settings.database.payload_key,
        hash_key=settings.outcomes.hash_key,
        open_days=settings.spark.open_days,
    )


def warehouse_root(settings: Settings) -> str:
    """Returns the warehouse as an absolute path or a URL."""
    place = settings.spark.warehouse
    return place if "://" in place else str((Path(settings.base) / place).resolve())


def jdbc_login(url: str, base: str, key: str) -> JdbcLogin:
    """Returns the database for JDBC. Raises SettingsError, which begins with the setting's `key`."""
    try:
        parsed = database_url(url, base)
    except ValueError as exc:
        raise SettingsError(f"{key}: {exc}") from exc
    if parsed.get_backend_name() == "sqlite":
        return JdbcLogin(f"jdbc:sqlite:{Path(parsed.database or '').resolve()}", _SQLITE)
    return JdbcLogin(
        _postgres_url(parsed, key), _POSTGRES, parsed.username or "", parsed.password or ""
    )


def _postgres_url(url: URL, key: str) -> str:
    options = dict(_PATIENCE)
    for name, value in url.query.items():
        if name not in _OPTIONS:
            raise SettingsError(
                f"{key}: the option {name} has no counterpart in the JDBC driver; give spark.ledger_url"
                " a URL without it"
            )
        options[_OPTIONS[name]] = _jdbc_value(
            name, value if isinstance(value, str) else value[-1], key
        )
    from urllib.parse import quote, urlencode

    host = url.host or "127.0.0.1"
    place = f"{host}:{url.port or _POSTGRES_PORT}/{quote(url.database or '')}"
    return f"jdbc:postgresql://{place}?{urlencode(options)}"


def _jdbc_value(name: str, value: str, key: str) -> str:
    known = _VALUES.get(name)
    if known is None:
        return value
    if value not in known:
        raise SettingsError(f"{key}: the option {name} may be {', '.join(known)}, not {value!r}")
    return known[value]
