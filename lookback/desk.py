"""The moves of a person on the SQL store (`lookback.operator.LookbackDesk`)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from idempotency.error_mapping import errors
from lookback import sql
from lookback.decisions import take_person
from lookback.history import PastTransactions, past_row
from lookback.operator import NotResolvable, TxDecision, TxShown, UnresolvedPage
from lookback.store import LookbackStore
from lookback.transaction import shown
from message.lookback import day_of, is_tx_id

LIMIT: Final = 100


class SqlLookbackDesk:
    """Implements `lookback.operator.LookbackDesk`."""

    def __init__(self, store: LookbackStore, past: PastTransactions | None = None) -> None:
        self._store = store
        self._past = past

    def unresolved(
        self, *, biz_type: str = "", after: str = "", limit: int = LIMIT
    ) -> UnresolvedPage:
        """See `LookbackDesk.unresolved`."""
        asked = {"biz_type": biz_type, "after": after, "limit": limit + 1}
        with errors(), self._store.database.begin() as connection:
            found = connection.execute(sql.UNRESOLVED, asked).mappings().all()
        rows = [shown(past_row(row)) for row in found[:limit]]
        return UnresolvedPage(rows, rows[-1].tx_id if len(found) > limit else "")

    def unresolved_counts(self) -> dict[str, int]:
        """See `LookbackDesk.unresolved_counts`."""
        with errors(), self._store.database.begin() as connection:
            return {row.biz_type: row.rows for row in connection.execute(sql.COUNTS)}

    def find(self, name: str) -> list[TxShown]:
        """See `LookbackDesk.find`."""
        day = day_of(name) if is_tx_id(name) else -1
        asked = {"name": name, "day": day, "limit": LIMIT}
        with errors(), self._store.database.begin() as connection:
            found = [past_row(row) for row in connection.execute(sql.FIND, asked).mappings()]
        known = {row.tx_id for row in found}
        past = self._past.find(name, LIMIT) if self._past is not None else []
        return [shown(row) for row in [*found, *(row for row in past if row.tx_id not in known)]]

    def resolve(self, tx_id: str, decision: TxDecision, *, person: str, reason: str) -> TxShown:
        """See `LookbackDesk.resolve`."""
        with errors(), self._store.database.begin() as connection:
            return self.resolve_in(connection, tx_id, decision, person=person, reason=reason)

    def resolve_in(
        self,
        connection: Connection,
        tx_id: str,
        decision: TxDecision,
        *,
        person: str,
        reason: str,
    ) -> TxShown:
        """See `LookbackDesk.resolve_in`."""
        if not is_tx_id(tx_id):
            raise NotResolvable(
                f"{tx_id[:64]} is no tx_id: `hongyan lookback unresolved list` has them"
            )
        step = self._store.change(
            connection, tx_id, lambda now, row: take_person(row, decision, person, reason, now)
        )
        if step is None:
            raise NotResolvable(f"there is no transaction {tx_id}")
        return shown(step.row)
