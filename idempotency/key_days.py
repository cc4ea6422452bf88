"""The day of a delivery's key. A statement that has it as a literal is planned for one partition."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

_DAY_OF_KEY: Final = text("SELECT day FROM delivery_keys WHERE delivery_key = :key")


def day_of_key(connection: Connection, key: str) -> int | None:
    """Returns the day of a key; None for an unknown one. PostgreSQL alone has the table."""
    day: int | None = connection.execute(_DAY_OF_KEY, {"key": key}).scalar_one_or_none()
    return day
