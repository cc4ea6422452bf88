"""A job's surroundings: warehouse, Kafka, ledger, keys. The program fills them in from `hongyan.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class JdbcLogin:
    """A database for Spark's JDBC source. The password is in no URL, and `repr` leaves it out."""

    url: str
    driver: str
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True)
class JobConfig:
    """One job's surroundings."""

    warehouse: str
    """Folder or object-store URL of the Delta tables."""
    topic_prefix: str
    kafka: Mapping[str, str] = field(repr=False)
    """Options of Spark's Kafka source, `kafka.bootstrap.servers` among them; may hold secrets."""
    ledger: JdbcLogin
    """The ledger, or its replica (`spark.ledger_url`)."""
    connections: int = 4
    """Most connections to the ledger at once."""
    payload_key: str = field(default="", repr=False)
    """`database.payload_key`: base64 of 32 bytes; empty: bodies are plain, as in the ledger."""
    hash_key: str = field(default="", repr=False)
    """`outcomes.hash_key`; empty: no receiver hashes."""
    open_days: int = 3
    """Days behind the newest that a rebuild reads whole; an older day is read if something came for it."""
