"""Views and orders of a person: rows by state, a parked row's release, a recall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    CompoundSelect,
    Select,
    bindparam,
    func,
    insert,
    literal_column,
    null,
    select,
    union_all,
    update,
)

from hongyan_client.outbox.clock import DatabaseMillis
from hongyan_client.outbox.relay_rows import COUNTED
from hongyan_client.outbox.store import OutboxStore
from hongyan_client.outbox.tables import (
    MAX_ERROR,
    PARKED,
    PENDING,
    RECALLED,
    TERMINAL,
    OutboxTables,
)

MOST_ROWS: Final = 1_000


class OutboxRow(NamedTuple):
    """One row without its content: times are epoch milliseconds."""

    id: int
    message_id: str
    topic: str
    state: str
    attempt: int
    max_attempts: int
    maybe_sent: int
    """1: Kafka may have it."""
    next_at: int | None
    send_at: int | None
    lease_owner: str | None
    last_error: str | None
    created_at: int
    done_at: int | None


class OutboxOperator:
    """Every method is one transaction and raises OutboxTrouble alone."""

    def __init__(self, store: OutboxStore, tables: OutboxTables) -> None:
        self._store = store
        self._tables = tables
        self._columns = [tables.rows.c[field] for field in OutboxRow._fields]

    def rows(self, states: Sequence[str], limit: int = 100, after: int = 0) -> list[OutboxRow]:
        """Returns rows in these states with a higher id than `after`, the oldest first. Raises ValueError
        for states in which a row has ended: no index finds those."""
        if ended := set(states) & set(TERMINAL):
            raise ValueError(f"{', '.join(sorted(ended))}: rows that have ended are not listed")
        with self._store.transaction() as connection:
            found = connection.execute(self.rows_question(states, min(limit, MOST_ROWS), after))
            return [OutboxRow(*row) for row in found]

    def rows_question(self, states: Sequence[str], limit: int, after: int) -> CompoundSelect[Any]:
        """Returns the statement of `rows`, one part for each index. Walking the ids would read every ended
        row before the first open one."""
        c = self._tables.rows.c
        number = c.id + literal_column(
            "0"
        )  # an expression: the database cannot walk the ids for it
        waiting = [one for one in states if one != PARKED]
        parts = []
        if waiting:
            due = self._by_index("due").where(c.next_at.is_not(None), c.state.in_(waiting))
            parts.append(due.where(number > after).order_by(number))
        if PARKED in states:
            parked = self._by_index("done").where(c.state == literal_column(f"'{PARKED}'"))
            parts.append(parked.where(c.id > after).order_by(c.id))
        limited = [select(one.limit(limit).subquery()) for one in parts]
        return union_all(*limited).order_by("id").limit(limit)

    def _by_index(self, index: str) -> Select[Any]:
        """Returns the start of a statement. MySQL and MariaDB need to be told the index."""
        rows = self._tables.rows
        hint = f"FORCE INDEX ({rows.name}_{index})"
        asked = select(*self._columns)
        return asked.with_hint(rows, hint, "mysql").with_hint(rows, hint, "mariadb")

    def counts(self) -> dict[str, int]:
        """Returns rows by state: open ones up to 10,000 each, ended ones among the newest 10,000 rows."""
        c = self._tables.rows.c
        due = select(c.state).where(c.next_at.is_not(None)).order_by(c.next_at).limit(COUNTED)
        parked = select(c.state).where(c.state == PARKED).limit(COUNTED)
        newest = select(c.state).order_by(c.id.desc()).limit(COUNTED).subquery()
        ended = select(newest.c.state).where(newest.c.state.in_(TERMINAL))
        found: dict[str, int] = {}
        with self._store.transaction() as connection:
            for some in (due, parked, ended):
                one = some.subquery()
                counted = select(one.c.state, func.count()).group_by(one.c.state)
                found |= {row[0]: row[1] for row in connection.execute(counted)}
        return found

    def of_message(self, message_id: str) -> list[OutboxRow]:
        """Returns the rows of one notification, the oldest first."""
        c = self._tables.rows.c
        asked = select(*self._columns).where(c.message_id == bindparam("asked_id")).order_by(c.id)
        with self._store.transaction() as connection:
            found = connection.execute(asked.limit(MOST_ROWS), {"asked_id": message_id})
            return [OutboxRow(*row) for row in found]

    def release(self, message_id: str, by: str, reason: str) -> int:
        """Makes the parked rows of a notification due again with all their attempts. Returns their number.
        The order stays on record in the table of alerts."""
        return self._order(
            message_id,
            (PARKED,),
            {"state": PENDING, "next_at": DatabaseMillis(), "attempt": 0, "held": 0},
            f"released by {by}: {reason}",
        )

    def recall(self, message_id: str, by: str, reason: str) -> int:
        """Takes back the rows of a notification that have certainly not gone. Returns their number."""
        ended = {"state": RECALLED, "next_at": null(), "done_at": DatabaseMillis()}
        return self._order(
            message_id, (PENDING, PARKED), ended, f"recalled by {by}: {reason}", certain=True
        )

    def _order(
        self,
        message_id: str,
        states: Sequence[str],
        values: Mapping[str, Any],
        note: str,
        *,
        certain: bool = False,
    ) -> int:
        c = self._tables.rows.c
        asked = select(c.id, c.topic).where(
            c.message_id == bindparam("asked_id"), c.state.in_(states)
        )
        if certain:
            asked = asked.where(c.maybe_sent == 0)
        with self._store.transaction() as connection:
            found = connection.execute(asked.with_for_update(), {"asked_id": message_id}).all()
            ids = [row.id for row in found]
            if not ids:
                return 0
            connection.execute(
                update(self._tables.rows)
                .where(c.id.in_(ids))
                .values(last_error=note[:MAX_ERROR], **values)
            )
            journal = [
                {"row_id": row.id, "message_id": message_id, "topic": row.topic} for row in found
            ]
            now = DatabaseMillis()
            entry = insert(self._tables.alerts).values(
                text=note[:MAX_ERROR], raised_at=now, told_at=now
            )
            connection.execute(entry, journal)
            self._store.wake_followers(connection, ids)
        return len(ids)
