"""The ledger as anybody may read it: the two views, and a few questions put to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from message.vocabulary import lane_of_topic


class Row(NamedTuple):
    """One delivery as the view shows it."""

    delivery_key: str
    message_id: str
    lane: str
    state: str
    reason: str | None
    attempt: int
    owner: str | None
    provider_id: str | None
    created_at: int
    updated_at: int
    next_at: int | None
    expires_at: int


_ROWS = f"SELECT {', '.join(Row._fields)} FROM hongyan_deliveries"


class Books:
    """Asks over one connection, and over a new one where a database that was away has ended it."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg", "")
        self._connection: psycopg.Connection[Any] | None = None

    def query(self, statement: str, *arguments: Any) -> list[Any]:
        """Rows of any statement."""
        if self._connection is not None:
            try:
                return _rows(self._connection, statement, arguments)
            except psycopg.OperationalError:
                self.close()
        self._connection = psycopg.connect(self._url, autocommit=True, row_factory=namedtuple_row)
        return _rows(self._connection, statement, arguments)

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def rows(self, keys: Iterable[str] | None = None) -> dict[str, Row]:
        """Deliveries by key: these, or all."""
        if keys is None:
            found = self.query(_ROWS)
        else:
            found = self.query(f"{_ROWS} WHERE delivery_key = ANY(%s)", list(keys))
        return {row.delivery_key: Row(*row) for row in found}

    def of_message(self, message_id: str) -> list[Row]:
        """The deliveries of one notification."""
        return [Row(*r) for r in self.query(f"{_ROWS} WHERE message_id = %s", message_id)]

    def states(self, keys: Iterable[str] | None = None) -> Counter[str]:
        """How many deliveries stand in each state."""
        return Counter(row.state for row in self.rows(keys).values())

    def reasons(self, state: str) -> Counter[str | None]:
        """How many deliveries of a state give which reason."""
        return Counter(r.reason for r in self.rows().values() if r.state == state)

    def workers(self) -> dict[str, Any]:
        """`hongyan_workers` by id."""
        return {w.id: w for w in self.query("SELECT * FROM hongyan_workers")}

    def in_flight_of(self, owner: str) -> int:
        """Deliveries that one worker has claimed and not settled."""
        (row,) = self.query(
            "SELECT count(*) AS n FROM hongyan_deliveries WHERE owner = %s AND state = 'IN_FLIGHT'",
            owner,
        )
        return int(row.n)

    def shift_clock(self, milliseconds: int) -> None:
        """Let the database's clock be so much ahead from now on."""
        self.query(
            "CREATE OR REPLACE FUNCTION hongyan_now() RETURNS BIGINT LANGUAGE sql STABLE"
            " PARALLEL SAFE AS $$ SELECT (extract(epoch FROM now()) * 1000)::bigint"
            f" + ({milliseconds}) $$"
        )


def lane_name(topic: str, prefix: str) -> str:
    """The lane of a dispatch topic."""
    lane = lane_of_topic(topic, prefix)
    assert lane is not None, topic
    return lane.name


def names(rows: Iterable[Row]) -> Sequence[str]:
    """States of rows, sorted, for a short assertion."""
    return sorted(row.state for row in rows)


def _rows(
    connection: psycopg.Connection[Any], statement: str, arguments: tuple[Any, ...]
) -> list[Any]:
    cursor = connection.execute(statement.encode(), arguments)
    return cursor.fetchall() if cursor.description else []
